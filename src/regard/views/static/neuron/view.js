// The neuron view: one query and one head, from q to the result, with every number in between.

import { makeButton, makeSelect } from "../base/controls.js";
import { make } from "../base/dom.js";
import { makeHeadPicks } from "../base/held.js";
import { saidOf } from "../base/scorers.js";
import { Chosen, NEURON_FIELDS } from "./chosen.js";
import { formatNumber, printed, times } from "./figures.js";
import { KeyRows } from "./rows.js";
import { NeuronTables } from "./table.js";
import { Worked } from "./worked.js";

const HELP = [
  ["why? beside a weight", "works that number out, in the Calculation tab"],
  ["↑ ↓, Page Up, Page Down, Home, End in the calculation", "another key; ← → another dimension"],
  ["Bars", "point up (green) for positive and down (purple) for negative numbers"],
];

function open(page) {
  const { source, state } = page;
  const chosen = new Chosen(page);
  const readout = make("p", { class: "neuron-readout note" });
  const rows = new KeyRows(page, chosen, (point) => describe(point));
  const worked = new Worked(page, chosen);
  const tables = new NeuronTables(chosen);
  const live = make("p", { class: "sr-only", role: "status", "aria-live": "polite" });
  const waiting = make("p", { class: "empty" }, "The numbers are on their way.");

  const pickQuery = (index) => state.set({ ...chosen.reach(index), key: null });
  const headPicks = makeHeadPicks(page, () => ({ key: chosen.key }));
  const picks = {
    query: makeSelect("Query", (query) => pickQuery(Number(query))),
    key: makeSelect("Key", (key) => state.set({ key: Number(key) })),
  };
  const turn = (by) => pickQuery(Math.max(0, Math.min(chosen.queries.length - 1, chosen.query + by)));
  const step = (label, by) => makeButton(by < 0 ? "‹" : "›", () => turn(by), { "aria-label": label });
  const back = () => state.set({ view: "heads", ...chosen.reach(chosen.query) });
  const controls = make(
    "div",
    { class: "controls neuron-controls" },
    headPicks.layer,
    headPicks.head,
    make("span", { class: "stepper" }, step("Query before", -1), picks.query.element, step("Query after", 1)),
    picks.key.element,
    makeButton("Show in the head view", back),
  );
  const body = make(
    "div",
    { class: "neuron-body" },
    make("section", { class: "neuron-left", "aria-label": "Every key" }, rows.element, readout, tables.element),
    worked.element,
  );
  const element = make("div", { class: "neuron" }, controls, waiting, body, live);

  // The number under the pointer, or the chosen dimension.
  function describe(point) {
    const { steps, key, dim } = chosen;
    if (!steps) return;
    const named = (index) => make("bdi", { class: "neuron-named", dir: "auto" }, `“${chosen.nameOf("key", index)}”`);
    const { what, index } = point || { what: "product", index: dim };
    const of = point && point.key !== null ? point.key : key;
    if (what === "context") readout.textContent = `Result, dimension ${index}: ${formatNumber(steps.context[index])}.`;
    else if (what === "q") readout.textContent = `q, dimension ${index}: ${formatNumber(steps.q[index])}.`;
    else if (chosen.isSink(of)) readout.textContent = "The sink has no k and no v.";
    else if (what === "weighted") {
      const v = steps.v[of * steps.vDim + index];
      const product = steps.weights[of] * v;
      const { texts, equals } = printed([steps.weights[of], v], times, product);
      const said = `: weight ${texts[0]} × v ${texts[1]} ${equals} ${formatNumber(product)}.`;
      readout.replaceChildren(`Dimension ${index} of v, `, named(of), said);
    } else {
      const both = chosen.factors(index, of);
      const { left, right } = saidOf(steps.scorer);
      const { texts, equals } = printed(both, times, times(...both));
      const said = `: ${left} ${texts[0]} × ${right} ${texts[1]} ${equals} ${formatNumber(times(...both))}.`;
      readout.replaceChildren(`Dimension ${index}, `, named(of), said);
    }
  }

  let announcing = 0;
  function announce() {
    const { query, key, steps } = chosen;
    clearTimeout(announcing);
    announcing = setTimeout(() => {
      live.textContent = `${chosen.nameOf("query", query)} and ${chosen.nameOf("key", key)}: weight ${formatNumber(steps.weights[key])}.`;
    }, 250);
  }

  function showPicks() {
    const { kind, query, key, queries, keys } = chosen;
    headPicks.update();
    picks.query.update(kind, () => queries.map((_, i) => [i, `${i} ${chosen.nameOf("query", i)}`]), query);
    picks.key.update(kind, () => keys.map((_, i) => [i, `${i} ${chosen.nameOf("key", i)}`]), key);
  }

  // What the rows show: drawn again only where it is another.
  let drawn = "";
  function draw() {
    const ready = source.computed(state.values.kind) && chosen.update();
    body.hidden = !ready;
    waiting.hidden = ready;
    if (!ready) return;
    showPicks();
    if (chosen.name !== drawn) rows.redraw();
    else rows.mark();
    rows.wanted = true;
    rows.request();
    drawn = chosen.name;
    worked.draw();
    tables.draw();
    describe(null);
    announce();
  }

  const changed = (names) => {
    if (names.has("look")) rows.redraw();
    if (!(names.size === 1 && names.has("hover"))) draw();
  };
  const print = (on) => {
    rows.whole = on;
    return () => {
      rows.fresh = true;
      rows.draw();
    };
  };
  return { element, start: draw, changed, print };
}

const fits = (source) => source.kinds.every((kind) => source.computed(kind));

export const VIEW = {
  name: "neuron",
  label: "Calculation",
  fields: NEURON_FIELDS,
  guide: "How one weight comes about, from left to right. Click a word to have it worked out.",
  help: HELP,
  fits,
  open,
};
