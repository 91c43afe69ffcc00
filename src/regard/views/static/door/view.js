// The front door: one sentence, one remark about one word of it, and three questions that unfold.

import { make } from "../base/dom.js";
import { ACROSS, onKeys, placeIn } from "../base/keys.js";
import { partsOf } from "../base/title.js";
import { notKnown } from "../base/units.js";
import { QUESTIONS } from "./answers.js";
import { mostOf, remark, sharedBy, sharesOf, wordsOf } from "./attention.js";
import { Sentence } from "./sentence.js";

const SIZES = [90, 420, 1200]; // characters of a text, up to which it is written large, and less large

const CLICK = "Click any word to follow it.";
const TYPE = "Type your own, or click any word.";

const HELP = [
  ["A word of the sentence", "click it to see what it looks at; point at another to see its share"],
  ["← →, Home, End in the sentence", "another word"],
  ["Why? What if not? And the other heads?", "unfold below, on this word's own numbers"],
  ["All views", "every head, every number; a click on “regard” leads back"],
];

// The texts in parts, for makers of sentences; of token ids without a text the words as the tokens spell them.
function linesOf(source, state, kind) {
  const { text, pair } = source.facts.sides[kind];
  if (text === null) return [wordsOf(state, kind).all.flatMap((unit) => [unit, " "])];
  return [text, ...(pair === null ? [] : [pair])].map((each, sequence) =>
    partsOf(source, state, { text: each, stack: kind, sequence }),
  );
}

function open(page) {
  const { source, state } = page;
  const { kind } = state.values;
  const lines = linesOf(source, state, kind);
  const words = lines.flat().filter((part) => typeof part !== "string");
  const long = lines.flat().reduce((sum, part) => sum + (part.text ?? part).length, 0);
  const size = SIZES.filter((most) => long > most).length;
  const sentence = new Sentence(lines);
  const surface = source.surface ?? sentence.element; // of a live page, the field over it
  const said = make("p", { class: "door-said", role: "status" });
  const note = make("p", { class: "door-note" });
  if (source.surface) source.surface.dataset.size = String(size);
  const next = make("div", { class: "door-next" }); // what a decoder would say, where the model is there
  const unknown = notKnown(source.tokens(kind, "query"));

  // Which word of which head: everything below is about it.
  const at = {
    page,
    lines,
    get head() {
      const { layer, head } = state.values;
      return { kind, layer, head };
    },
    get from() {
      const { pin } = state.values;
      const units = wordsOf(state, kind);
      const first = pin ? units.at(pin.index).first : source.facts.start?.pin;
      return words.some((each) => each.first === first) ? first : (words[0]?.first ?? 0);
    },
    shares: (head = at.head) => sharesOf(page, head, at.from),
    most: (shares) => mostOf(state, kind, at.from, shares),
    choose: (first) => state.set({ pin: { side: "query", index: first }, hover: null, key: null }),
  };

  const questions = QUESTIONS.map(({ name, label, answer }) => {
    const body = make("div", { class: `door-answer answer-${name}`, id: `regard-${name}` });
    const button = make(
      "button",
      { type: "button", class: "door-ask", "aria-controls": body.id },
      make("span", {}, label),
    );
    button.addEventListener("click", () => {
      const { asks } = state.values;
      state.set({ asks: asks.includes(name) ? asks.filter((each) => each !== name) : [...asks, name] });
    });
    const update = () => {
      const isOpen = state.values.asks.includes(name);
      button.setAttribute("aria-expanded", String(isOpen));
      body.hidden = !isOpen;
      if (isOpen) answer(at, body);
      else body.replaceChildren();
    };
    return { element: make("section", { class: "door-question" }, make("h2", {}, button), body), update };
  });
  const element = make(
    "div",
    { class: "door", "data-size": String(size) },
    sentence.element,
    next,
    ...[source.makeReady?.()].filter(Boolean),
    said,
    note,
    ...questions.map((each) => each.element),
  );

  function drawSentence() {
    const shares = at.shares();
    sentence.draw(at.from, shares);
    return shares;
  }

  function draw() {
    const shares = drawSentence();
    said.replaceChildren(...(shares ? remark(page, at.head, at.from, shares) : ["The numbers are on their way."]));
    next.replaceChildren(...[source.makeNext?.()].filter(Boolean));
    const shared = shares ? sharedBy(page, at.head, at.most(shares)) : "";
    note.textContent = [shared, unknown, source.surface ? TYPE : CLICK].filter(Boolean).join(" ");
    for (const { first } of words) {
      const option = sentence.words.get(first);
      option.setAttribute("aria-selected", String(first === at.from));
      if (first === at.from && !source.surface) sentence.element.setAttribute("aria-activedescendant", option.id);
    }
    for (const { update } of questions) update();
  }

  // By pointer: on a live page too, whose field lies over the words.
  const only = { signal: state.gone };
  surface.addEventListener(
    "pointermove",
    ({ clientX, clientY }) => sentence.point(sentence.at(clientX, clientY)),
    only,
  );
  surface.addEventListener("pointerleave", () => sentence.point(null), only);
  surface.addEventListener(
    "click",
    ({ clientX, clientY }) => {
      const first = sentence.at(clientX, clientY);
      if (first !== null) at.choose(first);
    },
    only,
  );
  // By keyboard, and to be heard: a list of words, unless it is a field that is typed into.
  if (source.surface) sentence.element.setAttribute("aria-hidden", "true");
  else {
    const named = {
      role: "listbox",
      tabindex: "0",
      "aria-label": "The sentence: choose a word",
      "aria-orientation": "horizontal",
    };
    for (const [name, value] of Object.entries(named)) sentence.element.setAttribute(name, value);
    for (const [first, option] of sentence.words) {
      option.id = `regard-word-${first}`;
      option.setAttribute("role", "option");
    }
    onKeys(sentence.element, (key) => {
      const to = placeIn(
        words.length,
        words.findIndex(({ first }) => first === at.from),
        key,
        ACROSS,
      );
      if (to !== undefined) at.choose(words[to].first);
      return to !== undefined;
    });
  }

  const changed = (names) => {
    if (!(names.size === 1 && names.has("hover"))) draw();
  };
  const start = () => {
    draw();
    const observer = new ResizeObserver(() => element.isConnected && !element.hidden && drawSentence());
    observer.observe(sentence.element);
    state.gone?.addEventListener("abort", () => observer.disconnect());
  };
  return { element, start, changed };
}

const NAMES = QUESTIONS.map(({ name }) => name);
const asks = {
  initial: [],
  read: (text) => NAMES.filter((name) => text.split(",").includes(name)),
  write: (value) => (value.length > 0 ? value.join(",") : null),
};

// Where one text looks at itself, and its head can be worked out: of several texts, or attentions, no one remark is the
// one to begin with.
function isOne({ facts, kinds, runs }) {
  const { movement, compared, senses, writing, training, held } = facts;
  const several = movement || compared || senses || writing || training || runs || held?.only;
  return !several && kinds.length === 1 && kinds[0] !== "cross" && Boolean(facts.start);
}

export const VIEW = {
  name: "door",
  label: "One sentence",
  home: true,
  fields: { asks },
  help: HELP,
  fits: (source) => isOne(source) && source.computed(source.kinds[0]),
  open,
};
