// Words in a drawing, each where it lies over nothing else.

import { drawn } from "../base/dom.js";
import { widthOf } from "../base/save.js";

export const SIZE = 12; // pixels
const HIGH = 14;
const EDGE = 4;

const boxAround = (x, y, far) => ({ x: x - far, y: y - far, w: 2 * far, h: 2 * far });
const apart = (box) => (other) =>
  box.x + box.w < other.x || other.x + other.w < box.x || box.y + box.h < other.y || other.y + other.h < box.y;

// A line as small boxes.
function dotted([x, y], [toX, toY]) {
  const count = Math.ceil(Math.hypot(toX - x, toY - y) / 6);
  return Array.from({ length: count }, (_, i) =>
    boxAround(x + ((toX - x) * i) / count, y + ((toY - y) * i) / count, 1),
  );
}

export class Words {
  // width, height: of the part of the drawing where words may stand.
  constructor(svg, { width, height }) {
    this.svg = svg;
    this.width = width;
    this.height = height;
    this.taken = []; // by points and words
    this.traces = []; // of paths, which words lie over only where they must
  }

  keepClear(places, step) {
    places.forEach(([x, y], i) => this.taken.push(boxAround(x, y, i === step ? 8 : 5)));
    places.slice(1).forEach((to, i) => this.traces.push(...dotted(places[i], to)));
  }

  // Beside a point, the best place first; `needed` words stand further away rather than nowhere. Whether it stands.
  beside([x, y], text, look) {
    const w = widthOf(text, SIZE, look.bold);
    const far = look.bold ? 13 : 7;
    const rows = [-6, -18, 5, 12, -26, ...(look.needed ? [22, -38, 34, -50, 46, -62, 58] : [])];
    const columns = [x + far, x - far - w, x - w / 2];
    const boxes = rows.flatMap((row) => columns.map((left) => ({ x: left, y: y + row, w, h: HIGH })));
    const free = boxes.filter((box) => this.isFree(box));
    const box = free.find((each) => this.traces.every(apart(each))) ?? free[0];
    if (box) this.write(box, text, look);
    return Boolean(box);
  }

  // On a line between two points, where it is long enough.
  between([x, y], [toX, toY], text, look) {
    if (Math.hypot(toX - x, toY - y) <= 30) return;
    const w = widthOf(text, SIZE);
    const boxes = [0.5, 0.4, 0.6, 0.3, 0.7].map((part) => ({
      x: x + part * (toX - x) - w / 2,
      y: y + part * (toY - y) - HIGH / 2,
      w,
      h: HIGH,
    }));
    const box = boxes.find((each) => this.isFree(each));
    if (box) this.write(box, text, look);
  }

  isFree(box) {
    const inside = box.x > EDGE && box.x + box.w < this.width - EDGE && box.y > EDGE && box.y + box.h < this.height;
    return inside && this.taken.every(apart(box));
  }

  write(box, text, { fill, bold = false }) {
    this.taken.push(box);
    const look = { "font-size": SIZE, fill, "font-weight": bold ? 650 : null, class: "halo" };
    this.svg.append(drawn("text", { x: box.x, y: box.y + SIZE, ...look }, text));
  }
}
