/** Byte pair encoding: a text is cut into parts, of each of which neighbours are merged. */
import { TextRefused } from "./characters.js";
import { makeHeap } from "./heap.js";
import { SPELLINGS } from "./spelling.js";
import { makeSteps } from "./steps.js";

/**
 * @import { Aligned, Piece } from "./aligned.js"
 * @import { Characters } from "./characters.js"
 */

/**
 * @typedef {object} BytePairFacts
 * @property {"BPE"} type
 * @property {(string | null)[]} pieces By id.
 * @property {number[]} merges The two ids of each merge, the first merge first.
 * @property {import("./steps.js").Step[]} normalizer What is done before added tokens are looked for.
 * @property {import("./steps.js").Step[]} steps What is done before the text is cut.
 * @property {string[]} cuts Expressions over the signs from FIRST_SIGN on, one for each class of characters that they tell
 *   apart: their matches are parts, and what is between them; of these the next one's are.
 * @property {"bytes" | "characters"} spelling
 * @property {boolean} whole Whether a part that is a piece is never cut.
 */

const FIRST_SIGN = 0x100;

/**
 * @param {BytePairFacts} model
 * @param {Characters} characters
 * @returns {(text: Aligned) => Piece[]} The tokens of a normalised text.
 */
export function makeBytePairs(model, characters) {
  const { pieces, merges, whole } = model;
  const { spell } = SPELLINGS[model.spelling];
  const idOf = new Map(pieces.map((piece, id) => [piece, id]));
  const has = (/** @type {string} */ piece) => idOf.has(piece);
  const rankOf = new Map();
  const madeBy = new Int32Array(merges.length / 2);
  for (let rank = 0; rank < madeBy.length; rank++) {
    const [left, right] = [merges[2 * rank], merges[2 * rank + 1]];
    rankOf.set(left * pieces.length + right, rank);
    madeBy[rank] = /** @type {number} */ (idOf.get(`${pieces[left]}${pieces[right]}`));
  }
  const prepared = makeSteps(model.steps, characters);
  const sign = characters.property("cut");
  const cuts = model.cuts.map((each) => new RegExp(each, "g"));

  return (given) => {
    const text = prepared(given);
    const line = text.codes.map((code) => String.fromCharCode(FIRST_SIGN + sign(code))).join("");
    /** @type {[number, number][]} */
    let parts = [[0, line.length]];
    for (const cut of cuts) parts = parts.flatMap(([start, end]) => partsOf(line, start, end, cut));
    /** @type {Piece[]} */
    const found = [];
    for (const [start, end] of parts) merged(text, start, end, found);
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
    const owner = []; // of each piece, its character
    for (let at = first; at < last; at++) {
      for (const piece of spell(text.codes[at], has)) {
        const id = idOf.get(piece);
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
    const one = whole ? idOf.get(ids.map((id) => pieces[id]).join("")) : undefined;
    if (one !== undefined) {
      const piece = /** @type {string} */ (pieces[one]);
      found.push({ id: one, text: piece, start: text.from[first], end: text.to[last - 1] });
      return;
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
 * What an expression finds between two places, and what is between its matches.
 * @param {string} line @param {number} start @param {number} end @param {RegExp} cut
 */
function partsOf(line, start, end, cut) {
  /** @type {[number, number][]} */
  const parts = [];
  let last = start;
  for (const { 0: found, index } of line.slice(start, end).matchAll(cut)) {
    const from = start + index;
    if (last < from) parts.push([last, from]);
    last = from + found.length;
    parts.push([from, last]);
  }
  if (last < end) parts.push([last, end]);
  return parts;
}
