// The wall: a thumbnail of every layer and head with a number under it, by layers or in the order of that number.
//
// Lines are all equally high, so that which of them are in view is arithmetic; only those have a canvas.

import { make, onceAFrame } from "../base/dom.js";
import { drawThumbnail, thumbnailsOf } from "../base/thumbnails.js";
import { formatStatistic } from "./statistics.js";

const LEAST = 56; // pixels that a thumbnail with its name and number needs
const MOST = 120;
const GAP = 8;
const CAPTION = 19;
const GUTTER = 30; // where the number of a layer stands
const AROUND = 2; // lines above and below the view that are drawn already

export class Wall {
  // statistics(): the HeadStatistics of the kind; point(head or null), open(head): what a pointer does; drawn(head):
  // its picture has come.
  constructor(page, { statistics, point, open, drawn }) {
    const { source, state, colours } = page;
    this.source = source;
    this.state = state;
    this.colours = colours;
    this.statistics = statistics;
    this.point = point;
    this.open = open;
    this.drawn = drawn;
    this.thumbnails = thumbnailsOf(page);
    this.all = false;
    this.request = onceAFrame(() => this.draw());
    this.body = make("div", { class: "wall", role: "grid", "aria-label": "All layers and heads" });
    this.element = make("div", { class: "wall-scroll" }, this.body);
    this.lines = [];
    this.cells = [];
    this.spare = []; // canvases of lines that have left the view
    new ResizeObserver(() => this.resize()).observe(this.element);
    document.addEventListener("scroll", () => this.request(), { capture: true, passive: true });
    this.element.addEventListener("scroll", () => this.request(), { passive: true }); // from a shadow root it does not come out
    this.body.addEventListener("pointerover", (event) => {
      const cell = event.pointerType === "touch" ? null : this.cellOf(event.target);
      if (cell) point(cell);
    });
    this.body.addEventListener("pointerleave", () => point(null));
    this.body.addEventListener("click", (event) => {
      const cell = this.cellOf(event.target);
      if (cell) open(cell);
    });
    this.body.addEventListener("keydown", (event) => this.onKey(event));
  }

  cellOf(target) {
    const element = target.closest("[data-cell]");
    return element ? this.cells[Number(element.dataset.cell)] : null;
  }

  // The heads of the kind on show.
  rebuild() {
    const { kind } = this.state.values;
    this.cells = [];
    for (const layer of this.source.layers(kind)) {
      for (let head = 0; head < this.source.heads(kind, layer); head += 1) this.cells.push(this.makeCell(layer, head));
    }
    this.arrange();
    this.restart();
  }

  makeCell(layer, head) {
    const number = make("span", { class: "wall-number" }, "");
    const held = this.source.holds(this.state.values.kind, layer, head);
    const element = make(
      "div",
      {
        class: "wall-cell",
        "aria-disabled": held ? null : "true",
        title: held ? null : "Not in this file",
        role: "gridcell",
        tabindex: "-1",
        "aria-selected": "false",
        "data-cell": String(this.cells.length),
      },
      make("span", { class: "wall-picture" }),
      make("span", { class: "wall-caption" }, make("span", { class: "wall-name" }, `${layer}.${head}`), number),
    );
    return { layer, head, held, element, number: number.firstChild };
  }

  // Draws the thumbnails again, as they come.
  restart() {
    if (this.drawing) this.drawing.stop();
    this.body.classList.remove("drawn");
    this.drawing = this.thumbnails.ask(
      this.order,
      (cell) => this.come(cell),
      () => this.body.classList.add("drawn"),
    );
    this.repaint();
  }

  come(cell) {
    const line = this.lines[cell.line];
    if (line.canvas) this.paint(line, cell);
    this.drawn(cell);
  }

