// Every layer and head in a grid that is one stop for Tab: the thumbnails of Heads, the wall of Model, the map of
// Difference. What a cell shows and what is done with it is the `look` of whoever makes the grid:
//
//   name, label               its class, and how it is spoken
//   least, most, high         pixels: how wide a cell may be; how high its picture is, if it is no square
//   gap, gutter, below        between cells; for the number of a layer; what stands under a picture
//   pictures                  false: no thumbnails
//   header                    whether the heads are numbered above, where all of a layer fit in one line
//   fill(cell, grid)          what the cell shows, in words too; again whenever cells have been arranged
//   lines(cells)              [[label, cells]] in their order; without it, by layer
//   queue(cells)              in which order the thumbnails come
//   chosen()                  the heads that are marked, [{ layer, head }], the one under the cursor last
//   choose(element, place)    how the i-th of them is marked
//   open(cell, event)         what a click, Enter or Space does
//   point(cell or null)       what the pointer is on
//   key(cell, key, event)     a key of the grid's own: whether it was one
//   layer(number)             what a click on a layer's number does
//   drawn(cell)               a thumbnail has come
//
// Lines are all equally high, so that which of them are in view is arithmetic; only those have a canvas. One for each
// cell would be a layer of its own for the browser, in every frame of everything else on the page.

import { make, onceAFrame, whenResized } from "./dom.js";
import { allHeads } from "./held.js";
import { cellIn, onKeys } from "./keys.js";
import { isAsked, nameOf, withEffect } from "./names.js";
import { drawThumbnail, isOneScale, thumbnailsOf } from "./thumbnails.js";

const AROUND = 2; // lines above and below the view that are drawn already

export class HeadGrid {
  constructor(page, look) {
    const { source, state } = page;
    this.source = source;
    this.state = state;
    this.look = { gap: 8, gutter: 30, below: 0, pictures: true, ...look };
    this.thumbnails = thumbnailsOf(page);
    this.all = false; // on paper
    this.request = onceAFrame(() => this.draw());
    const { name, label, several, point, layer } = this.look;
    this.body = make("div", {
      class: `grid ${name}`,
      role: "grid",
      "aria-label": label,
      "aria-multiselectable": several ? "true" : null,
    });
    this.element = make("div", { class: `${name}-scroll` }, this.body);
    this.lines = [];
    this.cells = [];
    this.order = [];
    this.marked = [];
    this.spare = []; // canvases of lines that have left the view
    whenResized(this.element, () => this.resize(), state.gone);
    document.addEventListener("scroll", () => this.request(), { capture: true, passive: true, signal: state.gone });
    this.element.addEventListener("scroll", () => this.request(), { passive: true }); // from a shadow root it does not come out
    if (point) {
      this.body.addEventListener("pointerover", (event) => {
        const cell = event.pointerType === "touch" ? null : this.cellOf(event.target);
        if (cell) point(cell);
      });
      this.body.addEventListener("pointerleave", () => point(null));
    }
    this.body.addEventListener("click", (event) => {
      const of = layer && event.target.closest("[data-layer]");
      if (of) layer(Number(of.dataset.layer));
      const cell = this.cellOf(event.target);
      if (cell) this.look.open(cell, event);
    });
    state.listen((changed) => (changed.has("does") || changed.has("effect")) && this.fill());
    onKeys(this.body, (key, event) => this.onKey(key, event));
  }

  cellOf(target) {
    const element = target.closest("[data-cell]");
    return element ? this.cells[Number(element.dataset.cell)] : null;
  }

  // The heads of the kind on show. At another step of a training they are the same: the old pictures stay until the
  // new ones have come.
  rebuild() {
    const { kind } = this.state.values;
    if (this.kind === kind && this.source.runs) {
      if (this.look.lines?.(this.cells)) this.arrange();
      else this.fill();
      this.restart(true);
      return;
    }
    this.kind = kind;
    this.cells = [];
    for (const { layer, head } of allHeads(this.source, kind)) this.cells.push(this.makeCell(layer, head));
    this.arrange();
    this.restart();
  }

