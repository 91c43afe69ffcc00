// The front door of a model of two stacks: what the encoder reads above, what the decoder reads and writes below, and where
// one head looks from a word below to the words above.

import { make } from "../base/dom.js";
import { whereIsFocus } from "../base/focus.js";
import { remark, rowOf } from "../base/said.js";
import { sharesOf, wordsOf } from "../base/shares.js";
import { partsOf } from "../base/title.js";
import { QUESTIONS } from "./answers.js";
import { atOf } from "./at.js";
import { bold, written } from "./attention.js";
import { asksOf, makeQuestions } from "./questions.js";
import { marksOf, onArrows, onWords, Sentence, viewOf } from "./sentence.js";
import { makeShare } from "./share.js";
import { LIST, sizeOf } from "./view.js";
import { sums } from "./why.js";

const kind = "cross";
const ASKED = QUESTIONS.filter(({ name }) => name !== "without"); // no model stands behind it

function about({ facts }) {
  return [
    `The model, ${facts.model}, has two stacks. Its encoder reads the upper text; its decoder reads the lower one, and writes it word by word.`,
    "Before each word it looks back at the upper text, in several heads: a word below divides its 100 % of attention among the words above.",
    "It is not an explanation: it says where one head looks, not why the model writes what it writes.",
  ];
}

const HELP = [
  ["A word of the lower text", "click it to see where it looks; ← →, Home, End lead to another"],
  ["A word of the upper text", "point at it to see its share; click it for the word below that looks at it most"],
  ["All views", "every head, every number; a click on “regard” leads back"],
];

function open(page) {
  const { source, state } = page;
  const { sides } = source.facts;
  // The words below are named by what comes after all tokens above.
  const above = source.tokens(kind, "key").length;
  const read = (stack, by) =>
    partsOf(source, state, { text: sides[stack].text, stack, sequence: 0 }).map((part) =>
      typeof part === "string" ? part : { ...part, first: by + part.first },
    );
  const lines = [read("encoder", 0), read("decoder", above)];
  const words = lines[1].filter((part) => typeof part !== "string").map(({ first }) => first - above);
  const size = sizeOf(Math.max(sides.encoder.text.length, sides.decoder.text.length));
  const marks = marksOf(state.units("key", { kind, units: "words" }).all);
  const sentence = new Sentence(lines, { ...LIST, "aria-label": "The texts: choose a word" }, marks);
  sentence.element.dataset.size = size;
  const said = make("p", { class: "door-said", role: "status" });
  const note = make("p", { class: "door-note" });
  const at = Object.assign(atOf(page, kind, words), {
    lines,
    marks,
    isLong: Number(size) > 1,
    show(drawn, { shares }) {
      const all = new Array(above + source.tokens(kind, "query").length).fill(0);
      shares.forEach((share, first) => (all[first] = share));
      drawn.show(above + at.from, all);
    },
  });
  const choose = (first) => {
    const { layer, head } = at.head;
    state.set({ kind, layer, head, pin: { side: "query", index: first }, hover: null });
  };
  const shown = () => [sentence];
  const share = makeShare(page, said, shown, () => at.head);
  const questions = makeQuestions(state, ASKED, ({ answer }) => answer(at));
  const parts = [sentence.element, said, note, share, ...questions.map((each) => each.element)];
  const element = make("div", { class: "door across", "data-size": size }, ...parts);

  function draw() {
    const focus = whereIsFocus(element);
    const { from, head } = at;
    const row = rowOf(page, head, from);
    if (row) at.show(sentence, row);
    said.replaceChildren(...written(row ? remark(page, head, from, row) : ["The numbers are on their way."]));
    const next = words[words.indexOf(from) + 1];
    const text = (first) => wordsOf(state, kind).at(first).text;
    const comes =
      next === undefined
        ? []
        : ["From here the model reads what comes next; in this text, ", bold(text(next), "to"), ". "];
    note.replaceChildren(...comes, "Click any word to follow it.");
    for (const { update } of questions) update();
    settle();
    focus();
  }

  function settle() {
    if (Number(size) < 2) sentence.settle();
  }
  function chooseShown(first) {
    const given = (word) => sharesOf(page, at.head, word)?.[first] ?? 0;
    choose(first < above ? words.reduce((most, word) => (given(word) > given(most) ? word : most)) : first - above);
  }
  const pointAt = (first) => (first < above ? first : null);
  onWords(sentence.element, () => sentence, chooseShown, state.gone, pointAt);
  onArrows(sentence.element, words, () => at.from, choose);
  return viewOf(state, element, draw, settle);
}

// Where both stacks read a text, one each, and the head can be worked out.
function fits(source) {
  const { compared, movement, senses, training, held, sides } = source.facts;
  if (compared || movement || senses || training || source.runs || held?.only || !source.kinds.includes(kind))
    return false;
  const isText = (side) => Boolean(side?.text?.trim()) && side.pair === null;
  return source.computed(kind) && isText(sides.encoder) && isText(sides.decoder);
}

export const VIEW = {
  name: "door",
  label: "Two texts",
  home: true,
  fields: { asks: asksOf(ASKED), sums },
  about,
  help: HELP,
  fits,
  open,
};
