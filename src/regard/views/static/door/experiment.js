// The front door of two sentences that differ in a word or a few: what a word that they share looks at in each, and where it
// moves. source.experiment is { texts, both }: both() is null while a model still reads, or { error }.

import { Both, bothOf } from "../base/both.js";
import { makeButton, makeChoice } from "../base/controls.js";
import { make } from "../base/dom.js";
import { whereIsFocus } from "../base/focus.js";
import { allHeads } from "../base/held.js";
import { ACROSS, onKeys, placeIn } from "../base/keys.js";
import { arcOf, bothSaid, chosenOf, movedSaid, rowOf, turnsSaid, wholePercent } from "../base/said.js";
import { isRead } from "../base/shares.js";
import { partsOf, placeOf } from "../base/title.js";
import { line, note as makeNote, written } from "./attention.js";
import { drawNeighbours } from "./neighbours.js";
import { asksOf, makeQuestions } from "./questions.js";
import { readyOf } from "./ready.js";
import { marksOf, Sentence } from "./sentence.js";
import { makeShare } from "./share.js";
import { about, sizeOf } from "./view.js";

const WIDE = 560; // pixels, of the drawing of neighbours
const MOST_HEADS = 8; // that are offered

const HELP = [
  ["A word that both sentences have", "click it to see what it looks at in each; point at another to see its share"],
  ["← →, Home, End in the first sentence", "another such word"],
  ["What moved? And the other heads?", "unfold below, on this word’s own numbers"],
  ["All views", "every head, every number; a click on “regard” leads back"],
];

const LIST = {
  role: "listbox",
  tabindex: "0",
  "aria-label": "The first sentence: choose a word",
  "aria-orientation": "horizontal",
};

const waiting = (found) => found?.error ?? "The numbers are on their way.";

// --- What moved: the word's neighbours in both, and how far it is from where it was

const MOVES = {
  name: "moves",
  label: "What moved?",
  answer({ both, pair, width }) {
    const some = both.pairs.filter(([{ text }]) => isRead(text));
    const moves = some.map((each) => ({ text: each[0].text, first: each[0].first, moved: both.moved(each) ?? 0 }));
    return [
      line("From the one to the other, ", ...written(movedSaid(moves, pair[0].first, both.apart))),
      drawNeighbours(both, pair, width),
      makeNote(
        `The higher a word, the larger its cosine to ${pair[0].text}, by contextual embeddings. Dotted: two different words, on average.`,
      ),
    ];
  },
};

// --- And the other heads: in which of them the arc is another one

const OTHERS = {
  name: "others",
  label: "And the other heads?",
  answer({ both, pair, page }) {
    const { source, state } = page;
    const { kind } = both;
    const held = allHeads(source, kind).filter(({ layer, head }) => source.holds(kind, layer, head));
    const all = held.map((each) => ({ ...each, rows: rowsOf(both, pair, { kind, ...each }) }));
    if (all.some(({ rows }) => rows.includes(null))) return [waiting(null)];
    const arcs = all.map((each) => ({ ...each, ...arcOf(both, each.rows) })).filter(({ does }) => does);
    const others = arcs.filter(({ does }) => does !== "stays");
    const largest = ({ shares }) => Math.max(...shares);
    const shown = others.sort((one, two) => largest(two) - largest(one)).slice(0, MOST_HEADS);
    const name = ({ words, shares }, side) =>
      words[side] ? `${words[side].text} ${wholePercent(shares[side])}` : "no word";
    const cards = shown.map((each) => {
      const { layer, head } = each;
      const isOn = layer === state.values.layer && head === state.values.head;
      const label = [
        make("span", { class: "door-card-name" }, `Head ${layer}.${head}`),
        `${name(each, 0)} → ${name(each, 1)}`,
      ];
      const open = () => state.set({ layer, head });
      return make("li", {}, makeButton(label, open, { class: "door-card", "aria-current": isOn ? "true" : null }));
    });
    const stays = arcs.length - others.length;
    const told = ` looks at another word in ${arcs.length} of ${all.length} heads. In ${stays} of these the arc stays; in ${others.length} it is another.`;
    return [
      line(...written([{ text: pair[0].text, side: "from" }]), told),
      make("ul", { class: "door-cards" }, ...cards),
    ];
  },
};

const QUESTIONS = [MOVES, OTHERS];

const rowsOf = (both, pair, head) => both.pages.map((page, side) => rowOf(page, head, pair[side].first));

// What two sentences have in common before and behind where they differ, and what stands there in each.
function cut([one, other]) {
  const [words, others] = [one, other].map((text) => text.split(/(?<=\s)|\b/u));
  const most = Math.min(words.length, others.length);
  let [before, behind] = [0, 0];
  while (before < most && words[before] === others[before]) before += 1;
  while (behind < most - before && words.at(-1 - behind) === others.at(-1 - behind)) behind += 1;
  const inner = [words, others].map((each) => each.slice(before, each.length - behind).join(""));
  return { before: words.slice(0, before).join(""), inner, behind: words.slice(words.length - behind).join("") };
}

