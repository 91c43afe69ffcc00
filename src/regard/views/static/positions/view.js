// The positions view: what is added, what is biased and what is turned, as far as the model has it.

import { makeSelect } from "../base/controls.js";
import { make, whenWider } from "../base/dom.js";
import { AddedVectors } from "./added.js";
import { BiasByDistance, RotaryAngles } from "./distances.js";

const HELP = [["Positions", "point at a matrix to read a number; click, or use the sliders, to keep it"]];

function open(page) {
  const { source, state } = page;
  const said = make("p", { class: "position-said" });
  const why = make("p", { class: "position-none" });
  const parts = {
    query: new AddedVectors(page, "query"),
    key: new AddedVectors(page, "key"),
    bias: new BiasByDistance(page),
    rotary: new RotaryAngles(page),
  };
  const layers = makeSelect("Layer", (layer) => state.set({ layer: Number(layer) }));
  const element = make(
    "div",
    { class: "positions" },
    said,
    why,
    layers.element,
    parts.bias.element,
    parts.rotary.element,
    parts.query.element,
    parts.key.element,
  );

  const draw = () => {
    const { kind, layer } = state.values;
    layers.update(kind, () => source.layers(kind).map((each) => [each, each]), layer);
    const names = (side) =>
      source
        .tokens(kind, side)
        .filter((token) => !token.sink)
        .map((_, i) => state.units(side, { kind, units: "pieces" }).name(i));
    const tables = {
      query: source.positions(kind, "query"),
      key: kind === "cross" ? source.positions(kind, "key") : { table: null },
    };
    const bias = source.distances(kind, layer);
    const rotary = source.rotary(kind, layer);
    const known = tables.query.said;
    said.textContent = known === null ? "" : `Positions: ${known}.`;
    for (const side of ["query", "key"]) {
      const { table } = tables[side];
      parts[side].element.hidden = !table;
      const stack = kind === "cross" ? { query: "Decoder: ", key: "Encoder: " }[side] : "";
      if (table) parts[side].open(table, names(side), stack);
    }
    parts.bias.element.hidden = !(bias && !bias.dense);
    if (bias && !bias.dense) parts.bias.open(bias);
    parts.rotary.element.hidden = !rotary;
    if (rotary) parts.rotary.open(rotary, names("query").length, layer);
    layers.element.hidden = !(bias || rotary);
    why.textContent = reason(kind, tables, bias, rotary, known);
    why.hidden = why.textContent === "";
  };

  const changed = (names) => {
    if (["kind", "layer", "head", "look", "rows"].some((name) => names.has(name))) draw();
  };
  const print = () => draw;
  const start = () => {
    draw();
    whenWider(element, draw, state.gone);
  };
  return { element, start, changed, print };
}

// Why there is nothing, or less than somebody may look for; "" where all is drawn.
function reason(kind, tables, bias, rotary, known) {
  if (bias?.dense)
    return "This layer adds a bias that depends on more than the distance of two tokens, so there is no curve to draw: the Calculation tab has it for any two.";
  if (tables.query.table || tables.key.table || bias || rotary) return "";
  if (kind === "cross")
    return "Attention from decoder to encoder knows no distance: its queries and keys stand in different texts.";
  if (known === null || known.startsWith("as its own code")) {
    return "How this model knows positions cannot be seen from here: nothing is added to the scores by distance, and what its own code does to embeddings, queries and keys is not recorded.";
  }
  if (known !== "none") return "What this model adds for positions is not recorded in this page.";
  return "This model adds no vector for the position, biases no score by distance, and turns neither queries nor keys: there is nothing to draw.";
}

const fits = (source) => source.kinds.every((kind) => source.computed(kind));

export const VIEW = {
  name: "positions",
  label: "Positions",
  guide: "How the model knows where a word stands. Point at a picture to read a number.",
  help: HELP,
  fits,
  open,
};
