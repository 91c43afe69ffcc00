// The head view: all heads as thumbnails, the chosen ones as lines between queries and keys, and their numbers.

import { makeButton, makeChoice, makeSwitch } from "../base/controls.js";
import { inIdleTime, make, makeNote } from "../base/dom.js";
import { quantities } from "../base/measures.js";
import { makeHeadName, makeNames } from "../base/names.js";
import { makeControls, makeLegend } from "./controls.js";
import { makeDrawn, makeSaid } from "./drawn.js";
import { FORM_FIELDS, formOf, isLong, makeForms, makeScale } from "./forms.js";
import { makePicker } from "./grid.js";
import { Panel } from "./panel.js";
import { makeSteps } from "./steps.js";
import { Strongest } from "./strongest.js";
import { STRENGTH_FIELDS, Weights } from "./weights.js";

const REST = 50; // milliseconds after which a pointer has come to rest

const HELP = [
  ["Point at a token", "shows its row (left) or column (right), in numbers"],
  ["Click, Enter or Space", "pins a token; then point at the other side, or tap it, to read one weight"],
  ["Shift with a click, or with ↑ ↓", "pins a span of tokens"],
  ["↑ ↓, Home, End", "another token; ← → changes side"],
  ["Arrow keys, Home, End in the grid", "choose layer and head"],
  [
    "Shift-click, or Space, in the grid",
    "several heads at once; a click on a layer's number, or A, takes all of its heads",
  ],
  ["Lines", "queries on the left, keys on the right; a thicker line is a larger weight"],
  ["Map, Text", "the same numbers in other forms; All heads draws one word's row in every head"],
  ["Arrows in Text", "move the pinned word"],
  ["[ ]", "of a decoder, the row before and the next one, as they were written"],
  [
    "A thumbnail",
    "has a row for each query and a column for each key, scaled to its own largest weight; a long text is sampled",
  ],
];

