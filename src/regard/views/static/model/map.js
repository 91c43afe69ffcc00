// The map beside the wall: of the head that is pointed at there, or of the chosen one. Pointer, finger and arrow keys go
// from cell to cell; the words below say the weight.

import { make } from "../base/dom.js";
import { ACROSS, DOWN, onKeys, placeIn } from "../base/keys.js";
import { HeadMatrix } from "../heads/labelled.js";
import { Strongest } from "../heads/strongest.js";
import { Weights } from "../heads/weights.js";

const HINT = "Point at a cell, or use the arrow keys.";
const MOST_ON_PAPER = 60; // words

export class DetailMap extends HeadMatrix {
  // head(): whose weights; one that the file does not hold has none.
  constructor(page, head) {
    const chosen = () => {
      const { layer, head: number } = head();
      if (!page.source.holds(page.state.values.kind, layer, number)) return [];
      return [{ layer, head: number, name: `${layer}.${number}`, place: 0 }];
    };
    const weights = new Weights(page, chosen);
    super(page, weights);
    this.strongest = new Strongest(page, weights, () => this.redraw());
    this.type = 12;
    this.narrow = 12;
    this.longest = 88;
    this.least = 60;
    this.corner.append("key →", make("br", {}), "query ↓");
    this.tip.remove(); // it is said below
    this.line = make("p", { class: "detail-said", "aria-live": "polite" });
    this.stage.className = "matrix-stage detail-map";
    this.stage.tabIndex = 0;
    this.stage.setAttribute("role", "application");
    for (const names of [this.columnNames, this.rowNames]) names.setAttribute("aria-hidden", "true");
    onKeys(this.stage, (key) => this.onKey(key));
    this.stage.addEventListener("blur", () => this.point(null));
    this.body.addEventListener("click", (event) => this.point(this.cellUnder(event))); // a finger
  }

  fill() {
    super.fill();
    // Here the names are labels: nothing is chosen by them.
    for (const { element } of [...this.rows, ...this.columns])
      for (const name of ["role", "tabindex", "aria-selected", "aria-description"]) element.removeAttribute(name);
    this.pointed = null;
  }

  // Only the names in view: a thousand of them made every frame on the wall three times as long.
  drawCells() {
    super.drawCells();
    this.hang(this.rowNames, this.rows, "paddingTop", this.y, this.height, this.high);
    this.hang(this.columnNames, this.columns, "paddingLeft", this.x, this.width, this.cell);
  }

  hang(names, all, before, from, room, size) {
    const first = Math.floor(from / size);
    const shown = all.slice(first, Math.ceil((from + room) / size));
    if (names.firstChild === shown[0]?.element && names.childElementCount === shown.length) return;
    names.style[before] = `${first * size}px`;
    names.replaceChildren(...shown.map(({ element }) => element));
  }

  // Perhaps another head, or numbers that were missing.
  show() {
    const { kind, what, units } = this.state.values;
    const of = [kind, what, units, this.weights.choose().map(({ name }) => name)].join();
    if (of === this.of) this.weights.measure();
    else this.weights.forget();
    this.of = of;
    this.strongest.ask();
    this.redraw();
  }

  onKey(key) {
    const { row, column } = this.pointed || { row: 0, column: -1 };
    const down = key in DOWN ? placeIn(this.rows.length, row, key, DOWN) : row;
    const across = key in DOWN ? Math.max(0, column) : placeIn(this.columns.length, column, key, ACROSS);
    if (across === undefined) return false;
    this.bring("row", down);
    this.bring("column", across);
    this.point({ row: down, column: across });
    return true;
  }

  describe() {
    const { pointed } = this;
    const signs = this.weights.signed ? " Green is above zero; purple, with a stroke, below." : "";
    const held = this.weights.chosen.length > 0;
    this.stage.setAttribute("aria-label", `Weights of ${this.weights.named()}. ${HINT}`);
    this.line.textContent = pointed ? this.said(pointed.row, pointed.column) : HINT;
    this.note.textContent = held
      ? `A row for each query, a column for each key. ${this.scaleSaid()}${signs}`
      : "The numbers of this head are not in this file.";
  }

  print(on) {
    this.stage.hidden = on && this.rows.length > MOST_ON_PAPER;
    return super.print(on);
  }
}