  makeCell(layer, head) {
    const held = this.source.holds(this.state.values.kind, layer, head);
    const element = make("div", {
      class: "grid-cell",
      role: "gridcell",
      tabindex: "-1",
      "aria-selected": "false",
      "aria-disabled": held ? null : "true",
      "data-cell": String(this.cells.length),
    });
    const name = `Layer ${layer}, head ${head}`;
    return { layer, head, held, element, name, missing: held ? "" : ", not in this file" };
  }

  scaleSaid() {
    const scale = isOneScale(this.source, this.state.values.what)
      ? "All thumbnails have one scale"
      : "Each thumbnail is scaled to its own largest weight";
    return `${scale}; colours go by square roots, so that small weights are seen.`;
  }

  // Draws the thumbnails again, as they come.
  restart(stays = false) {
    if (this.drawing) this.drawing.stop();
    if (!this.look.pictures) return;
    this.body.classList.remove("drawn");
    const cells = this.cells.slice();
    this.drawing = this.thumbnails.ask(
      this.look.queue ? this.look.queue(cells) : this.order.length > 0 ? this.order : cells,
      (cell) => this.come(cell),
      () => this.body.classList.add("drawn"),
    );
    if (!stays) this.repaint();
  }

  // New rows have come.
  resume() {
    this.drawing.resume();
  }

  come(cell) {
    const line = this.lines[cell.line];
    if (line?.canvas) this.paint(line, cell);
    this.look.drawn?.(cell);
  }

  // Which head stands where, in lines as wide as the page.
  arrange() {
    const { least, most, high, gap, gutter, below } = this.look;
    const width = this.element.clientWidth;
    if (width === 0) return;
    const { kind } = this.state.values;
    const heads = Math.max(...this.source.layers(kind).map((layer) => this.source.heads(kind, layer)));
    const room = width - gutter;
    const fit = Math.max(1, Math.floor((room + gap) / (least + gap)));
    this.columns = Math.ceil(heads / Math.ceil(heads / fit));
    this.side = Math.max(1, Math.min(most, Math.floor((room + gap) / this.columns) - gap));
    this.high = high || this.side;
    this.height = this.high + below + gap;
    const sizes = { gutter, gap, side: this.side, high: this.high, height: this.height };
    for (const [name, size] of Object.entries(sizes)) this.body.style.setProperty(`--${name}`, `${size}px`);
    this.body.style.setProperty("--columns", this.columns);
    for (const line of this.lines) this.take(line);
    const groups = this.look.lines?.(this.cells) || this.byLayer();
    this.lines = groups.flatMap(([label, cells]) => this.makeLines(label, cells));
    this.order = groups.flatMap(([, cells]) => cells);
    const focused = this.body.contains(this.body.getRootNode().activeElement);
    const header = this.look.header && this.columns === heads ? [this.makeHeader(heads)] : [];
    this.body.replaceChildren(...header, ...this.lines.map(({ element }) => element));
    this.fill();
    this.mark();
    if (focused) this.current?.element.focus({ preventScroll: true }); // it was taken out, and put elsewhere
  }

  byLayer() {
    const layers = new Map();
    for (const cell of this.cells) layers.set(cell.layer, [...(layers.get(cell.layer) || []), cell]);
    return [...layers];
  }

  makeHeader(heads) {
    const label = (...text) => make("span", { class: "grid-label", role: "columnheader" }, ...text);
    const numbers = Array.from({ length: heads }, (_, head) => label(String(head)));
    return make(
      "div",
      { class: "grid-header", role: "row" },
      label(make("span", { class: "sr-only" }, "Layer")),
      ...numbers,
    );
  }

  makeLines(label, cells) {
    const lines = [];
    for (let from = 0; from < cells.length; from += this.columns) {
      const some = cells.slice(from, from + this.columns);
      const number = from === 0 ? String(label) : make("span", { class: "sr-only" }, String(label));
      const more = this.look.layer && label !== "" ? { "data-layer": label, title: `All heads of layer ${label}` } : {};
      const header = make(
        "span",
        { class: "grid-label grid-layer", role: label === "" ? "presentation" : "rowheader", ...more },
        ...(label === "" ? [] : [make("span", { class: "sr-only" }, "Layer "), number]),
      );
      const element = make("div", { class: "grid-line", role: "row" }, header, ...some.map((cell) => cell.element));
      lines.push({ element, cells: some, canvas: null });
    }
    return lines;
  }

