// A text as a model writes it: at each step what it read, the words that could have come, and the one that came.

import { makeChoice, makeSelect } from "../base/controls.js";
import { make, makeNote, makeSection, readable } from "../base/dom.js";
import { heldOf } from "../base/held.js";
import { makePlayer } from "../base/player.js";
import { sheetOf } from "../base/sheet.js";
import { countOr, oneOf } from "../base/state.js";
import { Alignment } from "./alignment.js";
import { makeBranches } from "./branches.js";
import { percent, Steps } from "./steps.js";
import { WrittenText } from "./text.js";

const LISTED = 5; // words that were read
const READS = [
  ["head", "One head", "The weights of one head"],
  ["layer", "Its layer", "The mean of the layer's heads"],
  ["all", "All heads", "The mean of all heads of all layers"],
];
const HELP = [
  ["Writing: ← → on the slider, or [ ]", "the word before and the next one; a click on a written word goes there"],
  ["In the beam and in the alignment", "a click goes to the step"],
];

function open(page) {
  const { source, state, colours } = page;
  const steps = new Steps(page);
  const { writing } = source.facts;
  const crossed = source.kinds.includes("cross");

  const title = make("h2", { class: "where" });
  const heads = makeSelect("Head", (name) => {
    const [layer, head] = name.split(".").map(Number);
    state.set({ layer, head, also: [] });
  });
  const reads = makeChoice({
    name: "reads",
    legend: "Whose weights are shown",
    options: READS,
    value: () => state.values.reads,
    choose: (how) => state.set({ reads: how }),
  });
  const player = makePlayer({
    label: "Word",
    slider: "Word that is being written",
    count: () => steps.all.length,
    place: () => steps.place(),
    // The other views go along: they show the row that was read.
    go: (word) => {
      const row = state.values.kind === "encoder" ? {} : { pin: { side: "query", index: steps.token(word) - 1 } };
      state.set({ word, hover: null, ...row });
    },
    said: (at) => [`${at + 1} of ${steps.all.length}: `, make("bdi", { dir: "auto" }, steps.name(at))],
    film: { name: "writing", sheet: () => picture(), colours },
  });
  const go = (step) => player.turn(step);
  const text = new WrittenText(page, steps, go);
  const read = make("ol", { class: "writing-bars read" });
  const next = make("ol", { class: "writing-bars next" });
  const readNote = makeNote();
  const nextNote = makeNote();
  const alignment = crossed ? new Alignment(page, steps, go) : null;
  const branches = makeBranches(page, go);

  const bar = ({ name, part, taken = false, said = "" }) => {
    const wide = `${Math.max(0.7, 100 * part)}%`; // what is almost nothing can be seen
    return make(
      "li",
      { class: taken ? "taken" : null, title: part.toFixed(4), "--part": wide },
      make("bdi", { dir: "auto", class: "bar-name" }, name),
      make("span", { class: "bar", "aria-hidden": "true" }),
      make("span", { class: "bar-part" }, percent(part)),
      ...(taken ? [make("span", { class: "bar-said" }, said || "written")] : []),
    );
  };

  const drawNext = (place) => {
    const { text: word, probability, place: rank, likeliest } = steps.all[place];
    const rows = likeliest.map(([name, part], i) => bar({ name: readable(name), part, taken: i === rank }));
    const listed = likeliest.reduce((sum, [, part]) => sum + part, 0);
    if (rank >= likeliest.length)
      rows.push(bar({ name: readable(word), part: probability, taken: true, said: `written, ${rank + 1}th` }));
    next.replaceChildren(...rows);
    const all = listed + (rank >= likeliest.length ? probability : 0);
    nextNote.textContent = `${percent(Math.max(0, 1 - all))} on all other words. ${writing.how}`;
  };

  const drawRead = (place) => {
    const row = steps.row(place);
    const units = state.units(steps.kind() === "cross" ? "key" : "query", {
      ...state.values,
      kind: steps.kind(),
      units: "pieces",
    });
    const keys = units.all.filter(({ special, sink }) => !sink && (!special || state.values.specials));
    const parts = (row ? keys : [])
      .map(({ first }) => ({ name: units.name(first), part: row[first] || 0 }))
      .filter(({ part }) => part > 0)
      .sort((a, b) => b.part - a.part)
      .slice(0, LISTED);
    read.replaceChildren(...parts.map(bar));
    const rest = Math.max(0, 1 - parts.reduce((sum, { part }) => sum + part, 0));
    const by = steps.token(place) - 1;
    const reader = state.units("query", { ...state.values, kind: crossed ? "cross" : "decoder", units: "pieces" });
    const others = rest < 1e-5 ? "" : `${percent(rest)} on all others. `;
    readNote.textContent = row
      ? `${others}The row of ${reader.name(by)}, the last word that was there; ${steps.named()}.`
      : "The numbers are on their way.";
  };

  const drawHeads = () => {
    const kind = steps.kind();
    const { layer, head, reads: how } = state.values;
    const named = () =>
      source
        .layers(kind)
        .flatMap((each) => heldOf(source, kind, each).map((one) => [`${each}.${one}`, `layer ${each}, head ${one}`]));
    heads.update(kind, named, `${layer}.${head}`);
    heads.element.hidden = how === "all" || state.values.kind === "encoder";
    reads.element.hidden = state.values.kind === "encoder";
    reads.update();
  };

  const draw = () => {
    const place = steps.place();
    title.replaceChildren(
      ...(writing.ended && place === steps.all.length - 1 ? ["The text ends: "] : ["The next word: "]),
      make("bdi", { dir: "auto" }, steps.name(place)),
    );
    player.update();
    drawHeads();
    text.draw(place);
    drawNext(place);
    drawRead(place);
    alignment?.redraw();
    branches?.draw(place);
  };
  const layout = () => {
    text.layout();
    alignment?.layout();
    draw();
  };

  const figure = make(
    "div",
    { class: "writing-figure" },
    text.element,
    make(
      "div",
      { class: "writing-lists" },
      makeSection({ "aria-label": "What it reads" }, crossed ? "Where it looks" : "What it reads", read, readNote),
      makeSection({ "aria-label": "What could come" }, "What could come next", next, nextNote),
    ),
    make("div", { class: "writing-ways" }, ...[branches, alignment].filter(Boolean).map((each) => each.element)),
  );
  const controls = make("div", { class: "controls" }, reads.element, heads.element);
  const top = make("div", { class: "view-top" }, title, controls);
  const element = make("div", { class: "writing" }, top, player.element, figure);
  element.addEventListener("keydown", (event) => {
    const by = { "[": -1, "]": 1 }[event.key];
    if (!by || event.metaKey || (event.ctrlKey && !event.altKey)) return;
    event.preventDefault();
    go(steps.place() + by);
  });
  // What is folded away is no part of it.
  const picture = () => {
    if (branches) branches.table.hidden = true;
    const said = { title: `${source.facts.model}: ${title.textContent}`, name: "writing" };
    const sheet = sheetOf(figure, said, colours);
    if (branches) branches.table.hidden = false;
    return sheet;
  };

  const changed = (names) => {
    if (names.has("specials")) layout();
    else if (["word", "reads", "kind", "layer", "head", "rows", "look"].some((name) => names.has(name))) draw();
  };
  const print = (on) => {
    const again = alignment?.print(on);
    return () => {
      again?.();
      draw();
    };
  };
  return { element, start: layout, changed, print, picture };
}

const fields = {
  word: countOr(null),
  reads: oneOf(READS.map(([name]) => name)),
};

export const VIEW = {
  name: "writing",
  label: "Writing",
  fits: (source) => Boolean(source.facts.writing),
  fields,
  guide: "The framed word is being written. Blue is what the model read to choose it.",
  help: HELP,
  open,
};
