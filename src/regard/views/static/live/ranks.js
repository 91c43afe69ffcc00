// How much each word of a text says, for the link that a page opens on. Python's form is in views/_start.py.

import { Units } from "../base/units.js";
import LISTS from "../function_words.json";
import { RANKS } from "./opening.js";

const FUNCTION_WORDS = new Set(Object.values(LISTS).flatMap((list) => list.split(" ")));

/**
 * The word of each token, and how much each word says.
 * @param {import("./tokenizer.js").Encoded} encoded
 */
export function ranked({ tokens, words }) {
  const { all, of } = new Units(tokens, words, true);
  return { units: [...of], ranks: all.map(rankOf) };
}

/** @param {Units["all"][number]} unit */
function rankOf({ text, special, unknown, first, last }) {
  if (special) return RANKS.special;
  if (unknown || !/[\p{L}\p{N}]/u.test(text)) return RANKS.mark;
  if (FUNCTION_WORDS.has(text.trim().toLowerCase())) return RANKS.function;
  return first === last ? RANKS.whole : RANKS.pieces;
}
