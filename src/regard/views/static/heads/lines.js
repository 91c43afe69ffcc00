// The lines between the two columns of tokens. A canvas as high as what is in view, never as the text:
// drawing costs the same for 10 tokens and for 10,000.

import { make } from "../base/dom.js";
import DRAWING from "../drawing.json";

const LEVELS = 20;

// How a line of a strength from 0 to 1 is drawn, on the page and in every picture, Python's too.
const { thinnest, thicker, palest, stronger, power } = DRAWING.line;
export const lineLook = (strength) => ({
  width: thinnest + thicker * strength,
  opacity: palest + stronger * strength ** power,
});

export class LineCanvas {
  constructor(className) {
    this.canvas = make("canvas", { class: className, "aria-hidden": "true" });
    this.context = this.canvas.getContext("2d");
  }

  resize(width, height) {
    // A canvas beyond 32,767 pixels stays empty: a long text on paper is drawn more coarsely.
    const ratio = Math.min(window.devicePixelRatio || 1, 32000 / height);
    this.canvas.width = Math.max(1, Math.round(width * ratio));
    this.canvas.height = Math.max(1, Math.round(height * ratio));
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.drawn = false;
    this.width = width;
    this.height = height;
  }

  // Not what is empty: Chromium prints the recorded steps, and on paper a cleared part wipes what is below it.
  clear() {
    if (this.drawn) this.context.clearRect(0, 0, this.width, this.height);
    this.drawn = false;
  }

  // groups: [{ lines, colour, dashes }], one for each head; lines: [y on the left, y on the right, strength from
  // 0 to 1] in a flat array; colour as CSS text. `faint` is for the overview, where hundreds of lines lie over
  // each other.
  draw(groups, { faint = false } = {}) {
    this.clear();
    this.drawn = true;
    const count = groups.reduce((sum, { lines }) => sum + lines.length / 3, 0);
    for (const group of groups) this.drawGroup(group, count, faint);
    this.context.setLineDash([]);
    this.context.globalAlpha = 1;
  }

  // One path per level of strength: the canvas strokes a path much faster than its lines one by one.
  drawGroup({ lines, colour, dashes }, count, faint) {
    const paths = new Array(LEVELS + 1).fill(null);
    const middle = this.width / 2;
    for (let i = 0; i < lines.length; i += 3) {
      const level = Math.max(1, Math.round(LEVELS * Math.sqrt(Math.min(1, lines[i + 2]))));
      const path = (paths[level] = paths[level] || new Path2D());
      path.moveTo(0, lines[i]);
      path.bezierCurveTo(middle, lines[i], middle, lines[i + 1], this.width, lines[i + 1]);
    }
    // A fan of 500 thin lines would add up to a solid wedge.
    const least = 0.16 * Math.min(1, Math.sqrt(30 / Math.max(1, count)));
    const { context } = this;
    context.strokeStyle = colour;
    context.lineCap = dashes.length > 0 ? "butt" : "round";
    context.setLineDash(dashes);
    paths.forEach((path, level) => {
      if (!path) return;
      const { width, opacity } = lineLook((level / LEVELS) ** 2);
      context.globalAlpha = faint ? opacity : Math.max(least, opacity);
      context.lineWidth = width;
      context.stroke(path);
    });
  }
}

// Keeps the `most` strongest of the lines; says which strength is the smallest that was kept, if any was left out.
export function strongestLines(lines, most) {
  if (lines.length <= 3 * most) return { lines, floor: null };
  const strengths = [];
  for (let i = 2; i < lines.length; i += 3) strengths.push(lines[i]);
  const floor = Float64Array.from(strengths).sort()[strengths.length - most];
  const kept = [];
  for (let i = 0; i < lines.length; i += 3) {
    if (lines[i + 2] >= floor) kept.push(lines[i], lines[i + 1], lines[i + 2]);
  }
  return { lines: kept, floor };
}