  // The heads in their order; those without a number come last.
  sorted() {
    const { stat, by } = this.state.values;
    const statistics = this.statistics();
    if (by === "place") return this.cells;
    const sign = by === "most" ? -1 : 1;
    const value = (cell) => statistics.of(cell, stat) ?? sign * Number.MAX_VALUE;
    return this.cells.slice().sort((a, b) => sign * (value(a) - value(b)));
  }

  // Which head stands where: in lines as wide as the page, of a layer each or of the whole order.
  arrange() {
    const width = this.element.clientWidth;
    this.order = this.sorted();
    const heads = Math.max(
      ...this.source.layers(this.state.values.kind).map((layer) => this.source.heads(this.state.values.kind, layer)),
    );
    const room = width - GUTTER;
    const fit = Math.max(1, Math.floor((room + GAP) / (LEAST + GAP)));
    this.columns = Math.ceil(heads / Math.ceil(heads / fit));
    this.side = Math.max(24, Math.min(MOST, Math.floor((room + GAP) / this.columns) - GAP));
    this.height = this.side + CAPTION + GAP;
    this.body.style.setProperty("--side", `${this.side}px`);
    this.body.style.setProperty("--columns", this.columns);
    for (const line of this.lines) this.take(line);
    const groups = this.order === this.cells ? this.byLayer() : [["", this.order]];
    this.lines = groups.flatMap(([label, cells]) => this.makeLines(label, cells));
    const focused = this.body.contains(this.body.getRootNode().activeElement);
    this.body.replaceChildren(...this.lines.map(({ element }) => element));
    this.mark();
    if (focused && this.current) this.current.element.focus({ preventScroll: true }); // it was taken out, and put elsewhere
    this.say();
  }

  byLayer() {
    const layers = new Map();
    for (const cell of this.cells) {
      if (!layers.has(cell.layer)) layers.set(cell.layer, []);
      layers.get(cell.layer).push(cell);
    }
    return [...layers];
  }

  makeLines(label, cells) {
    const lines = [];
    for (let from = 0; from < cells.length; from += this.columns) {
      const some = cells.slice(from, from + this.columns);
      const named = label !== "" && from === 0;
      const header = make(
        "span",
        { class: "wall-label", role: label === "" ? "presentation" : "rowheader" },
        ...(label === ""
          ? []
          : [
              make("span", { class: "sr-only" }, "Layer "),
              named ? String(label) : make("span", { class: "sr-only" }, String(label)),
            ]),
      );
      const element = make("div", { class: "wall-line", role: "row" }, header, ...some.map((cell) => cell.element));
      lines.push({ element, cells: some, canvas: null });
    }
    return lines;
  }

  // Where each head is, for keys and for drawing.
  settle() {
    this.lines.forEach(({ cells }, line) => cells.forEach((cell, column) => Object.assign(cell, { line, column })));
  }

  mark() {
    this.settle();
    if (this.current) {
      this.current.element.setAttribute("aria-selected", "false");
      this.current.element.tabIndex = -1;
    }
    const { layer, head } = this.state.values;
    this.current = this.cells.find((cell) => cell.layer === layer && cell.head === head);
    if (!this.current) return; // another kind is on its way
    this.current.element.setAttribute("aria-selected", "true");
    this.current.element.tabIndex = 0;
  }

  // The number under every head.
  say() {
    const { stat } = this.state.values;
    const statistics = this.statistics();
    const { label } = statistics.offered.find(({ name }) => name === stat);
    for (const cell of this.cells) {
      const value = statistics.of(cell, stat);
      cell.number.data = formatStatistic(value, value >= 100 ? 1 : 3);
      cell.element.setAttribute(
        "aria-label",
        `Layer ${cell.layer}, head ${cell.head}, ${label} ${value === null ? "none" : cell.number.data}${cell.held ? "" : ", not in this file"}`,
      );
    }
  }

  resize() {
    const width = this.element.clientWidth;
    if (width === 0 || width === this.width) {
      this.request();
      return;
    }
    this.width = width;
    if (this.cells.length > 0) this.arrange();
    this.request();
  }

