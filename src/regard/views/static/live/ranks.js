// How much each word of a text says, for the link that a page opens on. Python's form is in views/_start.py.

import { Units } from "../base/units.js";
import LISTS from "../function_words.json";
import READY from "../ready.json";
import { RANKS } from "./opening.js";

const FUNCTION_WORDS = new Set(Object.values(LISTS).flatMap((list) => list.split(" ")));

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

/** @param {Units["all"][number]} unit */
function rankOf({ text, special, unknown, first, last }) {
  if (special) return RANKS.special;
  if (unknown || !/[\p{L}\p{N}]/u.test(text)) return RANKS.mark;
  if (FUNCTION_WORDS.has(text.trim().toLowerCase())) return RANKS.function;
  return first === last ? RANKS.whole : RANKS.pieces;
}
