// The three questions below the sentence, and what unfolds below each; see view.js for `at`.

import { makeButton, makeChoice, makeSelect } from "../base/controls.js";
import { make } from "../base/dom.js";
import { allHeads, heldOf } from "../base/held.js";
import { nameOf, saidOf } from "../base/names.js";
import { isRead, wordsOf } from "../base/shares.js";
import { makeShares } from "../neuron/shares.js";
import { Followed } from "../story/followed.js";
import { worked } from "../story/scores.js";
import { bold, wholePercent } from "./attention.js";
import { Sentence } from "./sentence.js";

const line = (...parts) => make("p", {}, ...parts);
const note = (text) => make("p", { class: "door-note" }, text);
const waiting = () => [note("The numbers are on their way.")];

// --- Why: the shares of the word, and the arithmetic of one of them

const WHY = {
  name: "why",
  label: "Why?",
  answer({ page, from, head, most, shares }) {
    const { state } = page;
    const at = new Followed(page);
    const { chosen } = at;
    const found = shares();
    if (!found || !chosen.update(from)) return waiting();
    if (state.values.key === null) chosen.key = most(found)?.first ?? chosen.key;
    const { text, first, last } = wordsOf(state, head.kind).at(from);
    const begins = " has 100 % to give. It compares itself with every word: the better two fit, the larger the share.";
    const pieces = `The model reads this word in ${last - first + 1} pieces: these are the numbers of the first, “${chosen.nameOf("query", from)}”.`;
    return [
      line(bold(text, "from"), begins),
      makeShares(chosen, (key) => state.set({ key })),
      worked(at),
      last > first ? note(pieces) : "",
    ];
  },
};

// --- What if not: the words without the head, or where none of them may look at the word that gets most

const DEEP = 0.1; // what a word loses of its meaning that stands on the lower line
const HARDLY = 0.98; // a word that keeps more has hardly moved
const NOTE =
  " A word sinks as far as its contextual embedding has moved: on the lower line it would keep 0.90 (cosine) of it.";

// What can be left out, and how that is said; all: how many heads there are.
const LEFT_OUT = {
  head: {
    said: () => ["Without this head, "],
    hardly: (all) => `: the other ${all - 1} heads bring nearly all of it.`,
    note: "The model ran with this head’s output at 0: where a head looks is not yet what the model needs.",
  },
  word: {
    said: (all, to) => [
      "If no other word may look at ",
      bold(to.text, "to"),
      all > 1 ? `, in any of the ${all} heads, ` : ", ",
    ],
    hardly: () => ": it hardly needs what it would find there.",
    note: "The model ran with this word hidden from all others. It keeps its place, and still looks at them.",
  },
};

const WITHOUT = {
  name: "without",
  label: "What if not?",
  answer({ page, head, from, lines, shares, most }) {
    const { source, state } = page;
    const found = shares();
    const to = found && most(found);
    const { lost } = state.values;
    const what = to && lost === "word" ? { unseen: to.first } : { layer: head.layer, head: head.head };
    const word = to ? [["word", make("bdi", { dir: "auto" }, `without “${to.text}”`)]] : [];
    const pick = makeChoice({
      name: "lost",
      legend: "What is left out",
      options: [["head", "without this head"], ...word],
      value: () => (to ? lost : "head"),
      choose: (name) => state.set({ lost: name }),
    });
    return [pick.element, ...effectOf(source, state, { head, from, lines, what, to })];
  },
};

function effectOf(source, state, { head, from, lines, what, to }) {
  const found = source.check?.(head.kind, what);
  if (found === undefined) return [line(elsewhere(source, state, head.kind))];
  if (found === null) return waiting();
  if (found.error) return [line(found.error)];
  const isWord = what.unseen !== undefined;
  const { said, hardly, note: ran } = LEFT_OUT[isWord ? "word" : "head"];
  const units = wordsOf(state, head.kind);
  const kept = (first) => {
    const of = found.cosine.slice(first, units.at(first).last + 1);
    return of.reduce((sum, each) => sum + each, 0) / of.length;
  };
  const sentence = new Sentence(lines);
  sentence.show(from, null);
  const isHidden = (first) => isWord && first === to.first;
  for (const [first, word] of sentence.words) {
    word.style.setProperty("--lost", isHidden(first) ? "0" : Math.min(1, (1 - kept(first)) / DEEP).toFixed(3));
    word.classList.toggle("hidden-word", isHidden(first));
  }
  const isCounted = ([first, { textContent }]) => isRead(textContent) && !isHidden(first);
  const read = [...sentence.words].filter(isCounted).map(([first]) => first);
  const least = read.reduce((one, other) => (kept(other) < kept(one) ? other : one), from);
  const all = allHeads(source, head.kind).length;
  const also = [", and ", bold(units.at(least).text, "to"), ` ${kept(least).toFixed(2)}, the least of all words.`];
  const ends = kept(least) > HARDLY ? [hardly(all)] : least === from ? [": no word moves more."] : also;
  return [
    line(
      ...said(all, to),
      bold(units.at(from).text, "from"),
      ` keeps ${kept(from).toFixed(2)} of its meaning`,
      ...ends,
    ),
    make("div", { class: "door-without", "aria-hidden": "true" }, sentence.element),
    note(ran + NOTE),
  ];
}

// Of what this page does not know.
function elsewhere({ facts }, state, kind) {
  const known = (facts.without ?? []).map(({ layer, head, unseen }) =>
    unseen === undefined ? `layer ${layer}, head ${head}` : `“${wordsOf(state, kind).at(unseen).text}”`,
  );
  const here = known.length > 0 ? `This page knows it of ${known.join(", and of ")}. ` : "";
  return `${here}To leave out any head or word, open the live page, which has the model in it: regard look --live.`;
}

// --- And the other heads: the same word in each head of the layer

const OTHERS = {
  name: "others",
  label: "And the other heads?",
  answer({ page, head: { kind, layer, head }, from, lines, isLong, shares, most }) {
    const { source, state } = page;
    const named = (of) => nameOf(source, { kind, effect: 0 }, { layer, head: of });
    const heads = heldOf(source, kind, layer).sort((a, b) => Number(!named(a)) - Number(!named(b)) || a - b);
    const pick = makeSelect("Layer", (to) => state.set({ layer: Number(to), key: null }), "layer");
    pick.update(kind, () => source.layers(kind).map((each) => [each, each]), layer);
    const card = (of) => {
      const found = shares({ kind, layer, head: of });
      const sentence = new Sentence(lines);
      sentence.show(from, found);
      const to = found && most(found);
      const looks = to ? [bold(to.text, "to"), ` ${wholePercent(found[to.first])}`] : [];
      const name = make("span", {}, `Head ${of}`, named(of) ? ` ${saidOf(named(of).name)}` : "");
      const target = make("span", {}, make("span", { class: "sr-only" }, "most to "), ...looks);
      const parts = [
        make("span", { class: "door-card-name" }, name, target),
        isLong ? "" : make("span", { "aria-hidden": "true" }, sentence.element),
      ];
      const looked = { class: "door-card", "aria-current": of === head ? "true" : null };
      return make(
        "li",
        {},
        makeButton(parts, () => state.set({ head: of, key: null }), looked),
      );
    };
    const word = bold(wordsOf(state, kind).at(from).text, "from");
    const choose = ". Each has learned to look at something else: choose one.";
    return [
      line(word, ` in the ${heads.length} heads of `, pick.element, choose),
      make("ul", { class: "door-cards" }, ...heads.map(card)),
    ];
  },
};

export const QUESTIONS = [WHY, WITHOUT, OTHERS];
