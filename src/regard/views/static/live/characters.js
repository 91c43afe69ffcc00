/**
 * What each code point is taken for. Python wrote it down, as its own libraries say it: what a browser knows of
 * Unicode is never asked, so that every browser gives Python's tokens.
 *
 * @typedef {object} CharacterFacts
 * @property {Record<string, number>[]} classes The sets of properties that there are; what is not named is 0.
 * @property {number[]} runs In turn how many code points, from 0 on, and of which class.
 * @property {number[][]} folds A code point, and what it becomes when case is folded.
 * @property {number[][]} [decomposed] The same, when letters and accents are taken apart.
 * @property {number[][]} [composed] A code point, and the two of which it is made.
 * @property {number[][]} [lowered] The same, in lower case.
 */

/**
 * @callback Property
 * @param {number} code A code point.
 * @returns {number} The value of a property; 0 for "no".
 */

/** @typedef {ReturnType<typeof makeCharacters>} Characters */

/** A text that cannot be read, as a rule by Python neither; the message is for people. */
export class TextRefused extends Error {}

/** @param {CharacterFacts} facts */
export function makeCharacters(facts) {
  const classOf = new Uint16Array(0x110000);
  for (let run = 0, start = 0; run < facts.runs.length; run += 2) {
    const end = start + facts.runs[run];
    classOf.fill(facts.runs[run + 1], start, end);
    start = end;
  }
  return {
    /**
     * @param {string} name
     * @returns {Property}
     */
    property(name) {
      const values = facts.classes.map((each) => each[name] ?? 0);
      return (code) => values[classOf[code]];
    },

    /**
     * What some code points become; the others stay what they are.
     * @param {"folds" | "decomposed" | "composed" | "lowered"} name
     * @returns {Map<number, number[]>}
     */
    map(name) {
      return new Map((facts[name] ?? []).map(([code, ...many]) => [code, many]));
    },
  };
}

/**
 * The code points of a text.
 * @param {string} text
 * @returns {number[]}
 */
export function codesOf(text) {
  const codes = [];
  for (const character of text) codes.push(/** @type {number} */ (character.codePointAt(0)));
  return codes;
}

/**
 * The text of code points from start to end.
 * @param {number[]} codes
 * @param {number} [start]
 * @param {number} [end]
 */
export function textOf(codes, start = 0, end = codes.length) {
  let text = "";
  for (let at = start; at < end; at++) text += String.fromCodePoint(codes[at]);
  return text;
}
