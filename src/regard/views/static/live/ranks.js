// The words of a text, for the link that a page opens on.

import { rankOf } from "../base/ranks.js";
import { Units } from "../base/units.js";
import READY from "../ready.json";

/**
 * The word of each token, how much each word says, and of a ready sentence the words that it is about.
 * @param {import("./tokenizer.js").Encoded} encoded
 */
export function ranked({ tokens, words, text, pair }) {
  const { all, of } = new Units(tokens, words, true);
  const { about = null, among = [] } = (pair === null && READY.find((each) => each.text === text)) || {};
  const placesOf = (/** @type {string[]} */ some) => all.flatMap((unit, at) => (some.includes(unit.text) ? [at] : []));
  return { units: [...of], ranks: all.map(rankOf), about: placesOf([about]), among: placesOf(among) };
}
