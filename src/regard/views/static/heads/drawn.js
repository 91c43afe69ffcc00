// What is drawn: the weights, or another measure; and one line that says what that is and is not.

import { makeSelect } from "../base/controls.js";
import { formatDifference, make } from "../base/dom.js";
import { quantities, quantityOf } from "../base/measures.js";

const UNASKED =
  "It is put in the page where somebody asks for it: regard look --measures, or trace.page(measures=[...]).";
const MEASURES = ["norm", "value_zeroing", "rollout", "gradient"];

// What this page does not have, each with the reason, as options that cannot be chosen.
function missingFrom(source) {
  const { leftOut } = source.facts;
  if (!leftOut) return [];
  const told = new Map(leftOut.map(({ name, reason }) => [name, reason]));
  const there = new Set(source.kinds.flatMap((kind) => quantities(source, kind)));
  const missing = MEASURES.filter((name) => !there.has(name)).map((name) =>
    make("option", { disabled: true }, `${quantityOf(name).label}: ${told.get(name) || UNASKED}`),
  );
  return missing.length > 0 ? [make("optgroup", { label: "Not on this page" }, ...missing)] : [];
}

// A choice of what is drawn; null where there is nothing to choose and nothing to say.
export function makeDrawn({ source, state }) {
  const { element, select, update } = makeSelect("Show: what is drawn", (what) => state.set({ what }), "Show");
  element.classList.add("drawn");
  state.follow(["kind", "what"], () => {
    const { kind, what } = state.values;
    const names = () => quantities(source, kind).map((name) => [name, quantityOf(name).label]);
    update(kind, () => [...names(), ...missingFrom(source)], what);
  });
  element.hidden = select.options.length < 2 && source.kinds.every((kind) => quantities(source, kind).length < 2);
  return element;
}

// One line on what is drawn, where it is not the weights.
function sayDrawn(source, { kind, what }) {
  const { label, says, from, byLayer, signed, more, less } = quantityOf(what);
  const { difference, of } = source.measured(kind, what);
  const parts = [`${label}: ${says}${of ? `, ${of}` : ""}${from ? ` (${from})` : ""}.`];
  if (byLayer) parts.push("It is of the whole layer: every head of it shows the same.");
  if (signed) parts.push(`Solid and + ${more}; dashed and − ${less}.`);
  if (!source.facts.kernel) parts.push(`At most ${formatDifference(difference)} from Python.`);
  return parts.join(" ");
}

// The line; update() when what is drawn has changed.
export function makeSaid({ source, state }) {
  const line = make("p", { class: "note said-drawn", role: "status" });
  const update = () => {
    line.hidden = state.values.what === "weights" || !source.measured;
    line.textContent = line.hidden ? "" : sayDrawn(source, state.values);
  };
  return { line, update };
}