function open(page) {
  const { state } = page;
  const weights = new Weights(page);
  const { grid, said: headSaid } = makePicker(page);
  // On a phone it is folded away, below the drawing.
  const unfold = () => opener.setAttribute("aria-expanded", String(opener.ariaExpanded === "false"));
  const folded = { class: "button picker-opener", "aria-expanded": "false" };
  const opener = makeButton("Choose another head", unfold, folded);
  const forms = makeForms(page, weights);
  // What is the largest of the heads is what a full line stands for.
  const strongest = new Strongest(page, weights, () => {
    if (!drawn) return;
    form().redraw();
    panel.request();
  });
  const panel = new Panel(
    page,
    weights,
    strongest,
    () => form(),
    () => showScale(),
  );
  const scale = makeScale(page);
  const showScale = () => {
    scale.update(form());
    sides.update();
  };
  const legend = makeLegend(page);
  const where = make("h2", { class: "where" });
  const said = makeSaid(page);
  const steps = makeSteps(page, () => form().picture());
  const querySide = make("span", { class: "side-query" });
  const keySide = make("span", { class: "side-key" });
  const together = makeChoice({
    name: "together",
    legend: "How several heads are drawn",
    options: [
      ["each", "Each", "Each head by itself"],
      ["mean", "Mean", "The mean of the heads"],
      ["largest", "Largest", "Of each weight the largest of the heads"],
    ],
    value: () => state.values.together,
    choose: (how) => state.set({ together: how }),
  });
  // Of a text that looks at itself, which side its words are on.
  const sides = makeChoice({
    name: "side",
    legend: "What is shaded",
    options: [
      ["query", "What it looks at", "The row of the word"],
      ["key", "What looks at it", "The column of the word"],
    ],
    value: () => state.values.pin?.side ?? forms.get("text").side,
    choose: (side) => {
      forms.get("text").side = side;
      const { pin } = state.values;
      if (pin) state.set({ pin: { ...pin, side }, hover: null });
    },
  });
  const foot = make("div", { class: "view-foot" });
  const panelOfForm = make("div", { class: "form" });
  const empty = make(
    "p",
    { class: "empty" },
    "Every token is hidden. Show the special tokens or choose another filter.",
  );
  let printing = false;
  const nameOfForm = () => (printing && isLong(state) ? "text" : formOf(state));
  const form = () => forms.get(nameOfForm());
  // Puts the form in its place that is to be on; a form that was away is laid out anew.
  let drawn = "";
  const showForm = (fresh = false) => {
    const name = nameOfForm();
    if (name === drawn && !fresh) return;
    if (name !== drawn) {
      panelOfForm.replaceChildren(form().element);
      foot.replaceChildren(form().note);
      for (const side of [querySide, keySide]) side.hidden = name !== "lines";
    }
    drawn = name;
    const { queries, keys } = state.shown();
    empty.hidden = queries.length > 0 && keys.length > 0;
    panelOfForm.hidden = !empty.hidden;
    sides.element.hidden = name !== "text" || !form().isOne();
    forms.choice.update();
    if (empty.hidden) form().layout();
  };
  const off = page.source.makeSwitch?.(); // a live page's
  const showWhere = () => {
    const { kind } = state.values;
    const named = weights.named();
    where.textContent = named[0].toUpperCase() + named.slice(1);
    legend.update(weights.chosen);
    off?.update(weights.chosen.length < 2 ? state.values : null);
    together.element.hidden = weights.chosen.length < 2;
    together.update();
    said.update();
    querySide.textContent = kind === "cross" ? "Query, in the decoder, looking" : "Query, looking";
    keySide.textContent = kind === "cross" ? "Key, in the encoder, looked at" : "Key, looked at";
  };

  const controls = makeControls(page);
  controls.prepend(makeDrawn(page));
  const view = make(
    "section",
    { class: "view", "aria-label": "Attention of the chosen heads" },
    make(
      "div",
      { class: "view-top" },
      where,
      makeHeadName(page),
      ...(off ? [off.element] : []),
      forms.choice.element,
      controls,
    ),
    said.line,
    steps.element,
    make("div", { class: "several-bar" }, together.element, legend.element),
    make("div", { class: "sides" }, querySide, sides.element, scale.element, keySide),
    foot, // below, but Tab goes from the tokens to their numbers
    empty,
    panelOfForm,
  );
  const element = make(
    "div",
    { class: "main" },
    make(
      "section",
      { class: "picker", "aria-label": "Layers and heads" },
      opener,
      make("p", { class: "axes" }, make("span", {}, "Layer ↓"), make("span", {}, "Head →")),
      grid.element,
      headSaid,
      makeNames(page, makeNote(grid.scaleSaid())),
      makeSwitch(state, "Several heads", "adding"),
    ),
    view,
    panel.element,
  );

  // Lines, bars and numbers follow the pointer from frame to frame; what is said of them in words and lists, which
  // nobody reads on the way, waits until it rests, and then for idle time: in a frame of its own it would hold up the
  // move that comes next. Keys do not wait: the next one may go into the list.
  let waiting = 0;
  let leaveOff = () => {};
  const stay = () => {
    clearTimeout(waiting);
    leaveOff();
  };
  const say = () => {
    stay();
    form().describe();
    panel.request();
  };
  const sayInTime = () => {
    leaveOff = inIdleTime(() => {
      form().describe();
      panel.draw();
      return true;
    });
  };
  const OF_HEADS = ["kind", "what", "layer", "head", "also", "together", "units"];
  const OF_WORDS = ["kind", "specials", "filter", "units"];
  const changed = (names) => {
    const has = (...wanted) => wanted.some((name) => names.has(name));
    if (has(...OF_HEADS)) weights.forget();
    else if (has("rows")) weights.measure();
    if (has(...OF_HEADS, ...OF_WORDS, "rows")) strongest.ask();
    if (has("look")) {
      form().request(true);
      grid.repaint();
    }
    if (has("kind")) grid.rebuild();
    else if (has("specials", "filter", "what")) grid.restart();
    else if (has("rows")) grid.resume();
    showForm(has(...OF_WORDS));
    if (has("what")) grid.repaint();
    if (has("kind", "what", "layer", "head", "also", "together", "look")) {
      grid.mark();
      showWhere();
    } else if (has("rows")) said.update(); // what a gradient is of comes with its numbers
    if (has(...OF_HEADS, "row", "least", "scale", "largest", "look") || (has("rows") && form().lacking))
      form().redraw();
    else form().request();
    if (has("kind", "row", "specials", "units")) steps.update();
    if (has("row") && state.values.row !== null) form().reveal(state.held());
    if (!form().pointing.moving) say();
    else {
      stay();
      waiting = setTimeout(sayInTime, REST);
    }
  };

  // A long text is printed as text: lines would take page after page.
  const print = (on) => {
    printing = on;
    showForm();
    const draw = form().print(on, view);
    return () => {
      draw();
      grid.repaint();
    };
  };

  element.addEventListener("keydown", (event) => steps.key(event));

  const start = () => {
    showWhere();
    steps.update();
    strongest.ask();
    showForm();
    form().draw();
    panel.draw();
    const held = state.held();
    if (held) form().reveal(held);
  };
  return { element, start, changed, print, picture: () => form().picture() };
}

const GUIDES = {
  lines: "Each word on the left spreads 100 % of its attention over the words on the right. Point at a word.",
  map: "Each row is a word that spreads 100 % of its attention over the columns. Point at a cell.",
  text: "The stronger a word is coloured, the more of its attention the pinned word gives it. Point at another word.",
  all: "Each strip is one head: where the pinned word looks in it. The strips go from layer to layer.",
};

function guideOf(source, values) {
  const { kind, what } = values;
  if (what !== quantities(source, kind)[0]) return "";
  if (what === "weights") return GUIDES[formOf({ source, values })];
  return "Green: more attention in the second. Purple: less. Point at a word.";
}

export const VIEW = {
  name: "heads",
  label: "Heads",
  fields: { ...STRENGTH_FIELDS, ...FORM_FIELDS, adding: { initial: false } },
  guide: guideOf,
  help: HELP,
  open,
};