  // Gives a canvas to each line in view, and takes it from the others; on paper all of them have one. Of the lines
  // that are not in view yet, one a frame.
  draw() {
    const { all } = this;
    if (this.element.clientWidth === 0) return;
    const clip = this.element.getBoundingClientRect();
    const { top } = this.body.getBoundingClientRect();
    const first = all ? 0 : Math.floor((Math.max(0, clip.top) - top) / this.height);
    const last = all ? this.lines.length : Math.ceil((Math.min(window.innerHeight, clip.bottom) - top) / this.height);
    const soon = [];
    this.lines.forEach((line, i) => {
      if (i < first - AROUND || i >= last + AROUND) this.take(line);
      else if (!line.canvas && i >= first && i < last) this.hang(line);
      else if (!line.canvas) soon.push(line);
    });
    if (soon.length > 0) this.hang(soon[0]);
    if (soon.length > 1) this.request();
  }

  take(line) {
    if (!line.canvas) return;
    line.canvas.remove();
    this.spare.push(line.canvas);
    line.canvas = null;
  }

  hang(line) {
    line.ratio = window.devicePixelRatio || 1;
    line.canvas = this.canvas(this.columns * (this.side + GAP), line.ratio);
    line.context = line.canvas.getContext("2d");
    line.element.append(line.canvas);
    for (const cell of line.cells) this.paint(line, cell, true);
  }

  // An empty one: one that another line had, where its size is right, for a new one costs a frame several times as much.
  canvas(width, ratio) {
    const size = { width: Math.round(width * ratio), height: Math.round(this.side * ratio) };
    const spare = this.spare.pop();
    if (spare && spare.width === size.width && spare.height === size.height) {
      spare.getContext("2d").clearRect(0, 0, size.width, size.height);
      return spare;
    }
    this.spare = [];
    const canvas = Object.assign(make("canvas", { class: "wall-canvas", "aria-hidden": "true" }), size);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${this.side}px`;
    return canvas;
  }

  // `fresh`: on an empty canvas.
  paint({ context, ratio }, cell, fresh = false) {
    const picture = this.thumbnails.get(cell);
    if (!picture) return;
    const [x, side] = [cell.column * (this.side + GAP), this.side].map((length) => Math.round(length * ratio));
    if (!fresh) context.clearRect(x, 0, side, side);
    drawThumbnail(context, picture, x, 0, side, side);
  }

  // After a change of colour, or of what the pictures are of.
  repaint() {
    for (const line of this.lines) this.take(line);
    this.request();
  }

  onKey(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return; // the browser's own keys
    const { line, column } = this.current;
    const at = this.order.indexOf(this.current);
    const { cells } = this.lines[line];
    // Past what is not in the file: in the next line that has a head, the one nearest to this column.
    const isHeld = (cell) => cell.held;
    const beside = (lines) => {
      const line = lines.find((each) => each.cells.some(isHeld));
      return line?.cells
        .filter(isHeld)
        .reduce((best, cell) => (Math.abs(cell.column - column) < Math.abs(best.column - column) ? cell : best));
    };
    const to = {
      ArrowRight: () => this.order.slice(at + 1).find(isHeld),
      ArrowLeft: () => this.order.slice(0, at).findLast(isHeld),
      ArrowDown: () => beside(this.lines.slice(line + 1)),
      ArrowUp: () => beside(this.lines.slice(0, line).reverse()),
      Home: () => cells.find(isHeld),
      End: () => cells.findLast(isHeld),
    }[event.key];
    if (event.key === "Enter" || event.key === " ") this.open(this.current);
    else if (to) this.go(to() || this.current);
    else return;
    event.preventDefault();
  }

  go({ layer, head }) {
    this.state.set({ layer, head });
    this.point(null);
    this.current.element.focus({ focusVisible: true });
  }
}
