/**
 * Characters that know from where in the original text they come: normalisers change, drop and add some.
 *
 * @typedef {object} Aligned
 * @property {number[]} codes The code points.
 * @property {number[]} from Of each, where what it stands for begins, in code points of the original.
 * @property {number[]} to Of each, where that ends.
 */

/**
 * A token, before it is known in which word it stands.
 * @typedef {object} Piece
 * @property {number} id
 * @property {string} text As in the vocabulary.
 * @property {number} start In code points of the original.
 * @property {number} end
 */

/**
 * The text as it was typed.
 * @param {number[]} codes
 * @returns {Aligned}
 */
export function aligned(codes) {
  return { codes, from: codes.map((_, at) => at), to: codes.map((_, at) => at + 1) };
}

/**
 * Some characters in a row.
 * @param {Aligned} text
 * @param {number} start
 * @param {number} end
 * @returns {Aligned}
 */
export function cut(text, start, end) {
  return { codes: text.codes.slice(start, end), from: text.from.slice(start, end), to: text.to.slice(start, end) };
}

/**
 * Each character becomes none, one or many, which all stand for what it stood for.
 * @param {Aligned} text
 * @param {(code: number) => number[] | undefined} becomes Undefined: it stays.
 * @returns {Aligned}
 */
export function replaced(text, becomes) {
  /** @type {Aligned} */
  const made = { codes: [], from: [], to: [] };
  text.codes.forEach((code, at) => {
    const many = becomes(code);
    if (many === undefined) put(made, code, text, at);
    else for (const one of many) put(made, one, text, at);
  });
  return made;
}

/**
 * Adds a character that stands for what another one stood for.
 * @param {Aligned} made
 * @param {number} code
 * @param {Aligned} text
 * @param {number} at
 */
export function put(made, code, text, at) {
  made.codes.push(code);
  made.from.push(text.from[at]);
  made.to.push(text.to[at]);
}
