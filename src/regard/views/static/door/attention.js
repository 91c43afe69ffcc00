// What the door says of a head: which sentence the shares of a word make.

import { make, readable } from "../base/dom.js";
import { allHeads } from "../base/held.js";
import { mostOf, wordsOf } from "../base/shares.js";

const FEW = 0.05; // a share that is worth a sentence
const HALF = 0.5;

export const wholePercent = (share) => (share < 0.01 ? "less than 1\u00a0%" : `${Math.round(100 * share)}\u00a0%`);

export const bold = (text, side) => make("b", { class: `door-${side}` }, make("bdi", { dir: "auto" }, readable(text)));

// "In one of 72 heads, Write gives 86 % of its attention to poem."
export function remark({ source, state }, { kind }, from, shares) {
  const heads = allHeads(source, kind).length;
  const units = wordsOf(state, kind);
  const word = bold(units.at(from).text, "from");
  const inOne = heads === 1 ? "In its one head, " : `In one of ${heads} heads, `;
  const to = mostOf(state, kind, from, shares);
  if (to && shares[to.first] >= FEW) {
    const share = ` gives ${wholePercent(shares[to.first])} of its attention to `;
    return [inOne, word, share, to.text === units.at(from).text ? "the other " : "", bold(to.text, "to"), "."];
  }
  if (shares[from] > HALF) return [inOne, word, ` keeps ${wholePercent(shares[from])} of its attention for itself.`];
  const marks = units.all.reduce((sum, { special, first }) => sum + (special ? shares[first] : 0), 0);
  if (marks > HALF) return [inOne, word, ` looks at no word: ${wholePercent(marks)} of its attention rests on marks.`];
  return [inOne, word, " looks at no word in particular."];
}
