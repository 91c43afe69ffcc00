// The map of the heads on show: a word is pointed at and pinned by its name or in a cell.

import { ACROSS, DOWN, makeStop, onKeys, placeIn } from "../base/keys.js";
import { arrived } from "../base/source.js";
import { HeadMatrix } from "./labelled.js";
import { Pointing } from "./pointing.js";

export class HeadMap extends HeadMatrix {
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
    super.fill();
    if (this.rows.length > 0) this.rove({ side: "query", index: this.rows[0].index });
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