function open(page) {
  const { source, state } = page;
  const { texts, both: read } = source.experiment;
  const ready = readyOf(texts);
  const size = sizeOf(1.5 * Math.max(...texts.map(({ length }) => length))); // two of them, if it can be in a line each
  const said = make("p", { class: "door-said", role: "status" });
  const note = makeNote("");
  const element = make("div", { class: "door experiment", "data-size": size });
  let which = 0; // the sentence of which the reader guesses
  let sentences = null;

  // What everything below is about; null while it is not there.
  function now() {
    const both = read();
    if (!(both instanceof Both)) return null;
    const pair = both.pairAt((state.values.pin ?? { index: source.facts.start.pin }).index) ?? both.pairs[0];
    const { layer, head } = state.values;
    const width = Math.min(WIDE, element.clientWidth - 40);
    return { page, both, pair, width, rows: rowsOf(both, pair, { kind: both.kind, layer, head }) };
  }
  const questions = makeQuestions(state, QUESTIONS, ({ answer }) => {
    const at = now();
    return at ? answer(at) : [waiting(read())];
  });

  const share = makeShare(page, () => {
    const copies = sentences.map((each) => each.copy());
    const title = `${source.facts.model}, layer ${state.values.layer}, head ${state.values.head} · regard`;
    const draw = () => copies.forEach((each) => each.settle());
    return { title, parts: [...copies.map((each) => each.element), said.cloneNode(true)], draw };
  });

  function makeSentences(both) {
    const choose = (pair) => pair && state.set({ pin: { side: "query", index: both.tokenOf(pair) }, hover: null });
    return both.pages.map((each, side) => {
      const parts = partsOf(each.source, each.state, { text: texts[side], stack: both.kind, sequence: 0 });
      const sentence = new Sentence([parts], side === 0 ? LIST : {}, marksOf(each.state.units("key").all));
      for (const { first } of both.changed(side)) sentence.words.get(first)?.classList.add("changed");
      const on = (name, listener) => sentence.element.addEventListener(name, listener, { signal: state.gone });
      const at = ({ clientX, clientY }) => sentence.at(clientX, clientY);
      on("pointermove", (event) => sentence.point(at(event)));
      on("pointerleave", () => sentence.point(null));
      on("click", (event) => choose(both.pairs.find((pair) => pair[side].first === at(event))));
      if (side === 0)
        onKeys(sentence.element, (key) => {
          const here = both.pairs.indexOf(now().pair);
          const to = placeIn(both.pairs.length, here, key, ACROSS);
          choose(both.pairs[to]);
          return to !== undefined;
        });
      return sentence;
    });
  }

  // Before the arcs, the reader's own guess.
  function guessing() {
    const { before, inner, behind } = cut(texts);
    const choice = makeChoice({
      name: "which",
      legend: "The word that changes",
      options: inner.map((text, at) => [String(at), text]),
      value: () => String(which),
      choose: (at) => {
        which = Number(at);
      },
    });
    const { from, to } = placeOf(before, ready.about);
    const word = make("span", { class: "door-word from" }, before.slice(from, to));
    const guess = (answer) => () => state.set({ guess: answer() });
    return [
      make("p", { class: "door-sentence" }, before.slice(0, from), word, before.slice(to), choice.element, behind),
      make(
        "p",
        { class: "door-said" },
        "What does ",
        ...written([{ text: ready.about, side: "from" }]),
        " look at? Your guess:",
      ),
      make(
        "p",
        { class: "door-guess" },
        ...ready.among.map((text, at) =>
          makeButton(
            text,
            guess(() => `${which}.${at}`),
          ),
        ),
        makeButton(
          "Show me",
          guess(() => "shown"),
        ),
      ),
    ];
  }

  function draw() {
    const focus = whereIsFocus(element);
    const { guess } = state.values;
    const own = [source.makeReady?.()].filter(Boolean);
    if (ready?.among && guess === null) {
      element.replaceChildren(...guessing(), ...own);
      return focus();
    }
    const at = now();
    sentences ??= at && makeSentences(at.both);
    const lines = sentences ?? texts.map((text) => new Sentence([[text]]));
    element.replaceChildren(
      ...lines.map((each) => each.element),
      ...own,
      said,
      note,
      ...(sentences ? [share] : []),
      ...questions.map((each) => each.element),
    );
    for (const { update } of questions) update();
    if (!at || at.rows.includes(null)) return said.replaceChildren(waiting(read()));
    const { both, pair, rows } = at;
    sentences.forEach((each, side) => each.show(pair[side].first, rows[side].shares));
    settle();
    said.replaceChildren(...written(bothSaid(both, pair, arcOf(both, rows))));
    const isAbout = ready?.among && pair[0].text === ready.about;
    const told = isAbout
      ? [guessSaid(rows, guess), turnsSaid(both, pair, ready.among)]
      : ["Click a word that both have."];
    note.replaceChildren(told.filter(Boolean).join(" "));
    return focus();
  }

  function guessSaid(rows, guess) {
    const [side, at] = guess.split(".").map(Number);
    if (Number.isNaN(side)) return "";
    const mine = ready.among[at];
    const found = chosenOf(rows[side], ready.among);
    return `You said ${mine}: ${found === mine ? "so does this head" : found ? `this head says ${found}` : "this head looks at neither"}.`;
  }

  function settle() {
    if (Number(size) < 2) for (const each of sentences ?? []) each.settle();
  }
  addEventListener("resize", settle, { signal: state.gone });

  const changed = (names) => {
    if (!(names.size === 1 && names.has("hover"))) draw();
  };
  return { element, start: draw, changed };
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
  fields: { asks: asksOf(QUESTIONS), guess },
  about,
  help: HELP,
  fits: (source) => Boolean(source.experiment),
  open,
};

/** Of a file of two texts that share words. @param {any} source */
export function findBoth(source) {
  const both = bothOf(source);
  if (!both) return;
  source.experiment = { texts: both.texts, both: () => both };
  source.facts.start = both.start(readyOf(both.texts));
}
