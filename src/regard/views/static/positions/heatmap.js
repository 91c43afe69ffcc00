// A matrix as an image, one pixel an entry, with a cursor that the pointer moves: drawing costs the same for
// 16 entries and for a million elements that are not there.

import { parseColour } from "../base/colours.js";
import { make } from "../base/dom.js";
import { formatNumber } from "../neuron/figures.js";

const BAR = 65; // pixels of the scale
const MOST_NAMED = 32; // rows that are high enough for a word

export class PositionMap {
  // onPoint(row, column): the pointer is over an entry; onChoose: it was clicked.
  constructor({ colours }, { label, onPoint, onChoose }) {
    this.colours = colours;
    this.onPoint = onPoint;
    this.onChoose = onChoose;
    this.canvas = make("canvas", { class: "heat-canvas", "aria-hidden": "true" });
    this.row = make("span", { class: "heat-row" });
    this.column = make("span", { class: "heat-column" });
    this.box = make("div", { class: "heat-box" }, this.canvas, this.row, this.column);
    this.scale = make("div", { class: "heat-scale", "aria-hidden": "true" });
    this.rowNames = make("div", { class: "heat-names", "aria-hidden": "true" });
    this.columnNames = make("div", { class: "heat-names heat-columns", "aria-hidden": "true" });
    this.sheet = make("div", { class: "heat-sheet" }, this.rowNames, this.box, this.columnNames);
    this.element = make("figure", { class: "heat", "aria-label": label }, this.sheet, this.scale);
    this.box.addEventListener("pointermove", (event) => this.tell(event, this.onPoint));
    this.box.addEventListener("click", (event) => this.tell(event, this.onChoose));
    this.box.addEventListener("pointerleave", () => this.onPoint(null, null));
  }

  tell(event, tell) {
    const box = this.canvas.getBoundingClientRect();
    const place = (at, size, count) => Math.max(0, Math.min(count - 1, Math.floor((at / size) * count)));
    tell(
      place(event.clientY - box.top, box.height, this.rows),
      place(event.clientX - box.left, box.width, this.columns),
    );
  }

  // value(row, column); `limit`: the size that is drawn in full; `beyond`: there are larger ones.
  draw(rows, columns, value, limit, beyond = false) {
    this.rows = rows;
    this.columns = columns;
    this.paint(this.canvas, rows, columns, (row, column) => (limit > 0 ? value(row, column) / limit : 0));
    const bar = make("canvas", { class: "heat-bar" });
    this.paint(bar, 1, BAR, (_, column) => (2 * column) / (BAR - 1) - 1);
    const [least, most] = [-limit, limit].map((each) => formatNumber(each));
    this.scale.replaceChildren(
      make("span", {}, beyond ? `${least} and below` : least),
      bar,
      make("span", {}, beyond ? `${most} and above` : most),
    );
    // Few rows are drawn high, many as high as there is room.
    this.box.style.setProperty("--height", `${Math.max(40, Math.min(360, rows * 16))}px`);
  }

  // An image whose pixels are as strong as part(row, column), from -1 to 1.
  paint(canvas, rows, columns, part) {
    const [none, above, below] = ["--card", "--more", "--less"].map((name) => parseColour(this.colours.of(name)));
    canvas.width = columns;
    canvas.height = rows;
    const context = canvas.getContext("2d");
    const image = context.createImageData(columns, rows);
    for (let row = 0, at = 0; row < rows; row += 1) {
      for (let column = 0; column < columns; column += 1, at += 4) {
        const strength = part(row, column);
        const to = strength < 0 ? below : above;
        const share = Math.min(1, Math.abs(strength));
        for (let i = 0; i < 3; i += 1) image.data[at + i] = none[i] + (to[i] - none[i]) * share;
        image.data[at + 3] = 255;
      }
    }
    context.putImageData(image, 0, 0);
  }

  // The words of the rows; with `both`, of the columns too, and the cells are squares.
  name(names, both = false) {
    const some = names.length <= MOST_NAMED ? names : [];
    const list = () => some.map((name) => make("bdi", { dir: "auto" }, make("span", {}, name)));
    this.rowNames.replaceChildren(...list());
    this.columnNames.replaceChildren(...(both ? list() : []));
    this.sheet.classList.toggle("square", both);
  }

  // Where the cursor stands.
  mark(row, column) {
    const set = (name, at, count) => this.box.style.setProperty(name, `${(100 * (at + 0.5)) / count}%`);
    set("--row-at", row, this.rows);
    set("--column-at", column, this.columns);
  }
}
