// One head as a labelled matrix: a row for each query, a column for each key, the weights in the cells.

import { ACROSS, DOWN, makeStop, onKeys, placeIn } from "../base/keys.js";
import { arrived } from "../base/source.js";
import { Matrix } from "./matrix.js";
import { Pointing } from "./pointing.js";
import { tokenElement } from "./tokens.js";
import { largestOf } from "./weights.js";

export class HeadMap extends Matrix {
  constructor(page, weights) {
    super(page, weights);
    this.corner.textContent = "query ↓ key →";
    this.least = 98;
    this.rowNames.setAttribute("aria-label", "Queries");
    this.columnNames.setAttribute("aria-label", "Keys");
    this.stop = makeStop();
    this.pointing = new Pointing(page, weights, this);
    onKeys(this.sheet, (key, event) => this.onKey(key, event));
    this.body.addEventListener("click", (event) => {
      const cell = this.cellUnder(event);
      if (!cell) return;
      const pin = { side: "query", index: this.shown.queries[cell.row] };
      if (event.pointerType === "touch") this.point(cell);
      this.pointing.togglePin(pin);
    });
  }

  fill() {
    this.shown = this.state.shown();
    this.largest = new Map();
    this.marked = [];
    const named = (side, order) => {
      const units = this.state.units(side);
      return order.map((index) => ({ index, name: units.name(index), element: tokenElement(units, index, side) }));
    };
    this.put(named("query", this.shown.queries), named("key", this.shown.keys));
    this.places = {
      query: new Map(this.shown.queries.map((index, i) => [index, i])),
      key: new Map(this.shown.keys.map((index, i) => [index, i])),
    };
    if (this.rows.length > 0) this.rove({ side: "query", index: this.rows[0].index });
  }

  redraw() {
    this.largest = new Map();
    super.redraw();
  }

  at(row, column) {
    const [query, key] = [this.shown.queries[row], this.shown.keys[column]];
    const only = (side, index) => this.state.units(side).at(index).only !== undefined;
    if (!this.state.isWritten("query", query) || only("query", query) || only("key", key)) return null;
    if (!this.weights.isThere({ side: "query", index: query }, key)) return null;
    let best = null;
    for (const head of this.weights.heads) {
      const weights = this.weights.row(head, query);
      if (!weights) {
        this.lacking = true;
        continue;
      }
      const weight = weights[key];
      if (!best || Math.abs(weight) > Math.abs(best.weight))
        best = { weight, place: head.place, strength: this.weights.strength(weight, this.largestIn(head, query)) };
    }
    if (best && this.weights.share(best.weight) < this.state.values.least) best.strength = 0;
    return best;
  }

  largestIn(head, query) {
    const name = `${head.name}.${query}`;
    if (!this.largest.has(name)) this.largest.set(name, largestOf(this.weights.row(head, query), this.shown.keys));
    return this.largest.get(name);
  }

  said(row, column) {
    const found = this.at(row, column);
    const names = `${this.rows[row].name} → ${this.columns[column].name}`;
    if (!found) return `${names}: no weight`;
    const letter = this.weights.heads.length > 1 ? ` ${this.colours.letter(found.place)}` : "";
    return `${names}: ${this.weights.format(found.weight)}${letter}`;
  }

  lit() {
    const { on, at } = this.state.focus();
    const band = (token) => {
      const places = this.places[token.side];
      return { from: places.get(token.index), to: places.get(token.to ?? token.index) + 1, colour: `--${token.side}` };
    };
    const rows = [on, at].filter((token) => token?.side === "query").map(band);
    const columns = [on, at].filter((token) => token?.side === "key").map(band);
    this.mark();
    return { rows, columns, faint: [] };
  }

