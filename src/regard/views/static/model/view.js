// The model view: every layer and head at a glance, in the order of any statistic.

import { makeChoice, makeSwitch } from "../base/controls.js";
import { make } from "../base/dom.js";
import { makeNames } from "../base/names.js";
import { oneOf } from "../base/state.js";
import { makeDrawn, makeSaid } from "../heads/drawn.js";
import STATISTICS from "../statistics.json";
import { Detail, makeNumbers } from "./detail.js";
import { HeadStatistics } from "./statistics.js";
import { makeWall } from "./wall.js";

const ORDERS = [
  { name: "place", label: "Layers" },
  { name: "most", label: "Largest first" },
  { name: "least", label: "Smallest first" },
];

const HELP = [
  ["In the model view, point at a head", "shows it as a map, with all its numbers"],
  ["Click, Enter or Space on a head", "opens it; of two taps with a finger the first shows it"],
  ["Arrow keys, Home, End on the wall", "another head; in the map another cell, whose weight is said"],
];

function open({ source, state, colours }) {
  const page = { source, state, colours };
  let statistics = null;
  const told = () => statistics;
  // Of the statistics of another kind, this one may be missing.
  const settle = () => {
    if (!statistics.offered.some(({ name }) => name === state.values.stat))
      state.set({ stat: statistics.offered[0].name });
  };

  // With a finger there is no pointing: the first tap shows a head, the second opens it.
  const tapHead = (cell, { pointerType }) => {
    const { layer, head } = state.values;
    if (pointerType === "touch" && (cell.layer !== layer || cell.head !== head))
      state.set({ layer: cell.layer, head: cell.head });
    else openHead(cell);
  };
  const openHead = ({ layer, head }) => state.set({ view: "heads", layer, head, also: [], hover: null });
  const detail = new Detail(page, { statistics: told, open: openHead });
  const isBeside = ({ layer, head }) => detail.head().layer === layer && detail.head().head === head;
  const wall = makeWall(page, {
    statistics: told,
    point: (head) => detail.point(head),
    open: tapHead,
    drawn: (cell) => isBeside(cell) && detail.request(),
  });
  const table = makeNumbers(told, () => wall.order);
  const live = make("p", { class: "sr-only", role: "status", "aria-live": "polite" });
  const note = make("p", { class: "note model-note" });

  const said = makeSaid(page);
  const change = () => state.set({ stat: choose.value });
  const choose = make("select", { class: "button", "aria-label": "The number under each head", change });
  const orders = makeChoice({
    name: "model-order",
    legend: "In which order",
    options: ORDERS.map(({ name, label }) => [name, label]),
    value: () => state.values.by,
    choose: (by) => state.set({ by }),
    classes: "model-orders",
  });
  const showChoice = () => {
    choose.value = state.values.stat;
    orders.update();
    const { says } = STATISTICS.find(({ name }) => name === state.values.stat);
    const hides = !state.values.specials || state.values.filter !== "all";
    note.textContent = `Mean over all queries: ${says}.${hides ? " Hidden tokens are hidden in the pictures only." : ""} ${wall.scaleSaid()}`;
  };

  const specials = source.kinds.some((kind) =>
    ["query", "key"].some((side) => source.tokens(kind, side).some((token) => token.special && !token.sink)),
  );
  const top = make(
    "div",
    { class: "controls model-controls" },
    make("label", { class: "switch" }, make("span", {}, "Sort by / label"), choose),
    orders.element,
    makeDrawn(page),
    ...(specials ? [makeSwitch(state, "Special tokens", "specials")] : []),
  );
  const names = [makeNames(page)].filter(Boolean);
  const element = make(
    "div",
    { class: "model-view" },
    make("section", { class: "model-main", "aria-label": "All heads" }, top, note, said.line, ...names, wall.element),
    make("aside", { class: "model-side" }, detail.element, table.element, live),
  );

  const sortedSay = () => {
    const { by, stat } = state.values;
    const { label } = STATISTICS.find(({ name }) => name === stat);
    return by === "place"
      ? "Heads by layer."
      : `Heads by ${label.toLowerCase()}, ${by === "most" ? "largest" : "smallest"} first.`;
  };
  // The statistics of a kind may be on their way.
  let ready = false;
  const rebuild = () => {
    ready = Boolean(source.statistics(state.values.kind));
    note.textContent = "The numbers are on their way.";
    if (!ready) return;
    statistics = new HeadStatistics(source, state.values.kind);
    choose.replaceChildren(...statistics.offered.map(({ name, label }) => make("option", { value: name }, label)));
    settle();
    said.update();
    wall.rebuild();
    detail.rebuild();
    table.draw();
    showChoice();
  };

  const changed = (names) => {
    const has = (...wanted) => wanted.some((name) => names.has(name));
    if (has("kind") || !ready) {
      rebuild();
      return;
    }
    if (has("rows")) wall.resume();
    if (has("what")) said.update();
    if (has("specials", "filter", "what")) wall.restart();
    if (has("specials", "filter", "units")) detail.map.layout();
    if (has("stat", "by")) {
      settle();
      wall.arrange();
      wall.request();
      live.textContent = sortedSay();
      table.draw();
    }
    if (has("stat", "by", "specials", "filter")) showChoice();
    if (has("look")) {
      wall.repaint();
      detail.map.request(true);
    }
    if (has("layer", "head")) wall.mark();
    detail.request();
  };

  const print = (on) => {
    const draw = detail.map.print(on);
    return () => {
      wall.print(on);
      draw();
    };
  };

  return { element, start: rebuild, changed, print };
}

export const VIEW = {
  name: "model",
  label: "Model",
  fields: { stat: oneOf(STATISTICS.map(({ name }) => name)), by: oneOf(ORDERS.map(({ name }) => name)) },
  guide:
    "Each square is a head: a row for each word that looks, a column for each that is looked at. Click one to open it.",
  help: HELP,
  open,
};
