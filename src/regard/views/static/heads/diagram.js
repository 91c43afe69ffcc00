// The lines: queries on the left, keys on the right, the weights of the chosen heads between them.

import { make, onceAFrame, whenResized } from "../base/dom.js";
import { DOWN, onKeys, placeIn } from "../base/keys.js";
import { Between } from "./between.js";
import { MiniMap } from "./minimap.js";
import { linesSheet } from "./picture.js";
import { Pointing } from "./pointing.js";
import { TokenColumn } from "./tokens.js";
import { largestOf } from "./weights.js";

const NARROW = 560; // pixels: a phone

export class Diagram {
  constructor(page, weights) {
    this.page = page;
    this.state = page.state;
    this.colours = page.colours;
    this.weights = weights;
    this.nextFrame = onceAFrame(() => this.draw());
    this.lines = new Between(page, weights, this);
    this.note = this.lines.note;
    this.sides = { query: new TokenColumn(page, "query", "Queries"), key: new TokenColumn(page, "key", "Keys") };
    const { query, key } = this.sides;
    this.sheet = make("div", { class: "sheet" }, query.element, this.lines.element, key.element);
    this.stage = make("div", { class: "stage", tabindex: "-1" }, this.sheet);
    this.map = new MiniMap((fraction) => {
      this.stage.scrollTop = fraction * this.stage.scrollHeight - this.stage.clientHeight / 2;
    });
    this.framed = make("div", { class: "frame" }, this.stage, this.map.canvas);
    this.element = make("div", { class: "headview" }, this.framed);
    this.listen();
  }

  listen() {
    this.pointing = new Pointing(this.page, this.weights, this);
    this.stage.addEventListener("scroll", () => this.scrolled(), { passive: true });
    whenResized(this.stage, () => this.request(true), this.state.gone);
    onKeys(this.sheet, (key, event) => this.onKey(key, event));
  }

  tokenOf(target) {
    const element = target.closest("[data-token]");
    if (!element) return null;
    return { side: element.dataset.side, index: Number(element.dataset.token) };
  }

  pinOf(target) {
    return this.tokenOf(target);
  }

  rove(token) {
    this.sides[token.side].rove(token.index);
  }

  get lacking() {
    return this.lines.lacking;
  }

  picture() {
    return linesSheet(this.page, this.weights);
  }

  // The steps of the legend; of a row's own largest there is no one number.
  scale() {
    if (this.state.values.largest === "own") return null;
    return [0.1, 0.4, 1].map((strength) => ({ strength, number: this.weights.short(this.weights.numberAt(strength)) }));
  }

  // Fixed in one piece, so that tokens and lines stay side by side from page to page.
  print(on, view) {
    if (on) this.place = this.stage.scrollTop;
    return () => {
      Object.assign(
        view.style,
        on ? { height: `${view.offsetHeight}px`, contain: "size" } : { height: "", contain: "" },
      );
      if (!on && this.place !== undefined) this.stage.scrollTop = this.place;
      this.resized = true;
      this.draw();
    };
  }

  // Up and down in a column; across, to the other one.
  onKey(key, event) {
    const token = this.tokenOf(event.target);
    if (!token) return false;
    const at = this.sides[token.side].place[token.index];
    const across = { ArrowRight: "key", ArrowLeft: "query" }[key];
    const side = across ?? token.side;
    const to = this.written(side);
    const place = across ? Math.min(at, to.length - 1) : placeIn(to.length, at, key, DOWN);
    if (key === "Enter" || key === " ") this.pointing.togglePin(token);
    else if (place === undefined) return false;
    else if (to.length === 0) return true;
    else if (event.shiftKey && side === token.side) this.pointing.extendFrom(token, to[place]);
    else this.focusToken({ side, index: to[place] });
    return true;
  }

  focusToken(token, focusVisible = true) {
    this.reveal(token);
    this.sides[token.side].elementOf(token.index).focus({ preventScroll: true, focusVisible });
  }

  // Brings a token into view, with a few neighbours.
  reveal(token) {
    const top = this.sides[token.side].place[token.index] * this.rowHeight;
    const margin = Math.min(2 * this.rowHeight, this.stage.clientHeight / 4);
    if (top - margin < this.stage.scrollTop) this.stage.scrollTop = top - margin;
    else if (top + this.rowHeight + margin > this.stage.scrollTop + this.stage.clientHeight) {
      this.stage.scrollTop = top + this.rowHeight + margin - this.stage.clientHeight;
    }
  }

