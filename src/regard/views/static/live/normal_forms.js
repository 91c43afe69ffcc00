// Unicode's normal forms, as `tokenizers` counts their places.
import { put } from "./aligned.js";

/**
 * @import { Aligned } from "./aligned.js"
 * @import { Characters } from "./characters.js"
 * @typedef {{ code: number, change: number, rank: number }} Part change: 1 where it takes no place of its own, -1 where it
 *   takes the next one too; rank: of a mark its order, 0 of what is none
 */

const HANGUL = { first: 0xac00, last: 0xd7a3, leading: 0x1100, vowel: 0x1161, trailing: 0x11a7 };
const [LEADINGS, VOWELS, TRAILINGS] = [19, 21, 28];
const CODES = 0x110000;

/**
 * Letters and their marks each by themselves, marks in a row in their order (NFD).
 * @param {Characters} characters
 * @returns {(text: Aligned) => Aligned}
 */
export function makeTakenApart(characters) {
  const parts = makeParts(characters);
  return (text) => placed(parts(text), text);
}

/**
 * Letters with those of their marks that there is one character for (NFC).
 * @param {Characters} characters
 * @returns {(text: Aligned) => Aligned}
 */
export function makeComposed(characters) {
  const parts = makeParts(characters);
  const pairs = new Map([...characters.map("composed")].map(([one, [a, b]]) => [a * CODES + b, one]));
  return (text) => {
    /** @type {Part[]} */
    const made = [];
    /** @type {Part | null} */
    let letter = null;
    let before = 0; // the rank of the mark between it and what follows
    for (const part of parts(text)) {
      const isFree = letter !== null && (before === 0 || before < part.rank);
      const one = letter && isFree ? (pairs.get(letter.code * CODES + part.code) ?? ofHangul(letter, part)) : undefined;
      if (letter && one !== undefined) {
        letter.code = one;
        letter.change += part.change - 1;
        continue;
      }
      made.push(part);
      before = part.rank;
      if (part.rank === 0) letter = part;
    }
    return placed(made, text);
  };
}

/** @param {Characters} characters @returns {(text: Aligned) => Part[]} */
function makeParts(characters) {
  const rank = characters.property("rank");
  const decomposed = characters.map("decomposed");
  return ({ codes }) => {
    /** @type {Part[]} */
    const parts = [];
    let marks = 0; // where the marks in a row begin
    for (const code of [...codes, 0]) {
      (decomposed.get(code) ?? syllable(code) ?? [code]).forEach((one, index) => {
        const part = { code: one, change: Number(index > 0), rank: rank(one) };
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
    return parts;
  };
}

/**
 * What a character became first takes the next place, what it became besides the same. Marks that changed places so
 * stand for each other's places, and what was composed for that of its letter.
 * @param {Part[]} parts @param {Aligned} text @returns {Aligned}
 */
function placed(parts, text) {
  /** @type {Aligned} */
  const made = { codes: [], from: [], to: [] };
  let next = 0;
  for (const { code, change } of parts) {
    put(made, code, text, change > 0 ? next - 1 : next);
    if (change <= 0) next += 1 - change;
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

/** The syllable of two letters, or of a syllable and its last letter. @param {Part} one @param {Part} other */
function ofHangul({ code: one }, { code: other }) {
  const [leading, vowel, trailing] = [one - HANGUL.leading, other - HANGUL.vowel, other - HANGUL.trailing];
  if (leading >= 0 && leading < LEADINGS && vowel >= 0 && vowel < VOWELS)
    return HANGUL.first + (leading * VOWELS + vowel) * TRAILINGS;
  const isOpen = one >= HANGUL.first && one <= HANGUL.last && (one - HANGUL.first) % TRAILINGS === 0;
  return isOpen && trailing > 0 && trailing < TRAILINGS ? one + trailing : undefined;
}
