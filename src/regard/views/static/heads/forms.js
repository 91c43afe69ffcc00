// The forms of the head view over one panel, and which of them is on.
//
// A form has: element, note; layout(), the words on show have changed; redraw(), the numbers have; request(resized), what
// is pointed at or the size; describe(); reveal(token), focusToken(token, visible); scale(), the steps of its legend or
// null; picture(), a sheet to be saved; pointing.moving, while the pointer moves; lacking, whether numbers are missing;
// print(on), as a view's.

import { makeChoice } from "../base/controls.js";
import { kept, make } from "../base/dom.js";
import { Diagram } from "./diagram.js";
import { lineLook } from "./lines.js";
import { HeadMap } from "./map.js";
import { Running } from "./running.js";
import { Strips } from "./strips.js";

const FORMS = { lines: Diagram, map: HeadMap, text: Running, all: Strips };
const OPTIONS = [
  ["lines", "Lines", "A line from each query to each key"],
  ["map", "Map", "A matrix with a row for each query"],
  ["text", "Text", "The text, shaded by the row of a word"],
  ["all", "All heads", "One word's row in every head"],
];
const MOST_LINES = 60; // words: of a longer text, lines show little

export const FORM_FIELDS = {
  form: {
    initial: null,
    read: (text) => (text in FORMS ? text : undefined),
    write: (form) => form,
  },
};

// The form that is on: the one that was chosen, or else what suits the length of the text.
export function formOf({ source, values }) {
  return values.form ?? (isLong({ source, values }) ? "text" : "lines");
}

export function isLong({ source, values: { kind } }) {
  return ["query", "key"].some((side) => source.tokens(kind, side).length > MOST_LINES);
}

export function makeForms(page, weights) {
  const made = new Map();
  const get = (name) => kept(made, name, () => new FORMS[name](page, weights));
  const choice = makeChoice({
    name: "form",
    legend: "How a head is drawn",
    classes: "forms",
    options: OPTIONS,
    value: () => formOf(page.state),
    choose: (form) => page.state.set({ form }),
  });
  return { get, choice };
}

// What thin and thick, or pale and dark, stand for.
export function makeScale({ colours }) {
  const element = make("span", { class: "scale" });
  const update = (form) => {
    const steps = form.scale();
    element.replaceChildren(
      ...(steps || []).map(({ number, colour, strength }) => {
        const sample = make("span", { class: strength === undefined ? "scale-cell" : "scale-line" });
        if (strength !== undefined) {
          const { width, opacity } = lineLook(strength);
          Object.assign(sample.style, { height: `${width}px`, opacity, backgroundColor: colours.of("--query") });
        } else sample.style.backgroundColor = colour;
        return make("span", {}, sample, number);
      }),
    );
  };
  return { element, update };
}
