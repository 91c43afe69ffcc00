// One word's row in every head, layer by layer: a strip for each head, a column for each key.

import { kept, make } from "../base/dom.js";
import { allHeads } from "../base/held.js";
import { DOWN, makeStop, onKeys, placeIn } from "../base/keys.js";
import { Matrix } from "../base/matrix.js";
import { inShort, nameOf } from "../base/names.js";
import { makePlayer } from "../base/player.js";
import { largestOf } from "./weights.js";

export class Strips extends Matrix {
  constructor(page, weights) {
    super(page, weights);
    this.corner.textContent = "head ↓ key →";
    this.least = 96;
    this.flat = 14;
    this.layer = null; // the one that stands out
    this.rowNames.setAttribute("aria-label", "Heads");
    this.columnNames.removeAttribute("role");
    this.columnNames.removeAttribute("aria-orientation");
    this.pointing = { moving: false };
    this.player = makePlayer({
      label: "Layer",
      count: () => this.layers.length,
      place: () => (this.layer === null ? -1 : this.layers.indexOf(this.layer)),
      go: (place) => {
        this.layer = this.layers[place];
        this.bring(
          "row",
          this.rows.findIndex(({ of }) => of.layer === this.layer),
        );
        this.request();
      },
      said: (place) => [`Layer ${this.layers[place]}`],
      all: () => {
        this.layer = null;
        this.request();
      },
    });
    this.element.prepend(this.player.element);
    this.body.addEventListener("click", (event) => {
      const cell = this.cellUnder(event);
      if (cell && event.pointerType === "touch") this.point(cell);
      else if (cell) this.choose(cell.row);
    });
    this.rowNames.addEventListener("click", (event) => {
      const row = this.rows.findIndex(({ element }) => element.contains(event.target));
      if (row >= 0) this.choose(row);
    });
    this.stop = makeStop();
    onKeys(this.rowNames, (key) => this.onKey(key));
  }

  fill() {
    const { kind } = this.state.values;
    const { source } = this.page;
    this.keys = this.state.shown().keys;
    this.layers = source.layers(kind);
    const held = allHeads(source, kind).filter(({ layer, head }) => source.holds(kind, layer, head));
    const rows = held
      .map((head) => ({ ...head, name: `${head.layer}.${head.head}` }))
      .map((of) => ({ of, name: of.name, element: this.makeName(of) }));
    const units = this.state.units("key");
    const columns = this.keys.map((index) => ({
      name: units.name(index),
      element: make("div", { class: "token" }, make("span", { class: "chip" }, units.element(index))),
    }));
    this.put(rows, columns);
    this.roved = null;
    this.kept = new Map();
    this.player.update();
  }

  makeName({ layer, head, name }) {
    const label = `Layer ${layer}, head ${head}`;
    const does = nameOf(this.page.source, { ...this.state.values, effect: 0 }, { layer, head });
    return make(
      "div",
      { class: "token strip-name", role: "option", tabindex: "-1", "aria-selected": "false", "aria-label": label },
      name,
      does ? make("span", { class: "strip-does", "aria-hidden": "true" }, inShort(does)) : "",
    );
  }

  // Whose row: of a key that is pinned there is none.
  query() {
    const { on } = this.state.focus();
    return on?.side === "query" ? on : null;
  }

  redraw() {
    this.kept = new Map();
    super.redraw();
  }

  request(resized = false) {
    if (resized) this.roved = null; // the head's strip stays in view, however much room there is
    const name = JSON.stringify(this.query());
    if (name !== this.drawn) this.redraw();
    this.drawn = name;
    super.request(resized);
  }

  draw() {
    if (this.stale && this.rows) this.most = this.largest();
    super.draw();
  }

  row(head, query) {
    return kept(this.kept, `${head.name}.${query.index}.${query.to}`, () => this.weights.focused(head, query));
  }

