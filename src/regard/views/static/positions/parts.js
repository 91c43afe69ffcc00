// What a section of the positions view is made of: a title, rows as bars.

import { make } from "../base/dom.js";
import { drawBars } from "../neuron/figures.js";

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
