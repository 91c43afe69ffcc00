// How much a word of a text says, for the links that a page opens on. Python's form is in views/_start.py.

import LISTS from "../function_words.json" with { type: "json" };

export const RANKS = { whole: 4, pieces: 3, function: 2, mark: 1, special: 0 };

const FUNCTION_WORDS = new Set(Object.values(LISTS).flatMap((list) => list.split(" ")));

/** @param {import("./units.js").Units["all"][number]} unit */
export function rankOf({ text, special, unknown, first, last }) {
  if (special) return RANKS.special;
  if (unknown || !/[\p{L}\p{N}]/u.test(text)) return RANKS.mark;
  if (FUNCTION_WORDS.has(text.trim().toLowerCase())) return RANKS.function;
  return first === last ? RANKS.whole : RANKS.pieces;
}
