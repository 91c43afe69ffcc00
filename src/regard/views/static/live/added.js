/** Added tokens that a text spells out ("[MASK]"): they are found before anything is cut or merged. */
import { cut } from "./aligned.js";
import { codesOf } from "./characters.js";

/** @import { Aligned } from "./aligned.js" */

/**
 * @typedef {object} AddedFacts
 * @property {number} id
 * @property {string} content As in the vocabulary.
 * @property {string} find What is looked for in a text.
 * @property {string} folded Its content without case.
 * @property {boolean} special
 * @property {boolean} normalized Whether it is looked for after the normaliser.
 * @property {boolean} lstrip Whether it takes the white space before it.
 * @property {boolean} rstrip Whether it takes the white space behind it.
 */

/**
 * A part of a text, which is an added token where it has an id.
 * @typedef {object} Part
 * @property {Aligned} text
 * @property {number | undefined} id
 */

/**
 * @param {AddedFacts[]} tokens
 * @param {(code: number) => number} space Whether a character is white space.
 * @returns {(text: Aligned) => Part[]}
 */
export function makeFinder(tokens, space) {
  /** @type {Map<number, { codes: number[], token: AddedFacts }[]>} */
  const byFirst = new Map();
  for (const token of tokens) {
    const codes = codesOf(token.find);
    byFirst.set(codes[0], [...(byFirst.get(codes[0]) ?? []), { codes, token }]);
  }
  for (const each of byFirst.values()) each.sort((a, b) => b.codes.length - a.codes.length);

  return (text) => {
    const { codes } = text;
    /** @type {Part[]} */
    const parts = [];
    let done = 0;
    for (let at = 0; at < codes.length; ) {
      const found = byFirst.get(codes[at])?.find((each) => each.codes.every((code, i) => codes[at + i] === code));
      if (found === undefined) {
        at++;
        continue;
      }
      const { token } = found;
      let start = at;
      let end = at + found.codes.length;
      at = end;
      while (token.lstrip && start > done && space(codes[start - 1])) start--;
      while (token.rstrip && end < codes.length && space(codes[end])) end++;
      if (done < start) parts.push({ text: cut(text, done, start), id: undefined });
      parts.push({ text: cut(text, start, end), id: token.id });
      done = end;
    }
    if (done < codes.length) parts.push({ text: cut(text, done, codes.length), id: undefined });
    return parts;
  };
}
