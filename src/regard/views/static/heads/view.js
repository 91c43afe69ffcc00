// The head view: all heads as thumbnails, the chosen ones as lines between queries and keys, and their numbers.

import { makeSwitch } from "../base/controls.js";
import { inIdleTime, make } from "../base/dom.js";
import { quantities } from "../base/measures.js";
import { makeControls, makeLegend } from "./controls.js";
import { Diagram } from "./diagram.js";
import { makeDrawn, makeSaid } from "./drawn.js";
import { makePicker } from "./grid.js";
import { Panel } from "./panel.js";
import { linesSheet } from "./picture.js";
import { makeSteps } from "./steps.js";
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
  ["[ ]", "of a decoder, the row before and the next one, as they were written"],
  [
    "A thumbnail",
    "has a row for each query and a column for each key, scaled to its own largest weight; a long text is sampled",
  ],
];

function open(page) {
  const { state } = page;
  const weights = new Weights(page);
  const grid = makePicker(page);
  const diagram = new Diagram(page, weights);
  const panel = new Panel(page, weights, diagram);
  const legend = makeLegend(page);
  const where = make("h2", { class: "where" });
  const said = makeSaid(page);
  const steps = makeSteps(page);
  const querySide = make("span", { class: "side-query" });
  const keySide = make("span", { class: "side-key" });
  const showWhere = () => {
    const { kind, layer, head } = state.values;
    const { heads } = weights;
    where.textContent = heads.length > 1 ? `${heads.length} heads` : `Layer ${layer}, head ${head}`;
    legend.update(heads);
    said.update();
    querySide.textContent = kind === "cross" ? "Query, in the decoder, looking" : "Query, looking";
    keySide.textContent = kind === "cross" ? "Key, in the encoder, looked at" : "Key, looked at";
  };

  const view = make(
    "section",
    { class: "view", "aria-label": "Attention of the chosen heads" },
    make("div", { class: "view-top" }, where, makeDrawn(page), makeControls(page)),
    said.line,
    steps.element,
    legend.element,
    make("div", { class: "sides", "aria-hidden": "true" }, querySide, keySide),
    make("div", { class: "view-foot" }, diagram.note), // below, but Tab goes from the tokens to their numbers
    diagram.element,
  );
  const element = make(
    "div",
    { class: "main" },
    make(
      "section",
      { class: "picker", "aria-label": "Layers and heads" },
      make("p", { class: "axes" }, make("span", {}, "Layer ↓"), make("span", {}, "Head →")),
      grid.element,
      make(
        "div",
        { class: "picker-foot" },
        makeSwitch(state, "Several heads", "adding"),
        make("p", { class: "note" }, grid.scaleSaid()),
      ),
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
    diagram.describe();
    panel.request();
  };
  const sayInTime = () => {
    leaveOff = inIdleTime(() => {
      diagram.describe();
      panel.draw();
      return true;
    });
  };
  const changed = (names) => {
    const has = (...wanted) => wanted.some((name) => names.has(name));
    if (has("kind", "what", "layer", "head", "also", "units")) weights.forget();
    else if (has("rows")) weights.measure();
    if (has("look")) {
      diagram.request(true);
      grid.repaint();
    }
    if (has("kind")) grid.rebuild();
    else if (has("specials", "filter", "what")) grid.restart();
    else if (has("rows")) grid.resume();
    if (has("kind", "specials", "filter", "units")) diagram.layout();
    if (has("what")) grid.repaint();
    if (has("kind", "what", "layer", "head", "also", "look")) {
      grid.mark();
      showWhere();
    } else if (has("rows")) said.update(); // what a gradient is of comes with its numbers
    if (has("kind", "what", "layer", "head", "also", "units") || (has("rows") && diagram.lacking)) diagram.redraw();
    else diagram.request();
    if (has("kind", "row", "specials", "units")) steps.update();
    if (has("row") && state.values.row !== null) diagram.reveal(state.held());
    if (!diagram.pointing) say();
    else {
      stay();
      waiting = setTimeout(sayInTime, REST);
    }
  };

  // Fixed in one piece, so that tokens and lines stay side by side from page to page.
  let place = 0;
  const print = (on) => {
    if (on) place = diagram.stage.scrollTop;
    return () => {
      Object.assign(
        view.style,
        on ? { height: `${view.offsetHeight}px`, contain: "size" } : { height: "", contain: "" },
      );
      if (!on) diagram.stage.scrollTop = place;
      diagram.resized = true;
      diagram.draw();
      grid.repaint();
    };
  };

  element.addEventListener("keydown", (event) => steps.key(event));

  const start = () => {
    showWhere();
    steps.update();
    diagram.layout();
    diagram.draw();
    panel.draw();
    const held = state.held();
    if (held) diagram.reveal(held);
  };
  return { element, start, changed, print, picture: () => linesSheet(page, weights) };
}

export const VIEW = {
  name: "heads",
  label: "Heads",
  fields: { ...STRENGTH_FIELDS, adding: { initial: false } },
  guide: (source, { kind, what }) =>
    what === quantities(source, kind)[0]
      ? what === "weights"
        ? "Each word on the left spreads 100 % of its attention over the words on the right. Point at a word."
        : "Green: more attention in the second. Purple: less. Point at a word."
      : "",
  help: HELP,
  open,
};
