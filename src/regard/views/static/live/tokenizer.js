/**
 * The tokens of a text, as Python's tokenizer gives them: the same ids, spans and words, or a refusal in words.
 *
 *     const tokenizer = makeTokenizer(facts);         // what Python's `Tokenizer.portable(limit)` gives
 *     const { ids, types } = tokenizer.encode("The river bank");            // for the model
 *     const side = tokenizer.encode("The river bank", "A second text");     // a page's side: tokens, words
 *
 * It needs nothing of a page and so runs in a worker too.
 */

import { readable } from "../base/dom.js";
import { makeFinder } from "./added.js";
import { aligned } from "./aligned.js";
import { makeBertNormalizer } from "./bert_normalizer.js";
import { makeBytePairs } from "./bpe.js";
import { codesOf, makeCharacters, TextRefused, textOf } from "./characters.js";
import { readPieces, SPELLINGS } from "./spelling.js";
import { makeSteps } from "./steps.js";
import { makeWordPiece } from "./wordpiece.js";
import { isBlank, makeAligner, makeSplitter, wordsOf } from "./words.js";

/**
 * @import { AddedFacts } from "./added.js"
 * @import { Piece } from "./aligned.js"
 * @import { BytePairFacts } from "./bpe.js"
 * @import { CharacterFacts } from "./characters.js"
 * @import { WordPieceFacts } from "./wordpiece.js"
 * @import { Span } from "./words.js"
 */

/**
 * @typedef {object} TokenizerFacts What Python writes.
 * @property {WordPieceFacts | BytePairFacts} model
 * @property {AddedFacts[]} added
 * @property {{ single: [number | string, number][], pair: [number | string, number][] }} template What stands around
 *   one text and around two, in order: an id, or "A" or "B" for a text, each with its type.
 * @property {string} signs One for each class of characters that word boundaries know.
 * @property {string} segment An expression over these signs, from one boundary to the next.
 * @property {number | null} rows The rows of the model's table, where an added token has none.
 * @property {number | null} limit How many tokens the model takes.
 * @property {CharacterFacts} characters
 */

/**
 * @typedef {object} LiveToken
 * @property {number} id Its row in the table of learned embeddings.
 * @property {string} text The piece as in the vocabulary: "bank", "##ing", "Ġbank".
 * @property {string} surface The characters that it stands for: "bank" for "Ġbank".
 * @property {string | null} bytes Of a part of a character what it is: "<0xE6>".
 * @property {boolean} special Added by the template, or a special token that the text spells out.
 * @property {boolean} unknown Whether it stands for a word that the vocabulary cannot spell.
 * @property {number | null} sequence 0 in the first text, 1 in the second, null where the template added it.
 * @property {number | null} word An index into the words; null for special tokens and white space.
 * @property {Span | null} span Where it stands in its text, in UTF-16 units as `slice` counts; null where the
 *   template added it. Tokens that share a character share a span.
 */

/**
 * @typedef {object} Encoded
 * @property {string} text
 * @property {string | null} pair
 * @property {number[]} ids
 * @property {number[]} types Of each token the segment that the model is told: 0 or 1.
 * @property {LiveToken[]} tokens
 * @property {string[]} words Of both texts, in order.
 * @property {Span[]} wordSpans Where each word stands in its text, in UTF-16 units.
 */

/** @typedef {ReturnType<typeof makeTokenizer>} LiveTokenizer */

/**
 * @param {TokenizerFacts} facts
 */