  // What the cells show; heads of other names than what was asked for are faint.
  fill() {
    const { values } = this.state;
    for (const cell of this.cells) {
      cell.named = nameOf(this.source, values, cell);
      cell.does = withEffect(cell.named);
      this.look.fill(cell, this);
      cell.element.classList.toggle("faint", !isAsked(this.source, values, cell));
      if (this.source.isOff?.(cell.layer, cell.head)) markOff(cell.element);
    }
  }

  // The chosen heads, and the one under the cursor.
  mark() {
    this.lines.forEach(({ cells }, line) => cells.forEach((cell, column) => Object.assign(cell, { line, column })));
    for (const { element } of this.marked) {
      element.setAttribute("aria-selected", "false");
      element.tabIndex = -1;
      delete element.dataset.letter;
    }
    const { layer, head } = this.state.values;
    const find = (one) => this.cells.find((cell) => cell.layer === one.layer && cell.head === one.head);
    this.current = find({ layer, head });
    this.marked = (this.look.chosen?.() || [{ layer, head }]).map(find).filter(Boolean); // another kind is on its way
    this.marked.forEach(({ element }, i) => {
      element.setAttribute("aria-selected", "true");
      this.look.choose?.(element, i);
    });
    if (this.current) this.current.element.tabIndex = 0;
  }

  resize() {
    const width = this.element.clientWidth;
    if (width > 0 && width !== this.width) {
      this.width = width;
      if (this.cells.length > 0) this.arrange();
    }
    this.request();
  }

  // Gives a canvas to each line in view, and takes it from the others; on paper all of them have one. Of the lines
  // that are not in view yet, one a frame.
  draw() {
    const { all } = this;
    if (this.element.clientWidth === 0 || !this.look.pictures || this.lines.length === 0) return;
    const clip = this.element.getBoundingClientRect();
    const { top } = this.lines[0].element.getBoundingClientRect();
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
    line.canvas = this.canvas(this.columns * (this.side + this.look.gap), line.ratio);
    line.context = line.canvas.getContext("2d");
    line.element.append(line.canvas);
    for (const cell of line.cells) this.paint(line, cell, true);
  }

  // An empty one: one that another line had, where its size is right, for a new one costs a frame several times as much.
  canvas(width, ratio) {
    const size = { width: Math.round(width * ratio), height: Math.round(this.high * ratio) };
    const spare = this.spare.pop();
    if (spare && spare.width === size.width && spare.height === size.height) {
      spare.getContext("2d").clearRect(0, 0, size.width, size.height);
      return spare;
    }
    this.spare = [];
    const canvas = Object.assign(make("canvas", { "aria-hidden": "true" }), size);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${this.high}px`;
    return canvas;
  }

  // `fresh`: on an empty canvas. Clearing it would wipe the paper, see LineCanvas.
  paint({ context, ratio }, cell, fresh = false) {
    const picture = this.thumbnails.get(cell);
    if (!picture) return;
    const x = Math.round(cell.column * (this.side + this.look.gap) * ratio);
    const [width, height] = [this.side, this.high].map((length) => Math.round(length * ratio));
    if (!fresh) context.clearRect(x, 0, width, height);
    drawThumbnail(context, picture, x, 0, width, height);
  }

  // After a change of colour, or of what the pictures are of.
  repaint() {
    for (const line of this.lines) this.take(line);
    this.request();
  }

  // On paper the grid is as long as it is.
  print(on) {
    this.all = on;
    this.width = 0;
    this.resize();
    this.repaint();
    this.draw();
  }

  onKey(key, event) {
    const cell = this.current;
    if (!cell) return false;
    if (this.look.key?.(cell, key, event)) return true;
    if (key === "Enter" || key === " ") {
      this.look.open(cell, event);
      return true;
    }
    const lines = this.lines.map(({ cells }) => cells);
    const to = cellIn(lines, cell, key, ({ held, none }) => held && !none);
    if (!to) return false;
    this.state.set({ layer: to.layer, head: to.head });
    this.look.point?.(null);
    this.current.element.focus({ focusVisible: true });
    return true;
  }
}

// A head that is switched off on a live page.
function markOff(element) {
  element.classList.add("off");
  const said = element.getAttribute("aria-label") ?? element.title;
  if (!said.includes("switched off")) element.setAttribute("aria-label", `${said}, switched off`);
  element.title = element.getAttribute("aria-label");
}
