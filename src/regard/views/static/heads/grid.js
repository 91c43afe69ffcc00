// The picker: one thumbnail for every head, rows are layers and columns are heads.

import { make } from "../base/dom.js";
import { heldOf, nearestIn } from "../base/held.js";
import { drawThumbnail, thumbnailsOf } from "../base/thumbnails.js";
import { chosenHeads, toggleHead, toggleLayer } from "./choice.js";

export class HeadGrid {
  constructor(page) {
    const { source, state, colours } = page;
    this.source = source;
    this.state = state;
    this.colours = colours;
    this.thumbnails = thumbnailsOf(page);
    this.element = make("div", {
      class: "grid",
      role: "grid",
      "aria-label": "Choose a layer and a head",
      "aria-multiselectable": "true",
    });
    this.canvas = make("canvas", { class: "thumbnails", "aria-hidden": "true" });
    this.context = this.canvas.getContext("2d");
    this.canvas.width = 0;
    new ResizeObserver(() => this.repaint()).observe(this.element);
    this.element.addEventListener("click", (event) => this.onClick(event));
    this.element.addEventListener("keydown", (event) => this.onKey(event));
    this.rebuild();
  }

  // The layers and heads of the kind on show.
  rebuild() {
    const { kind } = this.state.values;
    this.layers = this.source.layers(kind);
    this.counts = new Map(this.layers.map((layer) => [layer, this.source.heads(kind, layer)]));
    const most = Math.max(...this.counts.values());
    this.cells = [];
    this.element.style.setProperty("--heads", most);
    const header = make("div", { class: "grid-row grid-header", role: "row" });
    header.append(
      make("span", { class: "grid-label", role: "columnheader" }, make("span", { class: "sr-only" }, "Layer")),
    );
    for (let head = 0; head < most; head += 1) {
      header.append(make("span", { class: "grid-label", role: "columnheader" }, String(head)));
    }
    this.element.replaceChildren(header, ...this.layers.map((layer) => this.makeRow(layer)), this.canvas);
    this.ringed = [];
    this.mark();
    this.restart();
  }

  makeRow(layer) {
    const row = make("div", { class: "grid-row", role: "row" });
    const label = make(
      "span",
      {
        class: "grid-label grid-layer",
        role: "rowheader",
        "data-layer": String(layer),
        title: `All heads of layer ${layer}`,
      },
      String(layer),
    );
    row.append(label);
    for (let head = 0; head < this.counts.get(layer); head += 1) {
      const held = this.source.holds(this.state.values.kind, layer, head);
      const name = `Layer ${layer}, head ${head}${held ? "" : ", not in this file"}`;
      const element = make("div", {
        class: "grid-cell",
        role: "gridcell",
        tabindex: "-1",
        "aria-selected": "false",
        "data-cell": String(this.cells.length),
        "aria-disabled": held ? null : "true",
        "aria-label": name,
        title: name,
      });
      row.append(element);
      this.cells.push({ layer, head, element });
    }
    return row;
  }

  cell({ layer, head }) {
    return this.cells.find((cell) => cell.layer === layer && cell.head === head);
  }

  mark() {
    for (const { element } of this.ringed) {
      element.setAttribute("aria-selected", "false");
      element.tabIndex = -1;
      delete element.dataset.letter;
    }
    const chosen = chosenHeads(this.state.values);
    this.ringed = chosen.map((each) => this.cell(each));
    chosen.forEach(({ place }, i) => {
      const { element } = this.ringed[i];
      element.setAttribute("aria-selected", "true");
      element.style.setProperty("--ring", this.colours.series(place));
      if (chosen.length > 1) element.dataset.letter = this.colours.letter(place);
    });
    this.current = this.cell(this.state.values);
    this.current.element.tabIndex = 0;
  }

  onClick(event) {
    const label = event.target.closest("[data-layer]");
    if (label) toggleLayer(this.state, Number(label.dataset.layer));
    const element = event.target.closest("[data-cell]");
    if (!element) return;
    const { layer, head } = this.cells[Number(element.dataset.cell)];
    const adding = event.shiftKey || event.ctrlKey || event.metaKey || this.state.values.adding;
    if (adding) toggleHead(this.state, layer, head);
    else this.state.set({ layer, head, also: [] });
  }

  onKey(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return; // the browser's own keys
    // Past what is not in the file.
    let { layer, head } = this.state.values;
    const { kind } = this.state.values;
    const at = this.layers.indexOf(layer);
    const held = heldOf(this.source, kind, layer);
    const beside = (layers) => {
      layer = layers.find((each) => nearestIn(this.source, kind, each, head) !== null) ?? layer;
      head = nearestIn(this.source, kind, layer, head);
    };
    if (event.key === "ArrowRight") head = held.find((each) => each > head) ?? head;
    else if (event.key === "ArrowLeft") head = held.findLast((each) => each < head) ?? head;
    else if (event.key === "ArrowDown") beside(this.layers.slice(at + 1));
    else if (event.key === "ArrowUp") beside(this.layers.slice(0, at).reverse());
    else if (event.key === "Home") [head] = held;
    else if (event.key === "End") head = held[held.length - 1];
    else if (event.key === " ") {
      // Kept where the cursor goes on; a second time lets go.
      event.preventDefault();
      const kept = this.state.values.also.some((each) => each.layer === layer && each.head === head);
      if (kept) toggleHead(this.state, layer, head);
      else this.state.set({ also: [...this.state.values.also, { layer, head }] });
      this.current.element.focus();
      return;
    } else if (event.key === "a") {
      toggleLayer(this.state, layer);
      return;
    } else return;
    event.preventDefault();
    this.state.set({ layer, head });
    this.current.element.focus();
  }

  // Draws every thumbnail again, as they come, nearest layers first.
  restart() {
    if (this.drawing) this.drawing.stop();
    this.element.classList.remove("drawn");
    const { layer } = this.state.values;
    const queue = this.cells.slice().sort((a, b) => Math.abs(a.layer - layer) - Math.abs(b.layer - layer));
    this.drawing = this.thumbnails.ask(
      queue,
      (cell) => this.paint(cell),
      () => this.element.classList.add("drawn"),
    );
  }

  // New rows have come.
  resume() {
    this.drawing.resume();
  }

  // All thumbnails are on one canvas behind the cells: a canvas of its own for each of 72 or 384 heads would be
  // a layer of its own for the browser, in every frame of everything else on the page.
  // `fresh`: on an empty canvas. Clearing it would wipe the paper, see LineCanvas.
  paint(cell, fresh = false) {
    const picture = this.thumbnails.get(cell);
    if (!picture || this.canvas.width === 0) return;
    const { context, ratio } = this;
    const { element } = cell;
    const [x, y, width, height] = [
      element.offsetLeft,
      element.parentElement.offsetTop,
      element.offsetWidth,
      element.offsetHeight,
    ].map((length) => Math.round(length * ratio));
    if (!fresh) context.clearRect(x, y, width, height);
    context.save();
    context.beginPath();
    context.roundRect(x, y, width, height, 3 * ratio);
    context.clip();
    drawThumbnail(context, picture, x, y, width, height);
    context.restore();
  }

  // After a change of size or colour.
  repaint() {
    this.ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(this.element.clientWidth * this.ratio);
    this.canvas.height = Math.round(this.element.clientHeight * this.ratio);
    for (const cell of this.cells) this.paint(cell, true);
    this.mark();
  }
}