  // All strips have one scale: the largest of all of them.
  largest() {
    const query = this.query();
    if (!query) return 0;
    const rows = this.rows.map(({ of }) => this.row(of, query)).filter(Boolean);
    return Math.max(0, ...rows.map((row) => largestOf(row, this.keys)));
  }

  at(row, column) {
    const query = this.query();
    const key = this.keys[column];
    if (!query || !this.state.isWritten("key", key)) return null;
    const weights = this.row(this.rows[row].of, query);
    if (!weights) {
      this.lacking = true;
      return null;
    }
    if (!this.weights.isThere(query, key)) return null;
    const full = this.state.values.largest === "one" ? this.weights.full : this.most;
    // By roots, as in the small pictures: one head that gives all to one word would leave the others white.
    return { weight: weights[key], place: 0, strength: Math.sqrt(this.weights.strengthBy(weights[key], full)) };
  }

  fullColour({ weight }) {
    return this.colours.of(this.weights.signed ? (weight < 0 ? "--less" : "--more") : "--query");
  }

  said(row, column) {
    const found = this.at(row, column);
    const { name } = this.columns[column];
    return `Head ${this.rows[row].name}, ${name}: ${found ? this.weights.format(found.weight) : "no weight"}`;
  }

  lit() {
    const { layer, head } = this.state.values;
    const here = this.rows.findIndex(({ of }) => of.layer === layer && of.head === head);
    const faint =
      this.layer === null ? [] : this.rows.flatMap(({ of }, i) => (of.layer === this.layer ? [] : [[i, i + 1]]));
    if (this.roved !== here) {
      // It opens at the top, unless somebody chose this head.
      const { start } = this.page.source.facts;
      if (this.roved !== null || start?.layer !== layer || start?.head !== head) this.bring("row", here);
      this.rove(here);
    }
    return { rows: here < 0 ? [] : [{ from: here, to: here + 1, colour: "--query" }], columns: [], faint };
  }

  rove(here) {
    this.rows[this.roved]?.element.setAttribute("aria-selected", "false");
    this.roved = here;
    const element = this.rows[here]?.element;
    this.stop(element);
    element?.setAttribute("aria-selected", "true");
  }

  move() {}

  choose(row) {
    const { layer, head } = this.rows[row].of;
    this.state.set({ layer, head, also: [] });
  }

  onKey(key) {
    const row = placeIn(this.rows.length, this.roved, key, DOWN);
    if (row === undefined) return false;
    this.choose(row);
    this.bring("row", row);
    this.rows[row].element.focus({ preventScroll: true, focusVisible: true });
    return true;
  }

  // The panel lists words, which are columns here.
  reveal({ index }) {
    this.bring("column", Math.max(0, this.keys.indexOf(index)));
  }

  focusToken(token) {
    this.reveal(token);
  }

  describe() {
    const query = this.query();
    const name = query && this.state.units("query").name(query.index);
    this.note.textContent = query
      ? `What ${name} looks at in every head; a stronger colour is more, up to ${this.weights.format(this.most || 0)}. Click a strip to choose its head.`
      : "Pin a word that looks (in Lines, Map or Text): its row in every head is drawn here.";
  }

  scale() {
    if (!this.query() || !this.most) return null;
    const { largest } = this.state.values;
    const full = largest === "one" ? this.weights.full : this.most;
    return [0.25, 0.5, 1].map((part) => ({
      number: this.weights.short(part * full),
      colour: this.colourOf({ weight: 1, strength: Math.sqrt(this.weights.strengthBy(part, 1)) }),
    }));
  }

  async picture() {
    const { source } = this.page;
    const name = this.query() ? this.state.units("query").name(this.query().index) : "";
    const sheet = this.sheetOf(
      `${source.facts.model}: ${name} in every head`,
      this.note.textContent.replace(/ Click.*/, ""),
      "head ↓  key →",
    );
    return { ...sheet, name: "all-heads" };
  }
}
