/** WordPiece: words between blanks and punctuation, each cut into the longest pieces of the vocabulary. */
import { textOf } from "./characters.js";

/**
 * @import { Aligned, Piece } from "./aligned.js"
 * @import { Characters } from "./characters.js"
 * @import { Steps } from "./bert_normalizer.js"
 */

/**
 * @typedef {object} WordPieceFacts
 * @property {"WordPiece"} type
 * @property {(string | null)[]} pieces By id.
 * @property {number} unknown The id of the token for words that the vocabulary cannot spell.
 * @property {string} prefix Of pieces within a word: "##".
 * @property {number} longest Code points of a word; a longer one is unknown.
 * @property {Steps} steps
 */

/**
 * @param {WordPieceFacts} model
 * @param {Characters} characters
 * @returns {(text: Aligned) => Piece[]} The tokens of a normalised text.
 */
export function makeWordPiece(model, characters) {
  const separator = characters.property("separator");
  const punctuation = characters.property("punctuation");
  const heads = new Map();
  const tails = new Map();
  let most = 0; // UTF-16 units of a piece
  model.pieces.forEach((piece, id) => {
    if (piece === null) return;
    heads.set(piece, id);
    if (piece.startsWith(model.prefix)) tails.set(piece.slice(model.prefix.length), id);
    most = Math.max(most, piece.length);
  });

  return (text) => {
    /** @type {Piece[]} */
    const found = [];
    const { codes } = text;
    for (let start = 0, at = 0; at <= codes.length; at++) {
      const sign = at < codes.length && punctuation(codes[at]) === 1;
      if (at < codes.length && !sign && separator(codes[at]) === 0) continue;
      if (start < at) found.push(...piecesOf(text, start, at));
      if (sign) found.push(...piecesOf(text, at, at + 1));
      start = at + 1;
    }
    return found;
  };

  /**
   * The pieces of one word.
   * @param {Aligned} text
   * @param {number} first
   * @param {number} last
   * @returns {Piece[]}
   */
  function piecesOf(text, first, last) {
    const unknown = [
      {
        id: model.unknown,
        text: /** @type {string} */ (model.pieces[model.unknown]),
        start: text.from[first],
        end: text.to[last - 1],
      },
    ];
    if (last - first > model.longest) return unknown;
    const word = textOf(text.codes, first, last);
    /** @type {Piece[]} */
    const found = [];
    let at = first; // the code point at which the unit `start` of the word begins
    for (let start = 0; start < word.length; ) {
      const known = start === 0 ? heads : tails;
      let end = Math.min(word.length, start + most);
      while (end > start && !known.has(word.slice(start, end))) end--;
      if (end === start) return unknown;
      const id = known.get(word.slice(start, end));
      const from = at;
      for (let unit = start; unit < end; at++) unit += text.codes[at] > 0xffff ? 2 : 1;
      found.push({ id, text: /** @type {string} */ (model.pieces[id]), start: text.from[from], end: text.to[at - 1] });
      start = end;
    }
    return found;
  }
}
