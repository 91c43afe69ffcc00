// The lines: queries on the left, keys on the right, the weights of the chosen heads between them.

import { make, onceAFrame, whenResized } from "../base/dom.js";
import { quantityOf } from "../base/measures.js";
import { LineCanvas, strongestLines } from "./lines.js";
import { MiniMap } from "./minimap.js";
import { linesSheet } from "./picture.js";
import { Pointing } from "./pointing.js";
import { TokenColumn } from "./tokens.js";
import { largestOf } from "./weights.js";

const MOST_LINES = 4000; // in the overview; beyond it the thinnest are left out
const FLOORS = { linear: 0.004, log: 0.0005 }; // a smaller weight's line in the overview would be invisible
// Lines are drawn anew when one of these changes.
const OF_LINES = "row layer head also together filter specials units kind what least scale largest".split(" ");
const ROW_FLOOR = 0.0005;
const MOST_OF_ROW = 120; // lines of the row on show: they are drawn in every frame, and of a long text most are faint
const MOST_OF_SEVERAL = 360; // of several heads together

export class Diagram {
  constructor(page, weights) {
    this.page = page;
    this.state = page.state;
    this.colours = page.colours;
    this.weights = weights;
    this.nextFrame = onceAFrame(() => this.draw());
    this.overview = new LineCanvas("lines overview");
    this.active = new LineCanvas("lines active");
    this.sides = { query: new TokenColumn(page, "query", "Queries"), key: new TokenColumn(page, "key", "Keys") };
    this.canvases = make("div", { class: "canvases" }, this.overview.canvas, this.active.canvas);
    this.sheet = make("div", { class: "sheet" }, this.sides.query.element, this.canvases, this.sides.key.element);
    this.stage = make("div", { class: "stage", tabindex: "-1" }, this.sheet);
    this.map = new MiniMap((fraction) => {
      this.stage.scrollTop = fraction * this.stage.scrollHeight - this.stage.clientHeight / 2;
    });
    this.framed = make("div", { class: "frame" }, this.stage, this.map.canvas);
    this.note = make("p", { class: "note floor" });
    this.element = make("div", { class: "headview" }, this.framed);
    this.listen();
  }

