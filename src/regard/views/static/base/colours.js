// Colours, and what tells two things apart where colours do not.

// For several heads at once. Chosen one by one, each as far as can be from those before it: in OKLab, for
// normal vision (half the distance counted) and for simulated protanopia, deuteranopia and tritanopia (Machado
// et al. 2009), among colours with a contrast of 3 to 1 against the card. Blue and orange, which stand for
// looking and being looked at, come first.
const LIGHT = [
  "#2461c0",
  "#b5500b",
  "#11a880",
  "#c96bfa",
  "#720a5b",
  "#2f4700",
  "#870efe",
  "#0105bf",
  "#ff5968",
  "#985690",
  "#818dc6",
  "#9c8a15",
  "#a50b39",
  "#4e1298",
  "#d70272",
  "#026859",
];
const DARK = [
  "#7fb2ff",
  "#ffa75c",
  "#107908",
  "#c1089e",
  "#13ffc7",
  "#0865fd",
  "#b3726b",
  "#f6ee0b",
  "#fe6ac0",
  "#939d09",
  "#19a7a3",
  "#dd0206",
  "#8d6ecf",
  "#98c899",
  "#e3c4fd",
  "#d069ff",
];
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
    const list = this.dark() ? DARK : LIGHT;
    return list[i % list.length];
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
