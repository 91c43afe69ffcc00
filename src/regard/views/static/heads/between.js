// The lines between the two columns: of all queries in view, and over them those of what has the focus; and, in words,
// what they are.

import { make } from "../base/dom.js";
import { quantityOf } from "../base/measures.js";
import { LineCanvas, strongestLines } from "./lines.js";
import { largestOf } from "./weights.js";

const MOST_LINES = 4000; // in the overview; beyond it the thinnest are left out
const FLOORS = { linear: 0.004, log: 0.0005 }; // a smaller weight's line in the overview would be invisible
// Lines are drawn anew when one of these changes.
const OF_LINES = "row layer head also together filter specials units kind what least scale largest".split(" ");
const ROW_FLOOR = 0.0005;
const MOST_OF_ROW = 120; // lines of the row on show: they are drawn in every frame, and of a long text most are faint
const MOST_OF_SEVERAL = 360; // of several heads together

export class Between {
  // columns: the diagram, which has order(side), of the tokens; y(side, index); written(side); rowHeight; and of what is in
  // view first, last and top.
  constructor({ source, state, colours }, weights, columns) {
    this.source = source;
    this.state = state;
    this.colours = colours;
    this.weights = weights;
    this.columns = columns;
    this.overview = new LineCanvas("lines overview");
    this.active = new LineCanvas("lines active");
    this.element = make("div", { class: "canvases" }, this.overview.canvas, this.active.canvas);
    this.note = make("p", { class: "note floor" });
    this.lacking = false; // whether rows are not there yet
  }

  resize(height) {
    this.element.style.height = `${height}px`;
    const width = this.element.clientWidth;
    this.overview.resize(width, height);
    this.active.resize(width, height);
    this.forget();
  }

  // Other lines than those that were drawn.
  forget() {
    this.drawn = "";
  }

  draw(series) {
    this.drawOverview();
    this.drawActive(series);
    if (!this.described) this.describe();
  }

  describe() {
    this.described = true;
    const { on, at } = this.state.focus();
    const { least } = this.state.values;
    // That all lines are there that can be seen need not be said.
    this.note.classList.toggle("unsaid", least === 0 && !(on && this.left));
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

  // Lines of several heads between the same tokens lie beside each other.
  shift(place) {
    const count = this.weights.heads.length;
    return (place - (count - 1) / 2) * Math.min(3.5, (0.7 * this.columns.rowHeight) / count);
  }

  // All the lines that start in view. A hover only fades them, so they are drawn again only when they change.
  drawOverview() {
    const { values } = this.state;
    const { least, scale, largest } = values;
    const view = JSON.stringify([
      ...OF_LINES.map((name) => values[name]),
      this.weights.thickest,
      this.columns.top,
      this.colours.of("--query"),
    ]);
    if (view === this.drawn) return;
    this.drawn = view;
    this.described = false;
    this.lacking = false; // rows that are not there yet
    const { heads } = this.weights;
    const queries = this.columns
      .order("query")
      .slice(this.columns.first, this.columns.last)
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
    const keys = this.columns.order("key");
    const most = largestOf(row, keys);
    const floor = FLOORS[values.scale] * this.weights.share(this.weights.fullest(most));
    const y = this.columns.y("query", query) + this.shift(head.place);
    for (const key of keys) {
      const weight = sign * row[key];
      if (weight <= 0 || this.weights.share(weight) < Math.max(floor, values.least)) continue;
      lines.push(y, this.columns.y("key", key) + this.shift(head.place), this.weights.strength(weight, most));
    }
  }

  // How a head's lines look; of one head alone, as queries do. Below zero they are dashed.
  look(place, sign, colour = this.colours.of("--query")) {
    const several = this.weights.heads.length > 1;
    const { layer, head } = this.weights.heads.find((each) => each.place === place);
    if (this.source.isOff?.(layer, head)) return { colour: this.colours.of("--rule"), dashes: [] }; // of a live page
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
    if (!on || !series) {
      this.active.clear();
      return;
    }
    const other = on.side === "query" ? "key" : "query";
    const middle = (this.columns.y(on.side, on.index) + this.columns.y(on.side, on.to ?? on.index)) / 2;
    this.left = false;
    const groups = series.flatMap(({ place, weights, strength }) =>
      this.signs().map((sign) => {
        let lines = [];
        const fixed = middle + this.shift(place);
        for (const index of at ? [at.index] : this.columns.written(other)) {
          if (sign * weights[index] < 0 || (weights[index] === 0 && sign < 0)) continue;
          if (this.weights.share(weights[index]) < Math.max(ROW_FLOOR, least) && !at) continue;
          const y = this.columns.y(other, index) + this.shift(place);
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
}