  // The names of what has the focus.
  mark() {
    const { on, at } = this.state.focus();
    const { pin } = this.state.values;
    const element = (token) =>
      this[token.side === "query" ? "rows" : "columns"][this.places[token.side].get(token.index)]?.element;
    const wanted = [
      [on, "on"],
      [at, "at"],
      [pin, "pinned"],
    ]
      .filter(([token]) => token)
      .map(([token, name]) => [element(token), name]);
    for (const [each, name] of this.marked) {
      each?.classList.remove(name);
      if (name === "pinned") each?.setAttribute("aria-selected", "false");
    }
    for (const [each, name] of wanted) {
      each?.classList.add(name);
      if (name === "pinned") each?.setAttribute("aria-selected", "true");
    }
    this.marked = wanted;
  }

  // Without a pin the pointer shows a row, with one it reads that row key by key.
  move(cell) {
    const held = this.state.held();
    const [query, key] = cell ? [this.shown.queries[cell.row], this.shown.keys[cell.column]] : [];
    this.pointing.moving = true;
    if (!cell) this.state.set({ hover: null });
    else if (held?.side === "query") this.state.set({ hover: { side: "key", index: key } });
    else this.state.set({ hover: { side: "query", index: query } });
    this.pointing.moving = false;
  }

  tokenOf(target) {
    const element = target.closest("[data-token]");
    if (element) return { side: element.dataset.side, index: Number(element.dataset.token) };
    return target.closest(".matrix-body") ? this.state.values.hover : null;
  }

  pinOf(target) {
    return target.closest(".matrix-body") ? null : this.tokenOf(target);
  }

  elementOf({ side, index }) {
    return (side === "query" ? this.rows : this.columns)[this.places[side].get(index)]?.element;
  }

  rove(token) {
    this.stop(this.elementOf(token));
  }

  focusToken(token, focusVisible = true) {
    this.reveal(token);
    this.elementOf(token)?.focus({ preventScroll: true, focusVisible });
  }

  reveal({ side, index }) {
    this.bring(side === "query" ? "row" : "column", this.places[side].get(index) ?? 0);
  }

  // Among the names of a side; across, to the other side.
  onKey(key, event) {
    const token = this.pinOf(event.target);
    if (!token) return false;
    const byQuery = token.side === "query";
    const [order, across] = byQuery ? [this.shown.queries, this.shown.keys] : [this.shown.keys, this.shown.queries];
    const at = this.places[token.side].get(token.index);
    const to = placeIn(order.length, at, key, byQuery ? DOWN : ACROSS);
    if (key === "Enter" || key === " ") this.pointing.togglePin(token);
    else if (to !== undefined && event.shiftKey) this.pointing.extendFrom(token, order[to]);
    else if (to !== undefined) this.focusToken({ side: token.side, index: order[to] });
    else if (key.startsWith("Arrow"))
      this.focusToken({ side: byQuery ? "key" : "query", index: across[Math.min(at, across.length - 1)] });
    else return false;
    return true;
  }

  describe() {
    const { on } = this.state.focus();
    this.note.textContent = `A row for each query, a column for each key. ${this.scaleSaid()}${on ? "" : " Click a cell to pin its row."}`;
  }

  scaleSaid() {
    const { largest } = this.state.values;
    const most = largest === "own" ? "its row's largest" : this.weights.format(this.weights.fullest());
    return `A stronger colour is more, up to ${most}.`;
  }

  scale() {
    if (this.state.values.largest === "own") return null;
    return [0.25, 0.5, 1].map((strength) => ({
      number: this.weights.short(this.weights.numberAt(strength)),
      colour: this.colourOf({ weight: 1, place: 0, strength }),
    }));
  }

  async picture() {
    const { source } = this.page;
    const { values } = this.state;
    const whole = () =>
      this.weights.heads.every((head) => this.shown.queries.every((query) => this.weights.row(head, query))) || null;
    await arrived(source, whole);
    const title = `${source.facts.model}: ${this.weights.named()}`;
    const sheet = this.sheetOf(title, this.scaleSaid(), "query ↓  key →");
    return { ...sheet, name: `layer-${values.layer}-head-${values.head}-map` };
  }
}
