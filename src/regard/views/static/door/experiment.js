// The front door of two sentences that differ in a word or a few: what a word that they share looks at in each, and where it
// moves. source.experiment is { texts, both }: both() is null while a model still reads, or { error }.

import { Both, bothOf } from "../base/both.js";
import { makeButton, makeChoice } from "../base/controls.js";
import { make } from "../base/dom.js";
import { whereIsFocus } from "../base/focus.js";
import { arcOf, bothMovedSaid, bothSaid, chosenOf, turnsSaid, wholePercent } from "../base/said.js";
import { partsOf, placeOf } from "../base/title.js";
import { atOf } from "./at.js";
import { bold, line, note as makeNote, waiting, written } from "./attention.js";
import { drawNeighbours } from "./neighbours.js";
import { asksOf, makeQuestions } from "./questions.js";
import { differ, readyOf } from "./ready.js";
import { marksOf, onArrows, onWords, Sentence, viewOf } from "./sentence.js";
import { makeShare } from "./share.js";
import { about, LIST, sizeOf } from "./view.js";
import { makeWalk, walk } from "./walk.js";

const WIDE = 560; // pixels, of the drawing of neighbours
const MOST_HEADS = 8; // that are offered

const HELP = [
  ["A word that both sentences have", "click it to see what it looks at in each; point at another to see its share"],
  ["← →, Home, End in the first sentence", "another such word"],
  ["What moved? And the other heads?", "unfold below, on this word’s own numbers"],
  ["Space", "where it is offered, a walk of sixty seconds: space goes on, ← back, Escape leaves"],
  ["All views", "every head, every number; a click on “regard” leads back"],
];

const MOVES = {
  name: "moves",
  label: "What moved?",
  answer: ({ both, pair, width }) => [
    line("From the one to the other, ", ...written(bothMovedSaid(both, pair))),
    drawNeighbours(both, pair, width),
    makeNote(
      `The higher a word, the larger its cosine to ${pair[0].text}, by contextual embeddings. Dotted: two different words, on average.`,
    ),
  ],
};

const OTHERS = {
  name: "others",
  label: "And the other heads?",
  answer({ both, pair, state }) {
    const all = both.heads.map((head) => ({ ...head, rows: both.rows(pair, head) }));
    if (all.some(({ rows }) => rows.includes(null))) return waiting();
    const arcs = all.map((each) => ({ ...each, ...arcOf(both, pair, each.rows) })).filter(({ does }) => does);
    const others = arcs.filter(({ does }) => does !== "stays");
    others.sort((one, two) => Math.max(...two.shares) - Math.max(...one.shares));
    const end = (word, share) => (word ? `${word.text} ${wholePercent(share)}` : "no word");
    const card = ({ layer, head, words, shares }) => {
      const label = `Head ${layer}.${head}: ${end(words[0], shares[0])} → ${end(words[1], shares[1])}`;
      const isOn = layer === state.values.layer && head === state.values.head;
      const looks = { class: "door-card", "aria-current": isOn ? "true" : null };
      const button = makeButton(label, () => state.set({ layer, head }), looks);
      return make("li", {}, button);
    };
    const none = (count) => count || "none";
    const told = [` looks at another word in ${none(arcs.length)} of ${all.length} heads`];
    if (arcs.length > 0) told.push(`: the arc stays in ${none(arcs.length - others.length)} of these`);
    if (others.length > MOST_HEADS) told.push(`, and below are ${MOST_HEADS} of the others`);
    const cards = others.slice(0, MOST_HEADS).map(card);
    return [line(bold(pair[0].text, "from"), ...told, "."), make("ul", { class: "door-cards" }, ...cards)];
  },
};

const QUESTIONS = [MOVES, OTHERS];