export function makeTokenizer(facts) {
  const { model, added, template } = facts;
  const characters = makeCharacters(facts.characters);
  const strip = characters.property("strip");
  const space = characters.property("space");
  const split = makeSplitter(characters, facts.signs, facts.segment);
  const align = makeAligner(characters);
  const folds = characters.map("folds");
  const inText = makeFinder(
    added.filter((each) => !each.normalized),
    space,
  );
  const inNormalized = makeFinder(
    added.filter((each) => each.normalized),
    space,
  );
  const unknown = model.type === "WordPiece" ? model.unknown : -1;
  const isWordPiece = model.type === "WordPiece";
  const normalize = isWordPiece ? makeBertNormalizer(model.steps, characters) : makeSteps(model.normalizer, characters);
  const cutUp = isWordPiece ? makeWordPiece(model, characters) : makeBytePairs(model, characters);
  const contents = new Map(added.map((each) => [each.id, each.content]));
  const folded = new Map(added.filter((each) => each.special).map((each) => [each.id, each.folded]));

  return { encode, read, readAll };

  /**
   * The piece of an id, as in the vocabulary; null where there is none.
   * @param {number} id
   * @returns {string | null}
   */
  function pieceOf(id) {
    return contents.get(id) ?? model.pieces[id] ?? null;
  }

  /**
   * The text of an id, or what stands for it: its number, or the bytes of a part of a character.
   * @param {number} id
   */
  function read(id) {
    const piece = pieceOf(id);
    if (piece === null) return { text: String(id), isText: false };
    return contents.has(id) ? { text: piece, isText: true } : readAll([id]);
  }

  /** Several ids, which may be parts of one character. @param {number[]} ids */
  function readAll(ids) {
    const pieces = ids.map((id) => pieceOf(id) ?? "");
    return model.type === "BPE"
      ? readPieces(SPELLINGS[model.spelling], pieces)
      : { text: pieces.join(""), isText: true };
  }

  /**
   * The tokens of a text, or of a pair of texts, with the special tokens around them.
   * @param {string} text
   * @param {string | null} [pair]
   * @returns {Encoded}
   * @throws {TextRefused} Nothing to see in a text, half a character, no token, or more than the model takes.
   */
  function encode(text, pair = null) {
    const texts = pair === null ? [text] : [text, pair];
    const names = pair === null ? ["The text"] : ["The first text", "The second text"];
    const codes = texts.map((each, sequence) => checked(each, names[sequence]));
    const pieces = codes.map(piecesOf);
    const around = pair === null ? template.single : template.pair;
    // Words and spans of a pasted novel are not worked out.
    checkCount(around.length - texts.length, codes, pieces);
    /** @type {Encoded} */
    const encoded = { text, pair, ids: [], types: [], tokens: [], words: [], wordSpans: [] };
    const own = codes.map((each, sequence) => tokensOf(each, pieces[sequence], sequence, names[sequence], encoded));
    for (const [part, type] of around) {
      const tokens = typeof part === "number" ? [templateToken(part)] : own[part === "A" ? 0 : 1];
      for (const token of tokens) {
        encoded.tokens.push(token);
        encoded.ids.push(token.id);
        encoded.types.push(type);
      }
    }
    checkRows(encoded.ids);
    return encoded;
  }

  /**
   * The code points of a text that a tokenizer can read.
   * @param {string} text
   * @param {string} name For messages.
   * @returns {number[]}
   */
  function checked(text, name) {
    const codes = codesOf(text);
    if (isBlank(codes, 0, codes.length, strip)) {
      throw new TextRefused(`${name} is empty: give at least one character that is not white space.`);
    }
    const half = codes.findIndex((code) => code >= 0xd800 && code < 0xe000);
    if (half >= 0) {
      const said = codes[half].toString(16).toUpperCase();
      throw new TextRefused(`${name} holds half a character (U+${said}) at position ${half}: remove it.`);
    }
    return codes;
  }

  /**
   * The tokens of one text; its words are added to `encoded`.
   * @param {number[]} codes
   * @param {Piece[]} pieces
   * @param {number} sequence
   * @param {string} name For messages.
   * @param {Encoded} encoded
   * @returns {LiveToken[]}
   */
  function tokensOf(codes, pieces, sequence, name, encoded) {
    const spans = align(codes, pieces);
    if (!spans.some(([start, end]) => start < end)) {
      throw new TextRefused(
        `${name} leaves no token: the tokenizer drops all of ${shown(textOf(codes))}. Give characters that it knows.`,
      );
    }
    const words = split(codes);
    const wordOf = wordsOf(codes, spans, words, strip);
    const units = unitsOf(codes);
    const offset = encoded.words.length;
    for (const [start, end] of words) {
      encoded.words.push(textOf(codes, start, end));
      encoded.wordSpans.push([units[start], units[end]]);
    }
    return pieces.map((piece, index) => {
      const [start, end] = spans[index];
      const surface = textOf(codes, start, end);
      const special = folded.has(piece.id) && fold(codes, start, end) === folded.get(piece.id);
      // One that takes the blank before it is found with the blank.
      const shownAs = special ? /** @type {string} */ (contents.get(piece.id)) : piece.text;
      const word = wordOf[index];
      const { text, isText } = read(piece.id);
      return {
        id: piece.id,
        text: shownAs,
        surface: surface || readable(text),
        bytes: isText ? null : readable(text.replace(/^ +| +$/g, "")),
        special,
        unknown: piece.id === unknown && !special,
        sequence,
        word: special || word === null ? null : offset + word,
        span: [units[start], units[end]],
      };
    });
  }

  /**
   * What the model's own rules make of a text, without words.
   * @param {number[]} codes
   * @returns {Piece[]}
   */
  function piecesOf(codes) {
    /** @type {Piece[]} */
    const pieces = [];
    for (const outer of inText(aligned(codes))) {
      const inner = outer.id !== undefined ? [outer] : inNormalized(normalize(outer.text));
      for (const { text, id } of inner) {
        if (id === undefined) for (const piece of cutUp(text)) pieces.push(piece);
        else {
          const last = text.to.length - 1;
          pieces.push({ id, text: textOf(text.codes), start: text.from[0], end: text.to[last] });
        }
      }
    }
    return pieces;
  }

  /**
   * @param {number} id
   * @returns {LiveToken}
   */
  function templateToken(id) {
    const text = pieceOf(id) ?? String(id);
    const surface = readable(text);
    return { id, text, surface, bytes: null, special: true, unknown: false, sequence: null, word: null, span: null };
  }

  /** @param {number} added @param {number[][]} codes @param {Piece[][]} pieces */
  function checkCount(added, codes, pieces) {
    const { limit } = facts;
    const count = pieces.reduce((sum, each) => sum + each.length, added);
    if (limit === null || count <= limit) return;
    const { start, end } = pieces[0][limit - added] ?? { start: 0, end: 0 };
    const fit = split(codes[0].slice(0, end)).filter(([, last]) => last <= start).length;
    const told = codes.length === 1 && fit > 1 ? ` The first ${fit} words fit.` : "";
    throw new TextRefused(
      `The text has ${count} tokens with the special ones, but this model takes at most ${limit}: shorten it.${told}`,
    );
  }

  /** @param {number[]} ids */
  function checkRows(ids) {
    const { rows } = facts;
    const beyond = rows === null ? undefined : ids.find((id) => id >= rows);
    if (beyond !== undefined) {
      throw new TextRefused(
        `The text has ${shown(pieceOf(beyond) ?? "")}, an added token with id ${beyond}, but the model's table has ` +
          `${rows} rows: leave it out.`,
      );
    }
  }

  /**
   * Without case.
   * @param {number[]} codes
   * @param {number} start
   * @param {number} end
   */
  function fold(codes, start, end) {
    return textOf(codes.slice(start, end).flatMap((code) => folds.get(code) ?? [code]));
  }
}

/**
 * Where each code point begins in UTF-16 units; last, the length of the text.
 * @param {number[]} codes
 * @returns {number[]}
 */
function unitsOf(codes) {
  const units = [0];
  codes.forEach((code, at) => units.push(units[at] + (code > 0xffff ? 2 : 1)));
  return units;
}

const SHOWN_AT_MOST = 60;

/**
 * A text as it can stand in a message: one line, in quotes, shortened.
 * @param {string} text
 */
function shown(text) {
  const line = [...text.replace(/\s+/g, " ").trim()];
  const short = line.length > SHOWN_AT_MOST ? [...line.slice(0, SHOWN_AT_MOST - 1), "…"] : line;
  const seen = short.map((each) => (/[\p{C}\p{Bidi_Control}]/u.test(each) ? escaped(each) : each));
  return `"${seen.join("")}"`;
}

/** @param {string} character */
function escaped(character) {
  return `U+${/** @type {number} */ (character.codePointAt(0)).toString(16).toUpperCase().padStart(4, "0")}`;
}