  // The units on show have changed.
  layout() {
    const shown = this.state.shown();
    this.rows = Math.max(shown.queries.length, shown.keys.length);
    this.fit();
    this.sides.query.fill(shown.queries);
    this.sides.key.fill(shown.keys);
    this.request(true);
  }

  // Where there is room, rows grow; on a phone, whose page scrolls in any case, some are as high as a finger needs.
  fit() {
    const { rows } = this;
    const isPhone = this.element.clientWidth < NARROW;
    const room = isPhone && rows <= 16 ? 44 : Math.floor((this.element.clientHeight - 24) / rows);
    this.rowHeight = rows > 60 ? 24 : Math.max(rows > 16 ? 30 : 34, Math.min(44, room));
    this.element.style.setProperty("--row", `${this.rowHeight}px`);
    this.sheet.style.height = `${rows * this.rowHeight}px`;
  }

  // Other weights than those that were drawn.
  redraw() {
    this.lines.forget();
    this.request();
  }

  // Draws before the next frame, however many events ask for it.
  request(resized = false) {
    this.resized = this.resized || resized;
    this.wanted = true;
    this.nextFrame();
  }

  // The page is measured when its size or place has changed, never while the pointer moves: a look at it then has
  // the browser settle all that the last frame has changed, at once.
  scrolled() {
    this.top = this.stage.scrollTop;
    this.request();
  }

  measure() {
    if (this.stage.clientWidth === 0) return;
    this.fit();
    const { clientHeight, scrollHeight, scrollTop } = this.stage;
    this.resized = false;
    this.top = scrollTop;
    this.scrolls = scrollHeight > clientHeight + 1;
    this.map.canvas.hidden = !this.scrolls;
    const height = Math.min(clientHeight, this.sheet.clientHeight) || this.sheet.clientHeight;
    this.height = height;
    this.lines.resize(height);
    if (this.scrolls) this.map.resize();
    this.scrollHeight = scrollHeight;
    this.clientHeight = clientHeight;
  }

  draw() {
    this.wanted = false;
    if (this.resized) this.measure();
    if (this.resized) return; // it is not on show
    this.first = Math.max(0, Math.floor(this.top / this.rowHeight) - 1);
    this.last = Math.ceil((this.top + this.height) / this.rowHeight) + 1;
    const series = this.series();
    if (this.scrolls) this.drawMap(series);
    this.element.classList.toggle("has-active", Boolean(this.state.focus().on));
    this.lines.draw(series);
    this.paintTokens(series);
  }

  // Says what the lines are: now, or with the frame that draws them.
  describe() {
    if (this.wanted) this.lines.described = false;
    else this.lines.describe();
  }

  // What the focus looks at, or is looked at by: one for each head whose numbers are there; null in the overview.
  series() {
    const { on } = this.state.focus();
    if (!on) return null;
    const others = this.written(on.side === "query" ? "key" : "query");
    const series = this.weights.series(on).map(({ head, weights }) => {
      const largest = largestOf(weights, others);
      return { place: head.place, weights, strength: (weight) => this.weights.strength(weight, largest) };
    });
    return series.length > 0 ? series : null;
  }

  // What is on show of a side, as far as it is written.
  written(side) {
    const { order } = this.sides[side];
    return this.state.values.row === null ? order : order.filter((index) => this.state.isWritten(side, index));
  }

  drawMap(series) {
    const { on } = this.state.focus();
    const other = on && on.side === "query" ? "key" : "query";
    const { top, scrollHeight, clientHeight } = this;
    this.map.draw(
      series &&
        this.sides[other].order.map((index) =>
          !this.state.isWritten(other, index)
            ? 0
            : series.reduce((most, { weights, strength }) => Math.max(most, strength(weights[index])), 0),
        ),
      top / scrollHeight,
      (top + clientHeight) / scrollHeight,
      { view: this.colours.of("--rule"), ink: this.colours.of(other === "key" ? "--query" : "--key") },
    );
  }

  // What the lines ask for.
  order(side) {
    return this.sides[side].order;
  }

  y(side, index) {
    return (this.sides[side].place[index] + 0.5) * this.rowHeight - this.top;
  }

  paintTokens(series) {
    const { on, at } = this.state.focus();
    const { pin, least } = this.state.values;
    this.element.classList.toggle("signed", this.weights.signed);
    for (const [name, side] of Object.entries(this.sides)) {
      side.paint(this.first, this.last, {
        series: on && on.side !== name ? series : null,
        least,
        measure: this.weights,
        on,
        at,
        pin,
      });
    }
  }
}
