// Which word of which head: what everything on a front door is about.

import { mostOf, sharesOf, wordsOf } from "../base/shares.js";

// words: those that can be followed, each by its first token.
export function atOf(page, kind, words) {
  const { state } = page;
  const isHere = ({ pin }) => pin && (kind !== "cross" || pin.side === "query"); // and not in the other text
  const at = {
    page,
    get head() {
      const { layer, head } = state.values.kind === kind ? state.values : state.startOf(kind);
      return { kind, layer, head };
    },
    get from() {
      const { pin } = state.values.kind === kind && isHere(state.values) ? state.values : state.startOf(kind);
      const first = pin && wordsOf(state, kind).at(pin.index).first;
      return words.includes(first) ? first : (words[0] ?? 0);
    },
    shares: () => sharesOf(page, at.head, at.from),
    most: (shares) => mostOf(state, kind, at.from, shares),
  };
  return at;
}
