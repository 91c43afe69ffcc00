// Colours, and what tells two things apart where colours do not.

import PALETTE from "../palette.json";

// For several heads at once. Chosen one by one, each as far as can be from those before it: in OKLab, for
// normal vision (half the distance counted) and for simulated protanopia, deuteranopia and tritanopia (Machado
// et al. 2009), among colours with a contrast of 3 to 1 against the card. Blue, which stands for looking, is that of
// a single head; orange, which stands for being looked at, comes last.
// Lines of neighbours differ in their dashes too; 16 colours and 5 dashes repeat together after 80.
const DASHES = [[], [7, 4], [2, 4], [11, 4, 2, 4], [4, 3]];

export class Colours {
  // root: the page's element, which carries the theme and the style sheet's colours.
  constructor(root) {
    this.root = root;
    this.forget();
  }

  // After a change of theme.
  forget() {
    this.named = new Map();
  }

  // A colour of the style sheet: "--query", "--key", "--rule".
  of(name) {
    if (!this.named.has(name)) this.named.set(name, getComputedStyle(this.root).getPropertyValue(name).trim());
    return this.named.get(name);
  }

  dark() {
    return this.of("--theme") === "dark";
  }

  // The colour of the i-th of several things, and its dashes and its letter.
  series(i) {
    const list = PALETTE[this.dark() ? "dark" : "light"].series;
    return list[i % list.length];
  }

  // Of the i-th of several sentences: none is the blue of looking.
  sentence(i) {
    return this.series(i + 1);
  }

  dashes(i) {
    return DASHES[i % DASHES.length];
  }

  letter(i) {
    return i < 26 ? String.fromCharCode(97 + i) : this.letter(Math.floor(i / 26) - 1) + this.letter(i % 26);
  }
}

// "#rrggbb" to [r, g, b].
export function parseColour(text) {
  const value = parseInt(text.trim().slice(1), 16);
  return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}