function open(page) {
  const { source, state } = page;
  const { texts, both: read } = source.experiment;
  const ready = readyOf(texts);
  const size = sizeOf(1.5 * Math.max(...texts.map(({ length }) => length))); // two of them, if it can be in a line each
  const said = make("p", { class: "door-said", role: "status" });
  const note = makeNote("");
  const element = make("div", { class: "door experiment", "data-size": size });
  let which = "0"; // the sentence of which the reader guesses
  let sentences = null;

  // What everything below is about; null while it is not there.
  function now() {
    const both = read();
    if (!(both instanceof Both)) return null;
    const pair = both.pairAt((state.values.pin ?? { index: source.facts.start.pin }).index) ?? both.pairs[0];
    const width = Math.min(WIDE, element.clientWidth - 40);
    return { state, both, pair, width, rows: both.rows(pair, state.values) };
  }
  const questions = makeQuestions(state, QUESTIONS, ({ answer }) => {
    const at = now();
    return at ? answer(at) : waiting();
  });

  const shown = () => sentences;
  const share = makeShare(page, said, shown, () => state.values);

  // Of the first sentence alone, where that is what the page is of: it is walked through.
  const walked = source.compares ? null : makeWalked(page, texts[0]);
  const more = make("details", { class: "door-more" }); // with what it has one goes on to

  function makeSentences(both) {
    const choose = (pair) => pair && state.set({ pin: { side: "query", index: both.tokenOf(pair) }, hover: null });
    sentences = both.pages.map((each, side) => {
      const parts = partsOf(each.source, each.state, { text: texts[side], stack: both.kind, sequence: 0 });
      const sentence = new Sentence([parts], side === 0 ? LIST : {}, marksOf(each.state.units("key").all));
      for (const { first } of both.changed(side)) sentence.words.get(first)?.classList.add("changed");
      const chooseShown = (first) => choose(both.pairs.find((pair) => pair[side].first === first));
      onWords(sentence.element, () => sentence, chooseShown, state.gone);
      return sentence;
    });
    onArrows(sentences[0].element, both.pairs, () => now().pair, choose);
  }

  // Before the arcs, the reader's own guess.
  function guessing() {
    const { before, inner, behind } = differ(texts[0], texts[1]);
    const choice = makeChoice({
      name: "which",
      legend: "The word that changes",
      options: inner.map((text, at) => [String(at), text]),
      value: () => which,
      choose: (at) => (which = at),
    });
    const { from, to } = placeOf(before, ready.about);
    const word = make("span", { class: "door-word from" }, before.slice(from, to));
    const ask = (text, guess) => makeButton(text, () => state.set({ guess: guess() }));
    const guesses = ready.among.map((text, at) => ask(text, () => `${which}.${at}`));
    guesses.push(ask("Show me", () => "shown"));
    const asked = ["What does ", bold(ready.about, "from"), " look at? Your guess:"];
    return [
      make("p", { class: "door-sentence" }, before.slice(0, from), word, before.slice(to), choice.element, behind),
      make("p", { class: "door-said" }, ...asked),
      make("p", { class: "door-guess" }, ...guesses),
    ];
  }

  function draw() {
    const focus = whereIsFocus(element);
    const { guess, walk } = state.values;
    const own = source.makeReady?.() ?? "";
    const isWalk = walked !== null && walk !== null;
    if (isWalk) element.replaceChildren(walked.sentence.element);
    else if (ready?.among && guess === null) element.replaceChildren(...guessing(), own, walked?.invitation ?? "");
    else compare(own);
    if (walked) element.append(walked.element);
    walked?.draw();
    focus();
  }

  function compare(own) {
    const at = now();
    if (at && !sentences) makeSentences(at.both);
    const lines = sentences ?? texts.map((text) => new Sentence([[text]]));
    const passed = sentences ? [share, walked?.invitation ?? ""] : [];
    // Behind a guess the sentences that are ready are folded away with all else.
    more.replaceChildren(make("summary", {}, "More"), ...(ready?.among ? [own] : []), ...passed);
    more.hidden = more.children.length === 1;
    const above = [...lines.map((each) => each.element), ready?.among ? "" : own, said, note];
    element.replaceChildren(...above, ...questions.map((each) => each.element), more);
    for (const { update } of questions) update();
    if (!at || at.rows.includes(null)) return said.replaceChildren(read()?.error ?? waiting()[0].textContent);
    const { both, pair, rows } = at;
    sentences.forEach((each, side) => each.show(pair[side].first, rows[side].shares));
    settle();
    const isAbout = ready?.among && pair[0].text === ready.about;
    said.replaceChildren(...written(bothSaid(both, pair, rows, isAbout ? turnsSaid(both, pair, ready.among) : "")));
    note.replaceChildren(isAbout ? guessSaid(rows) : "Click a word that both have.");
  }

  function guessSaid(rows) {
    const [side, at] = state.values.guess.split(".");
    if (at === undefined) return "";
    const mine = ready.among[at];
    return chosenOf(rows[side], ready.among) === mine ? "As you said." : `You said ${mine}.`;
  }

  function settle() {
    if (Number(size) < 2) for (const each of sentences ?? []) each.settle();
  }
  return viewOf(state, element, draw, settle);
}

// A walk through one sentence of a page: { sentence, element, invitation, draw() }.
function makeWalked(page, text) {
  const { source, state } = page;
  const [kind] = source.kinds;
  const parts = partsOf(source, state, { text, stack: kind, sequence: 0 });
  const sentence = new Sentence([parts], {}, marksOf(state.units("key", { kind, units: "words" }).all));
  const at = atOf(page, kind, [...sentence.words.keys()]);
  const walking = makeWalk(at);
  function draw() {
    if (state.values.walk !== null) {
      sentence.show(at.from, at.shares());
      sentence.settle();
    }
    walking.draw();
  }
  return { ...walking, sentence, draw };
}

// What the reader has guessed, of which of the sentences; "shown" without a guess.
const guess = {
  initial: null,
  read: (text) => (/^([01]\.[01]|shown)$/.test(text) ? text : undefined),
  write: (value) => value,
};

export const VIEW = {
  name: "door",
  label: "Two sentences",
  home: true,
  fields: { asks: asksOf(QUESTIONS), guess, walk },
  about,
  help: HELP,
  fits: (source) => Boolean(source.experiment),
  open,
};

/** Of a file of two texts that share words. @param {any} source */
export function findBoth(source) {
  const both = bothOf(source);
  if (!both) return;
  const texts = source.facts.compared.names;
  source.experiment = { texts, both: () => both };
  source.facts.start = both.start(readyOf(texts));
}
