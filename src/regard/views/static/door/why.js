// "Why?": what the word asks for beside what others offer, as bars; the arithmetic; and what wrote the word it looks at.

import { makeButton } from "../base/controls.js";
import { make } from "../base/dom.js";
import { reasonSaid } from "../base/said.js";
import { wordsOf } from "../base/shares.js";
import { largestSize } from "../neuron/figures.js";
import { makeShares } from "../neuron/shares.js";
import { strip } from "../story/figures.js";
import { Followed } from "../story/followed.js";
import { worked } from "../story/scores.js";
import { bold, line, note, waiting, written } from "./attention.js";
import { drawInstead } from "./instead.js";

const ROWS = 4; // words that are drawn beside each other

/** Whether the arithmetic of a share is shown, as a field of the state. */
export const sums = { initial: false, read: () => true, write: (is) => (is ? "" : null) };

export const WHY = {
  name: "why",
  label: "Why?",
  answer(about) {
    const { page, from, head, most, shares } = about;
    const { state } = page;
    const at = new Followed(page);
    const { chosen } = at;
    const found = shares();
    if (!found || !chosen.update(from, { ...head, pin: null })) return waiting();
    if (state.values.key === null) chosen.key = most(found)?.first ?? chosen.key;
    const { text, first, last } = wordsOf(state, head.kind).at(from);
    const to = state.units("key", { kind: head.kind, units: "words" }).at(chosen.key);
    const isOther = !to.special && to.first !== from;
    const begins = " has 100 % to give. It compares itself with every word: the better two fit, the larger the share.";
    const pieces = `The model reads this word in ${last - first + 1} pieces: these are the numbers of the first, “${chosen.nameOf("query", from)}”.`;
    return [
      line(bold(text, "from"), begins),
      makeShares(chosen, (key) => state.set({ key })),
      drawOffers(chosen, ROWS),
      ...partSaid(chosen),
      ...(isOther ? drawInstead(about, to, found[to.first]) : []),
      ...arithmetic(state, at),
      last > first ? note(pieces) : "",
      ...reason(page, at, head),
    ];
  },
};

// What each dimension gives to the score of each key, over what it gives to the mean of those that may be seen: a share
// of the attention knows no more. { keys, asked: q, offered(key), given(key), fit(key) }, arrays over the dimensions.
export function offersOf(chosen) {
  const { steps } = chosen;
  const keys = chosen.keys.flatMap((_, key) => (steps.allowed[key] && !chosen.isSink(key) ? [key] : []));
  const mean = (of) => {
    const sum = new Float64Array(steps.dim);
    for (const key of keys) of(key).forEach((value, d) => (sum[d] += value / keys.length));
    return sum;
  };
  const factors = (side) => (key) => Float64Array.from({ length: steps.dim }, (_, d) => chosen.factors(d, key)[side]);
  const over = (of) => {
    const usual = mean(of);
    return (key) => of(key).map((value, d) => value - usual[d]);
  };
  const given = over((key) => chosen.terms(key).map((term) => term * steps.scale));
  const fit = (key) => given(key).reduce((sum, each) => sum + each, 0);
  return { keys, asked: factors(0)(chosen.query), offered: over(factors(1)), given, fit };
}

// Bars one below the other: above what the word asks for, below what some words offer. Sorted by what they give the chosen
// key, or take from it, and turned so that all that is asked for points up; `more` says how well each fits, and its share.
export function drawOffers(chosen, count, more = true) {
  const { steps, key: to } = chosen;
  const { keys, asked, offered, given, fit } = offersOf(chosen);
  const gives = given(to);
  const sign = fit(to) < 0 ? -1 : 1;
  const order = Array.from(gives, (_, d) => d).sort((a, b) => sign * (gives[b] - gives[a]));
  const turned = (values) => order.map((d) => values[d] * (asked[d] < 0 ? -1 : 1));
  const others = keys.filter((key) => key !== to).sort((a, b) => steps.weights[b] - steps.weights[a]);
  const shown = [to, ...others].slice(0, count);
  const lists = shown.map((key) => turned(offered(key)));
  const [largest, best] = [largestSize(...lists), Math.max(...keys.map((key) => Math.abs(fit(key))))];
  const bars = (values, most) => make("span", { class: "story-bars" }, strip(values, most));
  const name = (side, index, says) => [
    make("span", { class: `offer-name of-${side}` }, make("bdi", { dir: "auto" }, chosen.nameOf(side, index)), says),
  ];
  const fits = (key) => [
    make(
      "span",
      { class: "offer-fit" },
      make("span", { class: fit(key) < 0 ? "negative" : "", "--size": Math.abs(fit(key)) / best }),
    ),
    make("span", { class: "offer-share" }, `${Math.round(100 * steps.weights[key])} %`),
  ];
  const query = turned(asked);
  const heads = more ? ["fit", "share"].map((text) => make("span", { class: `offer-${text} offer-head` }, text)) : [];
  return make(
    "ul",
    { class: more ? "offers" : "offers few", "--part": 1 / steps.dim },
    make("li", { class: "asks" }, ...name("query", chosen.query, " asks"), bars(query, largestSize(query)), ...heads),
    ...shown.map((key, i) =>
      make("li", {}, ...name("key", key, " offers"), bars(lists[i], largest), ...(more ? fits(key) : [])),
    ),
  );
}

// Which of the bars gives the chosen key most, in words.
function partSaid(chosen) {
  const { steps, key } = chosen;
  const { given, fit } = offersOf(chosen);
  const total = fit(key);
  const gives = given(key);
  const best = gives.reduce((one, value, d) => (value * total > gives[one] * total ? d : one), 0);
  const name = bold(chosen.nameOf("key", key), "to");
  const [does, by] = total < 0 ? ["take", "worse"] : ["give", "better"];
  const size = (value) => Math.abs(value).toFixed(2);
  const also = steps.bias || steps.capped ? " What the layer adds for places, or cuts off, comes on top." : "";
  return [
    line(
      `Each bar is one of ${steps.dim} numbers: up, where a word has more than the others of what is asked for; down, where it has less. `,
      `The first ${does}s most, ${size(gives[best])}; all together ${does} ${size(total)}, by which `,
      name,
      ` fits ${by} than the mean.${also}`,
    ),
  ];
}

// The equations, which most people leave folded.
function arithmetic(state, at) {
  const isOpen = state.values.sums;
  const button = makeButton("Work it out", () => state.set({ sums: !isOpen }), { "aria-expanded": String(isOpen) });
  return [make("p", {}, button), ...(isOpen ? [worked(at)] : [])];
}

// The same of the word that comes next: from which words it is read. @param {any} writer
export function whyNext(writer) {
  const { next, place, heads } = writer.readAt();
  return [
    line(
      bold(next, "from"),
      ` is read at the last word, ${place}. There every head looks back; what it takes from a word counts by its length. ` +
        `These are the sums over all ${heads} heads.`,
    ),
    writer.why(),
    note("The last word itself and the first, on which attention rests, are left out. To see one head, click a word."),
  ];
}

// What wrote the word that it looks at, where the page knows it.
function reason({ source }, { chosen }, head) {
  const found = source.why?.(head, chosen.query, chosen.key);
  const names = chosen.keys.map((_, token) => chosen.nameOf("key", token));
  return found ? [line(...written(reasonSaid(found, chosen.key, names)))] : [];
}
