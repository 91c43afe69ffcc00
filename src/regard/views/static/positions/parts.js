// What a section of the positions view is made of: sliders, a sentence with the number, a table.

import { make } from "../base/dom.js";
import { drawBars } from "../neuron/figures.js";

// A slider that moves the cursor: the keyboard's way, and the screen reader's.
export function makePositionSlider(label, onInput) {
  const range = make("input", { type: "range", min: "0", step: "1", "aria-label": label });
  const output = make("output", {});
  range.addEventListener("input", () => onInput(Number(range.value) + least));
  let least = 0;
  const update = (value, count, from = 0, text = String(value)) => {
    least = from;
    range.max = String(count - 1);
    range.value = String(value - from);
    range.setAttribute("aria-valuetext", text);
    output.textContent = text;
  };
  return { element: make("label", { class: "position-slider" }, make("span", {}, label), range, output), update };
}

export function makePositionTable(summary, fill) {
  const scroll = make("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": summary });
  const element = make("details", { class: "table" }, make("summary", {}, summary), scroll);
  const draw = () => {
    if (!element.open) {
      scroll.replaceChildren();
      return;
    }
    const { caption, header, rows } = fill();
    const body = rows.map(([first, ...others]) =>
      make("tr", {}, make("th", { scope: "row" }, first), ...others.map((text) => make("td", { dir: "auto" }, text))),
    );
    scroll.replaceChildren(
      make(
        "table",
        {},
        make("caption", {}, caption),
        make("thead", {}, make("tr", {}, ...header.map((text) => make("th", { scope: "col" }, text)))),
        make("tbody", {}, ...body),
      ),
    );
  };
  element.addEventListener("toggle", draw);
  return { element, draw };
}

export function makePositionSection(title, ...parts) {
  return make("section", { class: "position-section", "aria-label": title }, make("h2", {}, title), ...parts);
}

// The row under the cursor as bars, which tell a sign without its colour.
export class PositionProfile {
  constructor({ colours }) {
    this.colours = colours;
    this.canvas = make("canvas", { class: "position-profile", "aria-hidden": "true" });
  }

  draw(values, largest) {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (width > 0) drawBars(this.canvas, values, { largest, width, height, colours: this.colours });
  }
}
