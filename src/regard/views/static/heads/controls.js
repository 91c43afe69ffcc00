// The switches above the diagram, and the legend of the heads on show.

import { makeButton, makeChoice, makeMenu, makeSlider, makeSwitch } from "../base/controls.js";
import { make, makeNote } from "../base/dom.js";
import { PAIR_FILTERS } from "../base/state.js";
import { toggleHead } from "./choice.js";
import { THRESHOLDS } from "./weights.js";

function makeFilter(state) {
  const { element, update } = makeChoice({
    name: "filter",
    legend: "Which text looks at which",
    options: PAIR_FILTERS.map(({ name, label }) => [name, label]),
    value: () => state.values.filter,
    choose: (filter) => state.set({ filter }),
    classes: "pairs",
  });
  state.listen((changed) => changed.has("filter") && update());
  return element;
}

// How lines and bars are drawn; numbers stay what they are.
function makeStrength(state) {
  const slider = makeSlider("Least weight", (place) => state.set({ least: THRESHOLDS[place] }));
  state.follow(["least", "what"], () => {
    const { least, what } = state.values;
    const of = what === "weights" ? "" : " of the largest";
    slider.update(THRESHOLDS.indexOf(least), THRESHOLDS.length, least === 0 ? "all" : `from ${least}${of}`);
  });
  const full = makeChoice({
    name: "largest",
    legend: "What the thickest line stands for",
    options: [
      ["head", "Head's largest", "The largest weight of the head among the tokens on show"],
      ["own", "Row's", "Of each row its own largest weight"],
      ["one", "1", "A weight of 1, or what a measure is at most"],
    ],
    value: () => state.values.largest,
    choose: (largest) => state.set({ largest }),
  });
  state.listen((changed) => changed.has("largest") && full.update());
  return makeMenu(
    "Display",
    "strength",
    slider.element,
    makeSwitch(state, "Logarithmic", "scale", ["linear", "log"]),
    make("div", { class: "full" }, make("span", {}, "Thickest line ="), full.element),
    makeNote("This changes what is drawn. Every number stays the weight."),
  );
}

// Controls that only some kinds of attention need come and go with the kind.
export function makeControls({ source, state }) {
  const sides = (kind) => ["query", "key"].map((side) => ({ tokens: source.tokens(kind, side) }));
  const any = (test) => source.kinds.some((kind) => sides(kind).some(({ tokens }) => test(tokens)));
  const parts = [];
  if (any((tokens) => tokens.some((token, i) => i > 0 && token.word !== null && token.word === tokens[i - 1].word))) {
    parts.push(makeSwitch(state, "Whole words", "units", ["pieces", "words"]));
  }
  if (any((tokens) => tokens.some((token) => token.special))) {
    const title = "Hiding changes no number.";
    parts.push(Object.assign(makeSwitch(state, "Special tokens", "specials"), { title }));
  }
  if (source.kinds.some((kind) => source.pair(kind))) {
    const filter = makeFilter(state);
    state.follow(["kind"], () => (filter.hidden = !source.pair(state.values.kind)));
    parts.push(filter);
  }
  return make("div", { class: "controls" }, ...parts, makeStrength(state));
}

// The heads on show, where there are several: colour, dashes and letter of each; a click lets one go.
export function makeLegend({ state, colours }) {
  const list = make("ul", { class: "legend", "aria-label": "Heads on show" });
  const update = (heads) => {
    list.hidden = heads.length < 2;
    list.replaceChildren(
      ...(list.hidden ? [] : heads).map(({ layer, head, place }) => {
        const line = make("span", { class: "legend-line", "aria-hidden": "true" });
        line.style.backgroundImage = dashesOf(colours.dashes(place), colours.series(place));
        const said = `Layer ${layer}, head ${head}: let go`;
        const parts = [
          line,
          make("span", { class: "letter" }, colours.letter(place)),
          make("span", {}, `${layer}.${head}`),
          make("span", { class: "close", "aria-hidden": "true" }, "×"),
        ];
        const named = { class: null, "aria-label": said, title: said };
        return make(
          "li",
          {},
          makeButton(parts, () => toggleHead(state, layer, head), named),
        );
      }),
    );
  };
  return { element: list, update };
}

// A canvas's dashes as a background that repeats.
function dashesOf(dashes, colour) {
  if (dashes.length === 0) return `linear-gradient(${colour}, ${colour})`;
  const stops = [];
  let at = 0;
  dashes.forEach((length, i) => {
    const paint = i % 2 === 0 ? colour : "transparent";
    stops.push(`${paint} ${at}px`, `${paint} ${at + length}px`);
    at += length;
  });
  return `repeating-linear-gradient(to right, ${stops.join(", ")})`;
}