  listen() {
    this.pointing = new Pointing(this.page, this.weights, this);
    this.stage.addEventListener("scroll", () => this.scrolled(), { passive: true });
    whenResized(this.stage, () => this.request(true), this.state.gone);
    this.sheet.addEventListener("keydown", (event) => this.onKey(event));
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
    for (const [name, side] of Object.entries(this.sides)) side.rove(token.index, name === token.side);
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

  onKey(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return; // the browser's own keys
    const token = this.tokenOf(event.target);
    if (!token) return;
    const { order, place } = this.sides[token.side];
    const at = place[token.index];
    const go = (side, position) => {
      const to = this.written(side);
      if (to.length === 0) return;
      const index = to[Math.max(0, Math.min(to.length - 1, position))];
      if (event.shiftKey && side === token.side) this.pointing.extendFrom(token, index);
      else this.focusToken({ side, index });
    };
    if (event.key === "ArrowDown") go(token.side, at + 1);
    else if (event.key === "ArrowUp") go(token.side, at - 1);
    else if (event.key === "Home") go(token.side, 0);
    else if (event.key === "End") go(token.side, order.length - 1);
    else if (event.key === "ArrowRight") go("key", at);
    else if (event.key === "ArrowLeft") go("query", at);
    else if (event.key === "Enter" || event.key === " ") this.pointing.togglePin(token);
    else return;
    event.preventDefault();
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
    const rows = Math.max(shown.queries.length, shown.keys.length);
    this.rowHeight = rows > 60 ? 24 : rows > 16 ? 30 : 34;
    this.element.style.setProperty("--row", `${this.rowHeight}px`);
    this.sides.query.fill(shown.queries);
    this.sides.key.fill(shown.keys);
    this.sheet.style.height = `${rows * this.rowHeight}px`;
    this.request(true);
  }

  // Other weights than those that were drawn.
  redraw() {
    this.drawnView = "";
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
    const { clientWidth, clientHeight, scrollHeight, scrollTop } = this.stage;
    if (clientWidth === 0) return;
    this.resized = false;
    this.top = scrollTop;
    this.scrolls = scrollHeight > clientHeight + 1;
    this.map.canvas.hidden = !this.scrolls;
    const height = Math.min(clientHeight, this.sheet.clientHeight) || this.sheet.clientHeight;
    this.canvases.style.height = `${height}px`;
    const width = this.canvases.clientWidth;
    if (this.scrolls) this.map.resize();
    this.scrollHeight = scrollHeight;
    this.clientHeight = clientHeight;
    this.overview.resize(width, height);
    this.active.resize(width, height);
    this.drawnView = "";
  }

  draw() {
    this.wanted = false;
    if (this.resized) this.measure();
    if (this.resized) return; // it is not on show
    this.first = Math.max(0, Math.floor(this.top / this.rowHeight) - 1);
    this.last = Math.ceil((this.top + this.overview.height) / this.rowHeight) + 1;
    const series = this.series();
    if (this.scrolls) this.drawMap(series);
    this.drawOverview();
    this.drawActive(series);
    this.paintTokens(series);
    if (!this.described) this.describeLines();
  }

  // Says what the lines are: now, or with the frame that draws them.
  describe() {
    if (this.wanted) this.described = false;
    else this.describeLines();
  }

  // What the focus looks at, or is looked at by: one for each head whose numbers are there; null in the overview.
  series() {
    const { on } = this.state.focus();
    if (!on) return null;
    const others = this.written(on.side === "query" ? "key" : "query");
    const series = [];
    for (const head of this.weights.heads) {
      const weights = this.weights.focused(head, on);
      if (!weights) continue;
      const largest = largestOf(weights, others);
      series.push({ place: head.place, weights, strength: (weight) => this.weights.strength(weight, largest) });
    }
    return series.length > 0 ? series : null;
  }

  // What is on show of a side, as far as it is written.
  written(side) {
    const { order } = this.sides[side];
    return this.state.values.row === null ? order : order.filter((index) => this.state.isWritten(side, index));
  }

  describeLines() {
    this.described = true;
    const { on, at } = this.state.focus();
    const { least } = this.state.values;
    // That an overview has all lines that can be seen need not be said.
    this.note.classList.toggle("unsaid", !on && least === 0);
    if (!on) this.note.textContent = this.overviewNote;
    else {
      const [name, other, line] = on.side === "query" ? ["Query", "key", "row"] : ["Key", "query", "column"];
      const span = ({ index, to }) => (to === undefined ? index : `${index} to ${to}`);
      this.note.textContent = at
        ? `${name} ${span(on)}, ${other} ${at.index}: one line, for the ${this.one()} between the two.`
        : this.left
          ? `${name} ${span(on)}: the strongest lines of ${this.weights.heads.length > 1 ? "each head's" : "its"} ${line}.`
          : `${name} ${span(on)}: a line for every ${this.one()} from ${this.told(Math.max(least, ROW_FLOOR))} up, of its ${line}.`;
    }
  }

  // What is drawn, one of it; and a share of what a full line stands for, as a number.
  one() {
    return quantityOf(this.state.values.what).one;
  }

  told(share) {
    const { what } = this.state.values;
    if (what === "weights") return String(share);
    return `${this.weights.signed ? "±" : ""}${(share * this.weights.full).toPrecision(2)}`;
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

  y(side, index) {
    return (this.sides[side].place[index] + 0.5) * this.rowHeight - this.top;
  }

  // Lines of several heads between the same tokens lie beside each other.
  shift(place) {
    const count = this.weights.heads.length;
    return (place - (count - 1) / 2) * Math.min(3.5, (0.7 * this.rowHeight) / count);
  }

  // All the lines that start in view. A hover only fades them, so they are drawn again only when they change.
  drawOverview() {
    const { values } = this.state;
    const { least, scale, largest } = values;
    const view = JSON.stringify([
      ...OF_LINES.map((name) => values[name]),
      this.weights.thickest,
      this.top,
      this.colours.of("--query"),
    ]);
    if (view === this.drawnView) return;
    this.drawnView = view;
    this.described = false;
    this.lacking = false; // rows that are not there yet
    const { heads } = this.weights;
    const queries = this.sides.query.order
      .slice(this.first, this.last)
      .filter((index) => this.state.isWritten("query", index));
    let floor = null;
    const groups = heads.flatMap((each) =>
      this.signs().map((sign) => {
        const lines = [];
        for (const query of queries) this.addLines(lines, each, query, sign);
        const kept = strongestLines(lines, Math.ceil(MOST_LINES / heads.length));
        if (kept.floor !== null) floor = Math.max(floor, kept.floor);
        return { lines: kept.lines, ...this.look(each.place, sign) };
      }),
    );
    this.overview.draw(groups, { faint: true });
    const by = largest === "own" ? 1 : this.weights.share(this.weights.fullest());
    const from = Math.max(least, FLOORS[scale] * by);
    this.overviewNote =
      floor !== null && (scale === "log" || largest === "own")
        ? `Overview: the ${MOST_LINES} strongest lines of the queries in view.`
        : `Overview: a line for every ${this.one()} from ${this.fromWhere(floor === null ? from : Math.max(from, floor * by), from)}${largest === "own" ? " of its row's largest" : ""} up, of the queries in view.`;
  }

  fromWhere(share, from) {
    const { what, largest } = this.state.values;
    return what === "weights" || largest === "own" ? share.toFixed(from < 0.001 ? 4 : 3) : this.told(share);
  }

  // Of a measure with signs, those above zero and those below are drawn each in their own way.
  signs() {
    return this.weights.signed ? [1, -1] : [1];
  }

  addLines(lines, head, query, sign) {
    const row = this.weights.row(head, query);
    if (!row) {
      this.lacking = true;
      return;
    }
    const { values } = this.state;
    const keys = this.sides.key.order;
    const most = largestOf(row, keys);
    const floor = FLOORS[values.scale] * this.weights.share(this.weights.fullest(most));
    const y = this.y("query", query) + this.shift(head.place);
    for (const key of keys) {
      const weight = sign * row[key];
      if (weight <= 0 || this.weights.share(weight) < Math.max(floor, values.least)) continue;
      lines.push(y, this.y("key", key) + this.shift(head.place), this.weights.strength(weight, most));
    }
  }

  // How a head's lines look; of one head alone, as queries do. Below zero they are dashed.
  look(place, sign, colour = this.colours.of("--query")) {
    const several = this.weights.heads.length > 1;
    if (this.weights.signed) {
      return {
        colour: several ? this.colours.series(place) : this.colours.of(sign > 0 ? "--more" : "--less"),
        dashes: sign > 0 ? [] : [6, 5],
      };
    }
    return several
      ? { colour: this.colours.series(place), dashes: this.colours.dashes(place) }
      : { colour, dashes: [] };
  }

  drawActive(series) {
    const { on, at } = this.state.focus();
    const { least } = this.state.values;
    this.element.classList.toggle("has-active", Boolean(on));
    if (!on || !series) {
      this.active.clear();
      return;
    }
    const other = on.side === "query" ? "key" : "query";
    const middle = (this.y(on.side, on.index) + this.y(on.side, on.to ?? on.index)) / 2;
    this.left = false;
    const groups = series.flatMap(({ place, weights, strength }) =>
      this.signs().map((sign) => {
        let lines = [];
        const fixed = middle + this.shift(place);
        for (const index of at ? [at.index] : this.written(other)) {
          if (sign * weights[index] < 0 || (weights[index] === 0 && sign < 0)) continue;
          if (this.weights.share(weights[index]) < Math.max(ROW_FLOOR, least) && !at) continue;
          const y = this.y(other, index) + this.shift(place);
          lines.push(on.side === "query" ? fixed : y, on.side === "query" ? y : fixed, strength(weights[index]));
        }
        const kept = strongestLines(
          lines,
          series.length > 1 ? Math.ceil(MOST_OF_SEVERAL / series.length) : MOST_OF_ROW,
        );
        lines = kept.lines;
        this.left = this.left || kept.floor !== null;
        return { lines, ...this.look(place, sign, this.colours.of(on.side === "query" ? "--query" : "--key")) };
      }),
    );
    this.active.draw(groups);
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
