/** Byte-level BPE, as GPT-2 has it: words with the blank before them, as bytes, of which pairs are merged. */
import { put } from "./aligned.js";
import { TextRefused } from "./characters.js";
import { makeHeap } from "./heap.js";

/**
 * @import { Aligned, Piece } from "./aligned.js"
 * @import { Characters } from "./characters.js"
 */

/**
 * @typedef {object} ByteLevelFacts
 * @property {"BPE"} type
 * @property {(string | null)[]} pieces By id.
 * @property {number[]} merges The two ids of each merge, the first merge first.
 * @property {boolean} blank Whether a text that begins with no blank gets one.
 * @property {boolean} [digits] Whether each digit stands alone, before the text between is cut.
 */

const BLANK = 0x20;
const APOSTROPHE = 0x27;
const ENDINGS = ["s", "t", "re", "ve", "m", "ll", "d"];

/** The characters that stand for bytes in the vocabulary: those that print stand for themselves. */
export const LETTERS = (() => {
  /** @param {number} byte */
  const prints = (byte) => (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad);
  let others = 0x100;
  return Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(prints(byte) ? byte : others++));
})();

/**
 * @param {ByteLevelFacts} model
 * @param {Characters} characters
 * @returns {(text: Aligned) => Piece[]}
 */
export function makeByteLevel(model, characters) {
  const { pieces, merges } = model;
  const idOf = new Map(pieces.map((piece, id) => [piece, id]));
  const bytes = LETTERS.map((letter) => idOf.get(letter));
  const rankOf = new Map();
  const madeBy = new Int32Array(merges.length / 2);
  for (let rank = 0; rank < madeBy.length; rank++) {
    const [left, right] = [merges[2 * rank], merges[2 * rank + 1]];
    rankOf.set(left * pieces.length + right, rank);
    madeBy[rank] = /** @type {number} */ (idOf.get(`${pieces[left]}${pieces[right]}`));
  }
  const nextCut = makeCutter(characters);
  const isDigit = model.digits ? characters.property("digit") : () => 0;

  return (given) => {
    const text = model.blank && given.codes[0] !== BLANK ? withBlank(given) : given;
    /** @type {Piece[]} */
    const found = [];
    let last = 0; // where the part between digits ends
    for (let start = 0; start < text.codes.length; ) {
      if (start === last) {
        last += 1;
        if (!isDigit(text.codes[start])) while (last < text.codes.length && !isDigit(text.codes[last])) last += 1;
      }
      const end = nextCut(text.codes, start, last);
      merged(text, start, end, found);
      start = end;
    }
    return found;
  };

  /**
   * Adds the tokens of one word: of all pairs of neighbours the one of the lowest rank is merged, the leftmost of
   * equals, as long as there is one.
   * @param {Aligned} text
   * @param {number} first
   * @param {number} last
   * @param {Piece[]} found
   */
  function merged(text, first, last, found) {
    /** @type {number[]} */
    const ids = [];
    /** @type {number[]} */
    const owner = []; // of each byte, its character
    for (let at = first; at < last; at++) {
      for (const byte of utf8(text.codes[at])) {
        const id = bytes[byte];
        // Python's tokenizer passes it over, and then loses count of the places.
        if (id === undefined)
          throw new TextRefused(
            `The text has U+${text.codes[at].toString(16).toUpperCase().padStart(4, "0")}, which this model's vocabulary ` +
              "cannot spell: leave it out.",
          );
        ids.push(id);
        owner.push(at);
      }
    }
    // A list that is linked by places; a pair in the heap that is no longer there has another rank.
    const count = ids.length;
    const after = ids.map((_, at) => at + 1);
    const before = ids.map((_, at) => at - 1);
    /** @param {number} at */
    const rank = (at) => (after[at] < count ? rankOf.get(ids[at] * pieces.length + ids[after[at]]) : undefined);
    const heap = makeHeap();
    /** @param {number} at */
    const offer = (at) => {
      const found = at < 0 ? undefined : rank(at);
      if (found !== undefined) heap.push(found * count + at);
    };
    for (let at = 0; at < count - 1; at++) offer(at);
    for (let key = heap.pop(); key !== undefined; key = heap.pop()) {
      const at = key % count;
      const lowest = (key - at) / count;
      if (ids[at] < 0 || rank(at) !== lowest) continue;
      const gone = after[at];
      ids[at] = madeBy[lowest];
      ids[gone] = -1;
      after[at] = after[gone];
      if (after[at] < count) before[after[at]] = at;
      offer(before[at]);
      offer(at);
    }
    for (let at = 0; at < count; at = after[at]) {
      const [start, end] = [text.from[owner[at]], text.to[owner[after[at] - 1]]];
      found.push({ id: ids[at], text: /** @type {string} */ (pieces[ids[at]]), start, end });
    }
  }
}

/**
 * Finds where words end, as GPT-2's expression does:
 * 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * @param {Characters} characters
 * @returns {(codes: number[], start: number, last: number) => number}
 */
function makeCutter(characters) {
  const letter = characters.property("letter");
  const number = characters.property("number");
  const blank = characters.property("blank");
  /** @param {number} code */
  const kind = (code) => (letter(code) ? 1 : number(code) ? 2 : blank(code) ? 3 : 4);
  const endings = ENDINGS.map((each) => [...each].map((one) => one.charCodeAt(0)));

  return (codes, start, last) => {
    if (codes[start] === APOSTROPHE) {
      const ending = endings.find((each) => each.every((code, index) => codes[start + 1 + index] === code));
      if (ending) return start + 1 + ending.length;
    }
    let end = start;
    if (codes[start] === BLANK && start + 1 < last && !blank(codes[start + 1])) end++;
    const of = kind(codes[end]);
    while (end < last && kind(codes[end]) === of) end++;
    // The last of several blanks is left to what follows.
    return of === 3 && end < last && end - start > 1 ? end - 1 : end;
  };
}

/**
 * With a blank in front, which stands for the first character as well.
 * @param {Aligned} text
 * @returns {Aligned}
 */
function withBlank(text) {
  /** @type {Aligned} */
  const made = { codes: [], from: [], to: [] };
  put(made, BLANK, text, 0);
  text.codes.forEach((code, at) => put(made, code, text, at));
  return made;
}

/**
 * @param {number} code
 * @returns {number[]}
 */
function utf8(code) {
  if (code < 0x80) return [code];
  if (code < 0x800) return [0xc0 | (code >> 6), 0x80 | (code & 0x3f)];
  if (code < 0x10000) return [0xe0 | (code >> 12), 0x80 | ((code >> 6) & 0x3f), 0x80 | (code & 0x3f)];
  return [0xf0 | (code >> 18), 0x80 | ((code >> 12) & 0x3f), 0x80 | ((code >> 6) & 0x3f), 0x80 | (code & 0x3f)];
}
