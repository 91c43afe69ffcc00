// The front door: one sentence, one remark about one word of it, and three questions that unfold.

import { makeButton } from "../base/controls.js";
import { make } from "../base/dom.js";
import { whereIsFocus } from "../base/focus.js";
import { remark, rowOf, sharedBy, writtenSaid } from "../base/said.js";
import { sharesOf, wordsOf } from "../base/shares.js";
import { oneOf } from "../base/state.js";
import { partsOf } from "../base/title.js";
import { notKnown } from "../base/units.js";
import { QUESTIONS } from "./answers.js";
import { atOf } from "./at.js";
import { waiting, written } from "./attention.js";
import { guessed } from "./instead.js";
import { asksOf, makeQuestions } from "./questions.js";
import { GHOST, marksOf, onArrows, onWords, Sentence, viewOf } from "./sentence.js";
import { makeShare } from "./share.js";
import { termsOf } from "./terms.js";
import { makeWalk, walk } from "./walk.js";
import { sums, whyNext } from "./why.js";

const SIZES = [90, 420, 1200]; // characters of a text, up to which it is written large, and less large
export const sizeOf = (length) => String(SIZES.filter((most) => length > most).length);

const LINE = 40; // characters that a line of a chat counts for

const CLICK = "Click any word to follow it.";
const TYPE = "Type your own, or click any word.";

// What the model is, what a head is, what the per cent is, and what it is not.
export const about = (source) => Object.values(termsOf(source));

const HELP = [
  ["A word of the sentence", "click it to see what it looks at; point at another to see its share"],
  ["← →, Home, End in the sentence", "another word"],
  ["Why? What if not? And the other heads?", "unfold below, on this word's own numbers"],
  ["Space", "a walk of sixty seconds: space goes on, ← back, Escape leaves"],
  ["All views", "every head, every number; a click on “regard” leads back"],
];

// The texts in parts, for makers of sentences; of token ids without a text the words as the tokens spell them.
function linesOf(source, state, kind) {
  const { messages } = source.facts;
  if (messages?.length > 0)
    return messages.map((each) => [`${each.role}: `, ...partsOf(source, state, { ...each, stack: kind, sequence: 0 })]);
  const { text, pair } = source.facts.sides[kind];
  if (text === null) return [wordsOf(state, kind).all.flatMap((unit) => [unit, " "])];
  return [text, ...(pair === null ? [] : [pair])].map((each, sequence) =>
    partsOf(source, state, { text: each, stack: kind, sequence }),
  );
}

export const LIST = {
  role: "listbox",
  tabindex: "0",
  "aria-label": "The sentence: choose a word",
  "aria-orientation": "horizontal",
};

