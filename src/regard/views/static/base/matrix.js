// A matrix of numbers as shaded cells, with a name for each row and column: of a head, or of one word in all heads. The
// canvases are as large as what is in view, never as the matrix.

import DRAWING from "../drawing.json";
import { make, onceAFrame, whenResized } from "./dom.js";
import {
  BASELINE,
  BESIDE,
  excerpt,
  FONTS,
  heading,
  MARGIN,
  nameWidth,
  saidWidth,
  titleWidth,
  widthOf,
} from "./save.js";
import { inkOn, mixed } from "./shade.js";

const MOST = 44;
const NUMBERED = 26; // from here up a number fits

export class Matrix {
  // What a matrix of its own says: fill() calls put(rows, columns); at(row, column) is of a cell, { weight, strength,
  // place } or null; lit(), what stands out; said(row, column), the cell in words; move(cell), the pointer is there.
  least = 0; // pixels, of the corner
  type = 14; // pixels, of a name
  longest = 150; // pixels of one, at most
  narrow = 18; // pixels of a cell, at least: a name needs as much
  flat = 0; // pixels of a row, where cells need not be square
  high = 0; // pixels of a row
  x = 0; // how far it is scrolled
  y = 0;
  fill() {}
  /** @returns {any} */
  at(_row, _column) {
    return null;
  }
  /** @returns {{ rows: any[], columns: any[], faint: number[][] }} */
  lit() {
    return { rows: [], columns: [], faint: [] };
  }
  said(_row, _column) {
    return "";
  }
  describe() {}
  move(_cell) {}

  constructor(page, weights) {
    this.page = page;
    this.state = page.state;
    this.colours = page.colours;
    this.weights = weights;
    this.nextFrame = onceAFrame(() => this.draw());
    this.cells = make("canvas", { class: "lines", "aria-hidden": "true" });
    this.over = make("canvas", { class: "lines", "aria-hidden": "true" });
    this.canvases = make("div", { class: "matrix-canvases" }, this.cells, this.over);
    this.body = make("div", { class: "matrix-body" }, this.canvases);
    this.corner = make("div", { class: "matrix-corner" }, "");
    this.columnNames = make("div", { class: "matrix-columns", role: "listbox", "aria-orientation": "horizontal" });
    this.rowNames = make("div", { class: "matrix-rows", role: "listbox" });
    this.sheet = make("div", { class: "matrix" }, this.corner, this.columnNames, this.rowNames, this.body);
    this.stage = make("div", { class: "stage matrix-stage", tabindex: "-1" }, this.sheet);
    this.note = make("p", { class: "note floor" });
    this.tip = make("span", { class: "running-tip", "aria-hidden": "true", hidden: true }, "");
    this.body.append(this.tip);
    this.element = make("div", { class: "headview" }, this.stage);
    this.stage.addEventListener("scroll", () => this.redraw(), { passive: true });
    whenResized(this.stage, () => this.request(true), this.state.gone);
    this.body.addEventListener("pointermove", (event) => this.point(this.cellUnder(event)));
    this.body.addEventListener("pointerleave", () => this.point(null));
    this.pointed = null;
  }

  request(resized = false) {
    this.resized = this.resized || resized;
    this.stale = this.stale || resized;
    this.nextFrame();
  }

  // Other numbers than those that were drawn.
  redraw() {
    this.stale = true;
    this.nextFrame();
  }

  layout() {
    this.fill();
    this.request(true);
  }

  // rows, columns: [{ name, element }].
  put(rows, columns) {
    this.rows = rows;
    this.columns = columns;
    this.rowNames.replaceChildren(...rows.map(({ element }) => element));
    this.columnNames.replaceChildren(...columns.map(({ element }) => element));
    const widest = (all) =>
      Math.min(this.longest, 14 + Math.max(20, ...all.map(({ name }) => widthOf(name, this.type))));
    this.left = Math.max(widest(rows), this.least);
    this.top = widest(columns);
  }

