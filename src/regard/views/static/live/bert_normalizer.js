/** BERT's normaliser: control characters, Chinese characters, accents, capitals. */
import { put, replaced } from "./aligned.js";

/**
 * @import { Aligned } from "./aligned.js"
 * @import { Characters } from "./characters.js"
 */

/**
 * @typedef {object} Steps Which of its four steps a model has.
 * @property {boolean} clean Drop control characters, make all white space blanks.
 * @property {boolean} chinese Put blanks around Chinese characters.
 * @property {boolean} strip Strip accents.
 * @property {boolean} lower
 */

const BLANK = 0x20;
const HANGUL = { first: 0xac00, last: 0xd7a3, leading: 0x1100, vowel: 0x1161, trailing: 0x11a7 };
const VOWELS = 21;
const TRAILINGS = 28;

/**
 * @param {Steps} steps
 * @param {Characters} characters
 * @returns {(text: Aligned) => Aligned}
 */
export function makeBertNormalizer(steps, characters) {
  const dropped = characters.property("dropped");
  const blank = characters.property("blank");
  const chinese = characters.property("chinese");
  const nonspacing = characters.property("nonspacing");
  const rank = characters.property("rank");
  const decomposed = characters.map("decomposed");
  const lowered = characters.map("lowered");

  return (given) => {
    let text = given;
    if (steps.clean) text = replaced(text, (code) => (dropped(code) ? [] : blank(code) ? [BLANK] : undefined));
    if (steps.chinese) text = replaced(text, (code) => (chinese(code) ? [BLANK, code, BLANK] : undefined));
    if (steps.strip) {
      text = replaced(takenApart(text, decomposed, rank), (code) => (nonspacing(code) ? [] : undefined));
    }
    return steps.lower ? replaced(text, (code) => lowered.get(code)) : text;
  };
}

/**
 * Letters and their marks each by themselves, marks in a row in their order (Unicode's NFD).
 * @param {Aligned} text
 * @param {Map<number, number[]>} decomposed
 * @param {(code: number) => number} rank
 * @returns {Aligned}
 */
function takenApart(text, decomposed, rank) {
  /** @type {{ code: number, more: boolean, rank: number }[]} */
  const parts = [];
  let marks = 0; // where the marks in a row begin
  for (const code of [...text.codes, 0]) {
    (decomposed.get(code) ?? syllable(code) ?? [code]).forEach((one, index) => {
      const part = { code: one, more: index > 0, rank: rank(one) };
      if (part.rank === 0) {
        if (parts.length - marks > 1) {
          for (const mark of parts.splice(marks).sort((a, b) => a.rank - b.rank)) parts.push(mark);
        }
        marks = parts.length + 1;
      }
      parts.push(part);
    });
  }
  parts.pop();
  // As `tokenizers` counts: what a character became first takes the next place, what it became besides the same.
  // Marks that changed places so stand for each other's places.
  /** @type {Aligned} */
  const made = { codes: [], from: [], to: [] };
  let at = -1;
  for (const { code, more } of parts) {
    if (!more) at++;
    put(made, code, text, at);
  }
  return made;
}

/**
 * The two or three letters of a Hangul syllable.
 * @param {number} code
 */
function syllable(code) {
  if (code < HANGUL.first || code > HANGUL.last) return undefined;
  const index = code - HANGUL.first;
  const letters = [
    HANGUL.leading + Math.floor(index / (VOWELS * TRAILINGS)),
    HANGUL.vowel + (Math.floor(index / TRAILINGS) % VOWELS),
  ];
  return index % TRAILINGS === 0 ? letters : [...letters, HANGUL.trailing + (index % TRAILINGS)];
}