function open(page) {
  const { source, state } = page;
  const { kind } = state.values;
  const lines = linesOf(source, state, kind);
  const words = lines.flat().filter((part) => typeof part !== "string");
  const length = lines.flat().reduce((sum, part) => sum + (part.text ?? part).length, 0);
  const size = sizeOf(length);
  // Of a live page, a field lies over the words: that is typed into, and it is what is read aloud.
  const marks = marksOf(state.units("key", { kind, units: "words" }).all);
  const sentence = new Sentence(lines, source.surface ? { "aria-hidden": "true" } : LIST, marks);
  const surface = source.surface ?? sentence.element;
  surface.dataset.size = size;
  // Of a decoder that writes, what comes next is shown, until a word of its text is followed.
  const { writer = null } = source;
  const isWriting = () => writer !== null && !state.values.follow && state.values.walk === null;
  let top = sentence; // what is on show
  const said = make("p", { class: "door-said", role: "status" });
  const note = make("p", { class: "door-note" });
  const next = make("div", { class: "door-next" }); // what a decoder would say, where the model is there
  const edited = make("ul", { class: "live-edits", "aria-label": "Edits" }); // what is changed in the model
  const shown = () => [top];
  const share = makeShare(page, said, shown, () => (isWriting() ? null : at.head));

  const firsts = words.map(({ first }) => first);
  const at = Object.assign(atOf(page, kind, firsts), { lines, marks, isLong: length > SIZES[1] });
  const choose = (first) => state.set({ pin: { side: "query", index: first }, hover: null, key: null, follow: true });

  const answer = (each) => (isWriting() ? ofNext(each.name, each.answer) : each.answer(at));
  const walking = makeWalk(at);
  const questions = makeQuestions(state, QUESTIONS, answer);
  const parts = [
    sentence.element,
    ...(writer
      ? [said, note, share, writer.element, writer.ready(source.write)]
      : [next, source.makeReady?.(), said, note, share]),
    edited,
    ...questions.map((each) => each.element),
    walking.invitation,
    walking.element,
  ];
  const element = make("div", { class: "door", "data-size": size }, ...parts.filter(Boolean));

  // The first token of a word: the model may have written the text in other tokens than those that it is read in.
  const placeOf = (word) => source.tokens(kind, "query").findIndex((token) => token.word === word);

  // The questions, of the word that comes next: it is read at the last word, and most from another.
  function ofNext(name, answer) {
    if (name === "why") return whyNext(writer);
    if (!writer.isWhole()) return waiting();
    const units = wordsOf(state, kind);
    const last = units.all.at(-1).first;
    const most = () => (writer.most ? units.at(placeOf(writer.most.word)) : null);
    const own = { from: last, shares: () => sharesOf(page, at.head, last), most };
    return answer({ page, lines, marks, isLong: at.isLong, head: at.head, writer, ...own });
  }

  // The next word, read from the words before.
  function write() {
    edited.replaceChildren(...(source.makeEdits?.() ?? []));
    if (!writer.written) {
      // Until the model is here, Python's word.
      const [best] = source.facts.story?.[kind]?.ending?.next ?? [];
      const text = best?.text.replace(/^␣(?=.)/u, "");
      said.replaceChildren(...(best ? written(writtenSaid({ ...best, text }, 0, [])) : ["The model is on its way."]));
      return;
    }
    const { text } = writer.written;
    element.dataset.size = sizeOf(text.length + LINE * text.split("\n").length);
    surface.dataset.size = element.dataset.size;
    show(writer.sentence());
    said.replaceChildren(...written(writer.remark()));
    note.replaceChildren(writer.note());
    settle();
    source.fit();
    for (const { update } of questions) update();
  }

  function show(sentence) {
    if (top === sentence) return;
    top.element.replaceWith(sentence.element);
    top = sentence;
    top.draw();
  }

  // In the room that there is; a long text fills its lines.
  function settle() {
    if (Number(element.dataset.size) < 2) top.settle(source.surface ?? null);
  }

  function draw() {
    walking.draw();
    element.classList.toggle("writes", isWriting());
    if (isWriting()) return write();
    show(sentence);
    element.dataset.size = size;
    surface.dataset.size = size;
    const focus = whereIsFocus(element);
    const row = rowOf(page, at.head, at.from);
    sentence.show(at.from, row?.shares ?? null);
    said.replaceChildren(...(row ? written(remark(page, at.head, at.from, row)) : ["The numbers are on their way."]));
    next.replaceChildren(source.makeNext?.() ?? "");
    edited.replaceChildren(...(source.makeEdits?.() ?? []));
    const shared = row ? sharedBy(page, at.head, row) : "";
    const unknown = notKnown(source.tokens(kind, "query"));
    const { start } = source.facts;
    const opened = [start.layer, start.head, wordsOf(state, kind).at(start.pin).first];
    const isMoved = [at.head.layer, at.head.head, at.from].join() !== opened.join();
    const { scrollHeight, clientHeight } = sentence.element;
    const more = scrollHeight > clientHeight ? `Scroll in the text for the rest of its ${words.length} words.` : "";
    note.replaceChildren([more, shared, unknown, source.surface ? TYPE : CLICK].filter(Boolean).join(" "));
    const back = () => (writer ? state.set({ follow: false, asks: [] }) : state.letGo());
    const where = writer ? "Back to writing" : "Back to the start";
    if (writer || isMoved) note.append(" ", makeButton(where, back, { title: "Escape" }));
    for (const { update } of questions) update();
    settle();
    focus();
  }

  function chooseShown(first) {
    if (!isWriting()) choose(first);
    // While the model writes, the views are of the text before.
    else if (first !== GHOST && writer.isWhole()) choose(placeOf(writer.written.wordOf[first]));
  }
  onWords(surface, () => top, chooseShown, state.gone);
  if (writer) {
    writer.changed = draw;
    const leave = ({ key }) => key === "Escape" && state.set({ follow: false });
    surface.addEventListener("keydown", leave, { signal: state.gone });
  }
  if (!source.surface) onArrows(sentence.element, firsts, () => at.from, choose);
  return viewOf(state, element, draw, settle);
}

// What is written in the place of a word.
const instead = { initial: "", read: (text) => text.slice(0, 40), write: (text) => text || null };

// Of a decoder that writes, whether a word of its text is followed.
const follow = { initial: false, read: () => true, write: (is) => (is ? "" : null) };

// Where one text with words in it looks at itself, and its head can be worked out: of several texts, or attentions, no one
// remark is the one to begin with.
function fits(source) {
  const { movement, compared, senses, writing, training, held, start } = source.facts;
  const several =
    movement || compared || senses || writing || training || source.runs || held?.only || source.experiment;
  const [kind, ...others] = source.kinds;
  if (several || !start || others.length > 0 || kind === "cross") return false;
  return source.computed(kind) && source.tokens(kind, "query").some(({ special }) => !special);
}

export const VIEW = {
  name: "door",
  label: "One sentence",
  home: true,
  fields: { asks: asksOf(QUESTIONS), lost: oneOf(["word", "swap", "head"]), instead, follow, sums, guessed, walk },
  about,
  help: HELP,
  fits,
  open,
};