  measure() {
    if (this.stage.clientWidth === 0) return;
    this.resized = false;
    const room = this.stage.clientWidth - this.left;
    const high = Math.floor((this.stage.clientHeight - this.top - 12) / this.rows.length);
    const fit = Math.min(Math.floor(room / this.columns.length), this.flat ? MOST : Math.max(NUMBERED, high));
    this.cell = Math.max(this.whole ? 6 : this.narrow, Math.min(MOST, fit));
    this.high = this.flat || this.cell;
    this.sheet.style.setProperty("--cell", `${this.cell}px`);
    this.sheet.style.setProperty("--high", `${this.high}px`);
    this.sheet.style.setProperty("--left", `${this.left}px`);
    this.sheet.style.setProperty("--top", `${this.top}px`);
    this.sheet.style.setProperty("--columns", String(this.columns.length));
    this.sheet.style.setProperty("--rows", String(this.rows.length));
    this.width = Math.min(room, this.cell * this.columns.length);
    this.height = Math.min(Math.max(40, this.stage.clientHeight - this.top), this.high * this.rows.length);
    if (this.whole) this.height = this.high * this.rows.length;
    const ratio = Math.min(window.devicePixelRatio || 1, 32000 / this.height);
    for (const canvas of [this.cells, this.over]) {
      canvas.width = Math.round(this.width * ratio);
      canvas.height = Math.round(this.height * ratio);
      Object.assign(canvas.style, { width: `${this.width}px`, height: `${this.height}px` });
      canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    this.empty = [true, true];
    this.canvases.style.height = `${this.height}px`;
    this.canvases.style.width = `${this.width}px`;
  }

  draw() {
    if (!this.rows) return;
    if (this.resized) this.measure();
    if (this.resized) return; // it is not on show
    if (this.stale) this.drawCells();
    this.drawOver();
    this.describe();
  }

  // Not what is empty: Chromium prints the recorded steps, and on paper a cleared part wipes what is below it.
  clear(canvas, i) {
    const context = canvas.getContext("2d");
    if (!this.empty[i]) context.clearRect(0, 0, this.width, this.height);
    this.empty[i] = false;
    return context;
  }

  drawCells() {
    this.stale = false;
    this.lacking = false;
    const context = this.clear(this.cells, 0);
    const { cell, high } = this;
    [this.x, this.y] = [this.stage.scrollLeft, this.stage.scrollTop];
    const [firstRow, firstColumn] = [Math.floor(this.y / high), Math.floor(this.x / cell)];
    const lastRow = Math.min(this.rows.length, Math.ceil((this.y + this.height) / high));
    const lastColumn = Math.min(this.columns.length, Math.ceil((this.x + this.width) / cell));
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.font = `${cell >= 32 ? 12 : 11}px ${FONTS}`;
    for (let row = firstRow; row < lastRow; row += 1) {
      for (let column = firstColumn; column < lastColumn; column += 1) {
        const found = this.at(row, column);
        const [x, y] = [column * cell - this.x, row * high - this.y];
        this.paint(context, found, x, y);
      }
    }
  }

  paint(context, found, x, y) {
    const { cell, high } = this;
    const colour = this.colourOf(found);
    context.fillStyle = colour;
    context.fillRect(x, y, cell, high);
    if (found && found.weight < 0 && found.strength > 0.04) {
      // The sign, for whom colours do not tell it.
      context.strokeStyle = inkOn(colour);
      context.lineWidth = 0.7;
      context.beginPath();
      context.moveTo(x + 1, y + 6);
      context.lineTo(x + 6, y + 1);
      context.stroke();
    }
    if (!found || Math.min(cell, high) < NUMBERED) return;
    context.fillStyle = inkOn(colour);
    context.fillText(short(found.weight), x + cell / 2, y + high / 2 + 0.5);
  }

  colourOf(found) {
    const none = this.colours.of("--card");
    if (!found || found.strength === 0) return none;
    return mixed(none, this.fullColour(found), found.strength);
  }

  fullColour({ weight, place }) {
    if (this.weights.signed) return this.colours.of(weight < 0 ? "--less" : "--more");
    return this.weights.heads.length > 1 ? this.colours.series(place) : this.colours.of("--query");
  }

  // What the pointer and the choice do to it: a frame around them, the rest paler.
  drawOver() {
    const context = this.clear(this.over, 1);
    const { cell, high, x, y } = this;
    const { rows, columns, faint } = this.lit();
    context.fillStyle = this.colours.of("--paper");
    context.globalAlpha = 0.55;
    for (const [from, to] of faint) context.fillRect(0, from * high - y, this.width, (to - from) * high);
    context.globalAlpha = 1;
    context.lineWidth = 2;
    for (const { from, to, colour } of rows) {
      context.strokeStyle = this.colours.of(colour);
      context.strokeRect(1 - x, from * high - y + 1, this.columns.length * cell - 2, (to - from) * high - 2);
    }
    for (const { from, to, colour } of columns) {
      context.strokeStyle = this.colours.of(colour);
      context.strokeRect(from * cell - x + 1, 1 - y, (to - from) * cell - 2, this.rows.length * high - 2);
    }
    const { pointed } = this;
    this.tip.hidden = !pointed;
    if (!pointed) return;
    const [left, top] = [pointed.column * cell, pointed.row * high];
    context.strokeStyle = this.colours.of("--ink");
    context.strokeRect(left - x + 1, top - y + 1, cell - 2, high - 2);
    this.tip.textContent = this.said(pointed.row, pointed.column);
    const over = top - y > 30 ? top - 28 : top + high + 6;
    const beyond = left - x > this.width - 180;
    this.tip.style.transform = `translate(${beyond ? left + cell : left}px, ${over}px)${beyond ? " translateX(-100%)" : ""}`;
  }

  cellUnder(event) {
    const box = this.canvases.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left + this.stage.scrollLeft) / this.cell);
    const row = Math.floor((event.clientY - box.top + this.stage.scrollTop) / this.high);
    return this.rows[row] && this.columns[column] ? { row, column } : null;
  }

  point(cell) {
    const { pointed } = this;
    if (pointed?.row === cell?.row && pointed?.column === cell?.column) return;
    this.pointed = cell;
    this.move(cell);
    this.nextFrame();
  }

  // Brings a row or a column into view.
  bring(side, place) {
    const { stage } = this;
    const [from, room, name, size] =
      side === "row"
        ? [stage.scrollTop, stage.clientHeight - this.top, "scrollTop", this.high]
        : [stage.scrollLeft, stage.clientWidth - this.left, "scrollLeft", this.cell];
    if (place * size < from) stage[name] = place * size;
    else if ((place + 1) * size > from + room) stage[name] = (place + 1) * size - room;
  }

  print(on) {
    return () => {
      this.whole = on;
      this.resized = this.stale = true;
      this.draw();
    };
  }

  // As a picture to be saved: every cell, with its number as far as it fits.
  sheetOf(title, said, corner) {
    const shapes = [];
    const { numbered, plain, ...rules } = DRAWING.map;
    const isNumbered = this.columns.length <= numbered.most;
    const { cell, size } = isNumbered ? numbered : plain;
    const high = this.flat ? plain.cell : cell;
    const names = (all) => nameWidth(all.map(({ name }) => name));
    const [left, top] = [MARGIN + Math.max(rules.corner, names(this.rows)) + BESIDE, rules.top + names(this.columns)];
    const ink = this.colours.of("--ink");
    const soft = this.colours.of("--soft");
    const text = (x, y, what, more) =>
      shapes.push({ kind: "text", x, y, text: what, size, colour: ink, anchor: "start", ...more });
    this.rows.forEach((row, i) => {
      this.columns.forEach((_, j) => {
        const found = this.at(i, j);
        const colour = this.colourOf(found);
        const [x, y] = [left + cell * j, top + high * i];
        shapes.push({ kind: "box", x, y, width: cell, height: high, colour, said: this.said(i, j) });
        const middle = { anchor: "middle", size: numbered.number, colour: inkOn(colour) };
        if (found && isNumbered && !this.flat) text(x + cell / 2, y + high / 2, short(found.weight), middle);
      });
      text(left - BESIDE, top + high * (i + 0.5), excerpt(row.name), { anchor: "end" });
    });
    this.columns.forEach(({ name }, j) =>
      text(left + cell * (j + 0.5) + BASELINE * size, top - rules.above, excerpt(name), { turn: 90 }),
    );
    text(left - BESIDE, top - rules.axis, corner, { anchor: "end", size: DRAWING.axis.size, colour: soft });
    const [right, bottom] = [left + cell * this.columns.length, top + high * this.rows.length];
    const frame = (from, to) => shapes.push({ kind: "line", from, to, colour: soft, width: rules.frame });
    for (const y of [top, bottom]) frame([left, y], [right, y]);
    for (const x of [left, right]) frame([x, top], [x, bottom]);
    shapes.push(...heading(title, said, this.colours));
    const width = Math.ceil(Math.max(right + rules.right, titleWidth(title), saidWidth(said)));
    const height = Math.ceil(bottom + rules.bottom);
    shapes.unshift({ kind: "box", x: 0, y: 0, width, height, colour: this.colours.of("--card") });
    return { width, height, shapes, title };
  }
}

// Two digits, as ".07": what a cell has room for.
export function short(weight) {
  const size = Math.abs(weight);
  const text = size >= 9.995 ? size.toFixed(0) : size.toFixed(2).replace(/^0/, "");
  return weight < 0 ? `−${text}` : text;
}
