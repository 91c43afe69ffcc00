// The shares of one word's attention, word by word, and which word gets most. What is said of them is in said.js.

import { meanOf, sumUnits } from "./units.js";

export const wordsOf = (state, kind) => state.units("query", { kind, units: "words" });

// The shares of a word, [first token of each word]; the mean over its pieces. null while they are not there.
export function sharesOf({ source, state }, { kind, layer, head }, from, of = (row) => row) {
  const read = (token) => {
    const row = source.row(kind, layer, head, token);
    return row && of(row);
  };
  const mean = meanOf([wordsOf(state, kind).at(from)], read);
  return mean && sumUnits(mean, state.units("key", { kind, units: "words" }));
}

// What each would get if the word gave all that it may see the same: what it may not see gets exactly 0.
export const evensOf = (page, head, from) =>
  sharesOf(page, head, from, (row) => {
    const count = row.reduce((sum, weight) => sum + Number(weight > 0), 0);
    return row.map((weight) => (weight > 0 ? 1 / count : 0));
  });

export const isRead = (text) => /[\p{L}\p{N}]/u.test(text);

// The word that gets most: no mark, not the word itself, and no punctuation where a word gets anything; null for none.
export function mostOf(state, kind, from, shares) {
  const isOther = ({ special, sink, first }) => !special && !sink && (kind === "cross" || first !== from);
  const others = state.units("key", { kind, units: "words" }).all.filter(isOther);
  const best = (some) =>
    some.reduce((most, each) => (most === null || shares[each.first] > shares[most.first] ? each : most), null);
  const word = best(others.filter(({ text }) => isRead(text)));
  return word && shares[word.first] > 0 ? word : best(others);
}
