// The alignment of a translation: a row for each word that was written, a column for each word of the source, as far as
// the text has come.

import { make, makeSection } from "../base/dom.js";
import { Matrix } from "../base/matrix.js";
import { percent } from "./steps.js";

export class Alignment extends Matrix {
  least = 56;
  type = 13;
  narrow = 20;

  constructor(page, steps, go) {
    super(page, { signed: false, heads: [0] });
    this.steps = steps;
    this.corner.append("source →", make("br", {}), "written ↓");
    this.stage.className = "matrix-stage alignment-stage";
    this.stage.tabIndex = 0;
    this.stage.setAttribute("role", "region");
    this.stage.setAttribute("aria-label", "The alignment");
    for (const names of [this.columnNames, this.rowNames])
      for (const name of ["role", "aria-orientation"]) names.removeAttribute(name);
    this.rowNames.addEventListener("click", ({ target }) => {
      const row = this.rows.findIndex(({ element }) => element.contains(target));
      if (row >= 0) go(row);
    });
    this.body.addEventListener("click", (event) => this.cellUnder(event) && go(this.cellUnder(event).row));
    const named = { class: "alignment", "aria-label": "Alignment" };
    this.element = makeSection(named, "The alignment", this.stage, this.note);
  }

  fill() {
    const { values } = this.state;
    const units = this.state.units("key", { ...values, kind: "cross", units: "pieces" });
    const word = (name) => make("span", { class: "token" }, make("bdi", { class: "chip", dir: "auto" }, name));
    this.keys = units.all.filter(({ special, sink }) => !sink && (!special || values.specials));
    const named = (name) => ({ name, element: word(name) });
    this.put(
      this.steps.all.map((_, step) => named(this.steps.name(step))),
      this.keys.map(({ first }) => named(units.name(first))),
    );
  }

  at(step, column) {
    const row = step <= this.steps.place() ? this.steps.row(step) : null;
    if (!row) return null;
    const weight = row[this.keys[column].first];
    return { weight, place: 0, strength: weight / this.steps.full(row) };
  }

  lit() {
    const step = this.steps.place();
    return { rows: [{ from: step, to: step + 1, colour: "--accent" }], columns: [], faint: [] };
  }

  said(step, column) {
    const found = this.at(step, column);
    return `${this.rows[step].name} ← ${this.columns[column].name}: ${found ? percent(found.weight) : "not written yet"}`;
  }

  describe() {
    this.note.textContent = `A row for each word as it was written: where it looked in the source, in ${this.steps.named()}.`;
  }
}
