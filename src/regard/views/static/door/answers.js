// The three questions below the sentence, and what unfolds below each; see view.js for `at`.

import { makeSelect } from "../base/controls.js";
import { make } from "../base/dom.js";
import { heldOf } from "../base/held.js";
import { nameOf, saidOf } from "../base/names.js";
import { isRead, wordsOf } from "../base/shares.js";
import { makeShares } from "../neuron/shares.js";
import { Followed } from "../story/followed.js";
import { worked } from "../story/scores.js";
import { bold, headsOf, wholePercent } from "./attention.js";
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

// --- What if not: the words without the head

const DEEP = 0.1; // what a word loses of its meaning that stands on the lower line
const HARDLY = 0.98; // a word that keeps more has hardly moved

const WITHOUT = {
  name: "without",
  label: "What if not?",
  answer({ page, head, from, lines }) {
    const { source, state } = page;
    const found = source.check?.(head.kind, head.layer, head.head);
    if (found === undefined) return [line(elsewhere(source))];
    if (found === null) return waiting();
    if (found.error) return [line(found.error)];
    const units = wordsOf(state, head.kind);
    const kept = (first) => {
      const of = found.cosine.slice(first, units.at(first).last + 1);
      return of.reduce((sum, each) => sum + each, 0) / of.length;
    };
    const sentence = new Sentence(lines);
    sentence.show(from, null);
    for (const [first, word] of sentence.words)
      word.style.setProperty("--lost", Math.min(1, (1 - kept(first)) / DEEP).toFixed(3));
    const read = [...sentence.words].filter(([, { textContent }]) => isRead(textContent)).map(([first]) => first);
    const least = read.reduce((one, other) => (kept(other) < kept(one) ? other : one), from);
    const hardly = kept(least) > HARDLY;
    const also = [", and ", bold(units.at(least).text, "to"), ` ${kept(least).toFixed(2)}, the least of all words`];
    const told = [
      ` keeps ${kept(from).toFixed(2)} of its meaning`,
      ...(hardly ? [] : least !== from ? also : [": no word moves more"]),
      hardly ? `: the other ${headsOf(source, head.kind) - 1} heads bring nearly all of it.` : ".",
    ];
    return [
      line("Without this head, ", bold(units.at(from).text, "from"), ...told),
      make("div", { class: "door-without", "aria-hidden": "true" }, sentence.element),
      note(
        "The model ran with this head's output at 0. A word sinks as far as its contextual embedding has moved: on the lower line it would keep 0.90 (cosine). So where a head looks is not yet what the model needs.",
      ),
    ];
  },
};

// Of a head without this number in the page.
function elsewhere({ facts }) {
  const [known] = facts.without ?? [];
  const here = known ? `This page knows it of layer ${known.layer}, head ${known.head}. ` : "";
  return `${here}To switch off any head, open the live page, which has the model in it: regard look --live.`;
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
      const button = make(
        "button",
        { type: "button", class: "door-card", "aria-current": of === head ? "true" : null },
        make("span", { class: "door-card-name" }, name, target),
        isLong ? "" : make("span", { "aria-hidden": "true" }, sentence.element),
      );
      button.addEventListener("click", () => state.set({ head: of, key: null }));
      return make("li", {}, button);
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
