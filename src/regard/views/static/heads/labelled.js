// One head as a labelled matrix: a row for each query, a column for each key, the weights in the cells. Heads has it as its
// map, Model beside its wall.

import { kept } from "../base/dom.js";
import { Matrix } from "../base/matrix.js";
import { tokenElement } from "./tokens.js";
import { largestOf } from "./weights.js";

export class HeadMatrix extends Matrix {
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
    const made = () => largestOf(this.weights.row(head, query), this.shown.keys);
    return kept(this.largest, `${head.name}.${query}`, made);
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

  scaleSaid() {
    const { largest } = this.state.values;
    const most = largest === "own" ? "its row's largest" : this.weights.format(this.weights.fullest());
    return `A stronger colour is more, up to ${most}.`;
  }
}
