// A file of a long text holds the q and k of some heads alone; of the others it has the numbers and a small picture.
// A page to put inside another (held.only, the number of all heads) has nothing of the others.
// What is said of that, and how the keys go past those heads.

import { makeButton, makeSelect } from "./controls.js";
import { make } from "./dom.js";
import { stretches } from "./numbers.js";

const MOST_GROUPS = 8; // layers with the same heads, of which the line tells

const named = ({ layer, head }) => `${layer}.${head}`;

// All heads of a kind, [{ layer, head }], layer by layer.
export function allHeads(source, kind) {
  const headsOf = (layer) => Array.from({ length: source.heads(kind, layer) }, (_, head) => ({ layer, head }));
  return source.layers(kind).flatMap(headsOf);
}

// The held heads of a layer, in order.
export function heldOf(source, kind, layer) {
  return Array.from({ length: source.heads(kind, layer) }, (_, head) => head).filter((head) =>
    source.holds(kind, layer, head),
  );
}

// The nearest of a layer's held heads; null where it has none.
export function nearestIn(source, kind, layer, head) {
  const apart = (each) => Math.abs(each - head);
  return heldOf(source, kind, layer).reduce(
    (best, each) => (best === null || apart(each) < apart(best) ? each : best),
    null,
  );
}

// The nearest held head, { layer, head }: in its own layer if there is one.
export function nearestHeld(source, kind, { layer, head }) {
  const layers = source
    .layers(kind)
    .slice()
    .sort((a, b) => Math.abs(a - layer) - Math.abs(b - layer));
  for (const each of layers) {
    const found = nearestIn(source, kind, each, head);
    if (found !== null) return { layer: each, head: found };
  }
  throw new Error(`this file holds no head of ${kind} attention`);
}

// [0, 1, 2, 5] as "0–2, 5".
const ranges = (numbers) =>
  stretches(numbers)
    .map(([from, to]) => (from === to ? String(from) : `${from}–${to}`))
    .join(", ");

// A layer and one of its held heads, to choose from; more(): what a choice sets besides.
export function makeHeadPicks({ source, state }, more = () => ({})) {
  const pick = (label, name) => makeSelect(label, (to) => state.set({ [name]: Number(to), also: [], ...more() }));
  const [layers, heads] = [pick("Layer", "layer"), pick("Head", "head")];
  const update = () => {
    const { kind, layer, head } = state.values;
    const numbers = (all) => () => all.map((each) => [each, each]);
    layers.update(kind, numbers(source.layers(kind).filter((each) => heldOf(source, kind, each).length > 0)), layer);
    heads.update(`${kind}.${layer}`, numbers(heldOf(source, kind, layer)), head);
  };
  return { layer: layers.element, head: heads.element, update };
}

// Which heads of a kind are held, layers with the same heads together.
function heldSaid(source, kind) {
  const groups = new Map();
  for (const layer of source.layers(kind)) {
    const held = heldOf(source, kind, layer);
    const heads = held.length > 0 ? `${held.length === 1 ? "head" : "heads"} ${ranges(held)}` : "none";
    groups.set(heads, [...(groups.get(heads) || []), layer]);
  }
  const layers = (numbers) => `layer${numbers.length === 1 ? "" : "s"} ${ranges(numbers)}`;
  const parts = [...groups].map(([heads, numbers]) => `${layers(numbers)}: ${heads}`);
  return (parts.length > MOST_GROUPS ? [...parts.slice(0, MOST_GROUPS), "and others"] : parts).join("; ");
}

// How a page is made that holds these heads.
function wayTo({ facts, kinds }, kind, heads) {
  const full = kinds.length > 1;
  const list = heads
    .map((each) => (full ? `("${kind}", ${each.layer}, ${each.head})` : `(${each.layer}, ${each.head})`))
    .join(", ");
  if (facts.compared) return `trace.difference_page(other, heads=[${list}])`;
  if (facts.movement) return `comparison_page(traces, word, heads=[${list}])`;
  if (facts.writing) return `written.page(heads=[${list}])`;
  const names = heads.map((each) => (full ? `${kind}.${named(each)}` : named(each))).join(",");
  const which = facts.held.only ? "only" : "heads";
  return `regard look --${which} ${names}, or trace.page(${which}=[${list}])`;
}

// One line for every view; null where all heads are held.
export function makeHeld(source, state) {
  const { held } = source.facts;
  if (!held) return null;
  const line = make("p", { class: "held" });
  state.follow(["kind"], () => {
    const { kind } = state.values;
    const all = allHeads(source, kind);
    const missing = all.filter(({ layer, head }) => !source.holds(kind, layer, head));
    const count = all.length - missing.length;
    const size = (mb) => (mb < 10 ? mb.toFixed(1) : String(Math.ceil(mb)));
    line.textContent = held.only
      ? `This page holds ${count} of the model's ${held.only} heads (${heldSaid(source, kind)}), and nothing of the others.`
      : missing.length > 0
        ? `This file holds ${count} of ${all.length} heads (${heldSaid(source, kind)}): all would take ${size(held.all)} MB, and it may take ${size(held.most)} (max_mb). ` +
          `The others are hatched, and have their statistics; to open one: ${wayTo(source, kind, missing.slice(0, 1))}.`
        : "";
    line.hidden = line.textContent === "";
  });
  return line;
}

// Says, where the reader is, that a head was asked for which is not held.
export function makeRefusal(source, state) {
  if (!source.facts.held) return null;
  const said = make("span", {});
  const close = makeButton("Close", () => state.set({ refused: null }));
  const box = make("div", { class: "refusal" }, said, close);
  const region = make("div", { role: "status", "aria-live": "polite" }, box);
  const update = () => {
    const { refused, kind, layer, head } = state.values;
    box.hidden = refused === null;
    if (refused === null) {
      said.textContent = "";
      return;
    }
    const which =
      refused.length === 1
        ? `Layer ${refused[0].layer}, head ${refused[0].head} is`
        : `${refused.map(named).join(", ")} are`;
    said.textContent = `${which} not in this file, which shows layer ${layer}, head ${head}. To have ${refused.length === 1 ? "it" : "them"}: ${wayTo(source, kind, refused)}.`;
  };
  state.listen((changed) => (changed.has("refused") || state.values.refused) && update());
  update();
  return region;
}
