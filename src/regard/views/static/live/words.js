/** The words of a text, and which tokens belong to each: the rules of `regard.text`, on code points. */

/** @import { Characters } from "./characters.js" */
/** @import { Piece } from "./aligned.js" */

/** @typedef {[number, number]} Span Start and end. */

const FIRST_MARK = 0x300;
const BLANK_SIGNS = ["▁", "Ġ"];

/**
 * Finds words by Unicode's word boundaries.
 * @param {Characters} characters
 * @param {string} signs One sign for each class of characters.
 * @param {string} segment From one boundary to the next, as an expression over these signs.
 * @returns {(codes: number[]) => Span[]}
 */
export function makeSplitter(characters, signs, segment) {
  const sign = characters.property("sign");
  const unseen = characters.property("unseen");
  const strip = characters.property("strip");
  const segments = new RegExp(segment, "g");

  return (codes) => {
    let line = codes.map((code) => signs[sign(code)]).join("");
    let places = codes.map((_, at) => at);
    // What hangs on a character is left out, so that every rule looks at neighbours; not so where a line begins,
    // since there is nothing to hang on. p and q follow a joiner, V is a blank with a mark, r ends a flag.
    if (/[XZ]/.test(line)) {
      line = line
        .replaceAll("ZP", "Zp")
        .replaceAll("ZQ", "Zq")
        .replace(/(?:^|(?<=[CLN]))[XZ]/g, "O")
        .replace(/W(?=[XZ])/g, "V");
      places = places.filter((at) => !/[XZ]/.test(line[at]));
      line = line.replace(/[XZ]+/g, "");
    }
    line = line.replaceAll("RR", "Rr");
    const starts = [...line.matchAll(segments)].map((found) => places[found.index]);
    /** @type {Span[]} */
    const words = [];
    starts.forEach((start, index) => {
      let end = starts[index + 1] ?? codes.length;
      let first = start;
      while (first < end && unseen(codes[first])) first++;
      if (first === end) return;
      while (strip(codes[end - 1])) end--;
      words.push([first, end]);
    });
    return words;
  };
}

/**
 * Brings tokens to the characters that they show: without white space at the ends, with the accents that a
 * normaliser took off; none for a blank that the tokenizer put in itself.
 * @param {Characters} characters
 * @returns {(codes: number[], pieces: Piece[]) => Span[]}
 */
export function makeAligner(characters) {
  const strip = characters.property("strip");
  const mark = characters.property("mark");

  return (codes, pieces) => {
    let [lastStart, lastEnd] = [0, 0];
    const spans = pieces.map((piece) => {
      const [start, end] = trimmed(codes, piece);
      lastStart = Math.max(start, lastStart);
      lastEnd = Math.max(end, lastEnd);
      return /** @type {Span} */ ([lastStart, lastEnd]);
    });
    takeMarks(codes, spans);
    return spans;
  };

  /**
   * @param {number[]} codes
   * @param {Piece} piece
   * @returns {Span}
   */
  function trimmed(codes, { text, start: first, end: last }) {
    let [start, end] = [first, last];
    while (start < end && strip(codes[start])) start++;
    while (start < end && strip(codes[end - 1])) end--;
    if (start === end && first < last) return [first, last];
    const [sign] = text;
    const onlyBlanks = BLANK_SIGNS.includes(sign) && [...text].every((each) => each === sign);
    if (onlyBlanks && (first === last || codes[first] !== sign.codePointAt(0))) return [first, first];
    return [start, end];
  }

  /**
   * Extends each span over the marks behind it that no token covers.
   * @param {number[]} codes
   * @param {Span[]} spans
   */
  function takeMarks(codes, spans) {
    let limit = codes.length; // where the next token's span starts
    let [sharedEnd, grownEnd] = [-1, -1]; // the next token's end, before and after
    for (let at = spans.length - 1; at >= 0; at--) {
      const [start, end] = spans[at];
      if (isBlank(codes, start, end, strip)) {
        limit = start;
        continue;
      }
      let grown = end;
      if (end === sharedEnd) grown = grownEnd;
      else if (end < limit && codes[end] >= FIRST_MARK) while (grown < limit && mark(codes[grown])) grown++;
      spans[at] = [start, grown];
      [limit, sharedEnd, grownEnd] = [start, end, grown];
    }
  }
}

/**
 * The word with which each span shares the most code points, the first of equals; null for blanks.
 * @param {number[]} codes
 * @param {Span[]} spans Starts and ends never decrease.
 * @param {Span[]} words
 * @param {(code: number) => number} strip Whether a character is white space.
 * @returns {(number | null)[]}
 */
export function wordsOf(codes, spans, words, strip) {
  let first = 0;
  return spans.map(([start, end]) => {
    while (first < words.length && words[first][1] <= start) first++;
    if (isBlank(codes, start, end, strip)) return null;
    /** @type {number | null} */
    let best = null;
    let most = 0;
    for (let index = first; index < words.length && words[index][0] < end; index++) {
      const shared = Math.min(end, words[index][1]) - Math.max(start, words[index][0]);
      if (shared > most) [best, most] = [index, shared];
    }
    return best;
  });
}

/**
 * Whether there is nothing but white space, or nothing.
 * @param {number[]} codes
 * @param {number} start
 * @param {number} end
 * @param {(code: number) => number} strip
 */
export function isBlank(codes, start, end, strip) {
  for (let at = start; at < end; at++) if (!strip(codes[at])) return false;
  return true;
}
