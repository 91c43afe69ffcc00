// The shares of one word's attention, word by word: of which word it is most, and whether that is so of most words.

import { readable } from "./dom.js";
import { meanOf, sumUnits } from "./units.js";

export const wordsOf = (state, kind) => state.units("query", { kind, units: "words" });

// The shares of a word, [first token of each word]; the mean over its pieces. null while they are not there.
export function sharesOf({ source, state }, { kind, layer, head }, from) {
  const mean = meanOf([wordsOf(state, kind).at(from)], (token) => source.row(kind, layer, head, token));
  return mean && sumUnits(mean, state.units("key", { kind, units: "words" }));
}

export const isRead = (text) => /[\p{L}\p{N}]/u.test(text);

// The word that gets most: no mark, not the word itself, and no punctuation where a word gets anything; null for none.
export function mostOf(state, kind, from, shares) {
  const others = wordsOf(state, kind).all.filter(({ special, sink, first }) => !special && !sink && first !== from);
  const best = (some) =>
    some.reduce((most, each) => (most === null || shares[each.first] > shares[most.first] ? each : most), null);
  const word = best(others.filter(({ text }) => isRead(text)));
  return word && shares[word.first] > 0 ? word : best(others);
}

const MANY = 64; // words

// Where most words look most at the same one, that is said: it is no link of any one of them. "" otherwise.
export function sharedBy(page, head, to) {
  const words = wordsOf(page.state, head.kind).all.filter(({ special, text }) => !special && isRead(text));
  if (!to || words.length > MANY) return "";
  const count = words.filter(({ first }) => {
    const shares = sharesOf(page, head, first);
    return shares && mostOf(page.state, head.kind, first, shares)?.first === to.first;
  }).length;
  return 2 * count > words.length ? `${count} of ${words.length} words look most at ${readable(to.text)} here.` : "";
}
