// The query against every key: q above; k, q × k, their sum, the score, the weight and the weighted value in a row
// for each key; the result below. Only rows in view are in the page, so that a text of any length scrolls.

import { make, onceAFrame, whenResized } from "../base/dom.js";
import { ACROSS, DOWN, onKeys, placeIn } from "../base/keys.js";
import { saidOf } from "../base/scorers.js";
import { drawBars, formatNumber, largestSize, scaleOf } from "./figures.js";

const LOWEST = 26; // a row, in CSS pixels
const HIGHEST = 40; // where there is room
const BETWEEN = 4; // a row's strips and the next row's
const BELOW = 110; // what stands below the rows, at most
const MARGIN = 6; // rows beyond the view that are there already
const MOST_ON_PAPER = 400;

export class KeyRows {
  // onPoint({ what, key, index }): a number of a strip is under the pointer; null when it has left.
  constructor(page, chosen, onPoint) {
    this.state = page.state;
    this.colours = page.colours;
    this.chosen = chosen;
    this.onPoint = onPoint;
    this.rows = new Map();
    this.whole = false; // on paper, where nothing scrolls
    this.request = onceAFrame(() => this.draw());
    this.head = make("div", { class: "neuron-line neuron-head", "aria-hidden": "true" });
    this.query = make("div", { class: "neuron-line neuron-query", "aria-hidden": "true" });
    this.sheet = make("div", { class: "neuron-sheet", role: "presentation" });
    this.list = make("div", { class: "neuron-list", role: "listbox", tabindex: "0", "aria-label": "Keys" }, this.sheet);
    this.foot = make("div", { class: "neuron-line neuron-foot", "aria-hidden": "true" });
    this.element = make("div", { class: "neuron-rows" }, this.head, this.query, this.list, this.foot);
    this.list.addEventListener("scroll", () => this.request(), { passive: true });
    onKeys(this.list, (key) => this.onKey(key));
    this.element.addEventListener("click", (event) => this.onClick(event));
    this.element.addEventListener("pointermove", (event) => this.onMove(event));
    this.element.addEventListener("pointerleave", () => this.onPoint(null));
    whenResized(this.element, () => this.redraw(), this.state.gone);
  }

  // Another choice: every row is another.
  redraw() {
    this.fresh = true;
    this.request();
  }

  columns() {
    const { steps } = this.chosen;
    const masked = steps.allowed.some((allowed) => !allowed);
    const numbers = [{ name: "product", label: saidOf(steps.scorer).score, of: (key) => steps.products[key] }];
    if (steps.scale !== 1) numbers.push({ name: "scaled", label: scaleOf(steps).said, of: (key) => steps.scaled[key] });
    if (steps.capped) numbers.push({ name: "capped", label: "capped", of: (key) => steps.capped[key] });
    if (steps.bias) numbers.push({ name: "bias", label: "+ bias", of: (key) => steps.bias[key] });
    if (steps.bias || masked)
      numbers.push({ name: "score", label: masked ? "masked" : "score", of: (key) => steps.scores[key] });
    return numbers;
  }

  draw() {
    const { steps, keys } = this.chosen;
    if (!steps || this.element.clientWidth === 0) return;
    if (this.fresh) {
      this.fresh = false;
      this.rows.forEach((row) => row.remove());
      this.rows.clear();
      this.numbers = this.columns();
      this.element.style.setProperty("--numbers", this.numbers.length);
      this.element.classList.toggle("without-values", !steps.v);
      this.height = this.heightOf(keys.length);
      this.element.style.setProperty("--row", `${this.height}px`);
      this.sheet.style.height = `${keys.length * this.height}px`;
      this.largest = {
        k: largestSize(steps.k),
        product: this.largestOf((key) => this.chosen.terms(key)),
        weighted: this.largestOf((key) => this.chosen.weighted(key) || []),
      };
      this.drawFrame();
    }
    const count = keys.length;
    let first = Math.max(0, Math.floor(this.list.scrollTop / this.height) - MARGIN);
    let last = Math.min(count, Math.ceil((this.list.scrollTop + this.list.clientHeight) / this.height) + MARGIN);
    if (this.whole) {
      first = Math.max(0, Math.min(this.chosen.key - MOST_ON_PAPER / 2, count - MOST_ON_PAPER));
      last = Math.min(count, first + MOST_ON_PAPER);
      this.sheet.style.height = `${(last - first) * this.height}px`;
    }
    for (const [key, row] of this.rows) {
      if (key >= first && key < last) continue;
      row.remove();
      this.rows.delete(key);
    }
    for (let key = first; key < last; key += 1) {
      if (!this.rows.has(key)) {
        const row = this.makeRow(key);
        row.style.top = `${(key - (this.whole ? first : 0)) * this.height}px`;
        this.rows.set(key, row);
        this.sheet.append(row);
        this.drawRow(row, key);
      }
    }
    this.mark();
    if (this.wanted) this.reveal();
    this.wanted = false;
  }

  // The rows share the height where the window gives them one; elsewhere they are as long as they are.
  heightOf(count) {
    if (this.whole || getComputedStyle(this.list).maxHeight !== "none") return LOWEST;
    const room = this.element.parentElement.clientHeight - BELOW;
    return Math.max(LOWEST, Math.min(HIGHEST, Math.floor(room / (count + 3))));
  }

  largestOf(values) {
    return this.chosen.keys.reduce((largest, _, key) => Math.max(largest, largestSize(values(key))), 0);
  }

  // The chosen key, without drawing anything again.
  mark() {
    for (const [key, row] of this.rows) row.setAttribute("aria-selected", String(key === this.chosen.key));
    const there = this.rows.has(this.chosen.key);
    if (there) this.list.setAttribute("aria-activedescendant", `regard-key-${this.chosen.key}`);
    else this.list.removeAttribute("aria-activedescendant");
    const { dim, vdim, steps } = this.chosen;
    this.cursor("--at", (dim + 0.5) / steps.dim);
    if (steps.v) this.cursor("--v-at", (vdim + 0.5) / steps.vDim);
  }

  cursor(name, fraction) {
    this.element.style.setProperty(name, `${100 * fraction}%`);
  }

  strip(what, key = "") {
    return make(
      "span",
      { class: `neuron-strip strip-${what}`, "data-what": what, "data-key": String(key) },
      make("canvas", { "aria-hidden": "true" }),
    );
  }

  drawFrame() {
    const { chosen } = this;
    const { steps, query } = chosen;
    const words = (text, className) => make("span", { class: className }, text);
    const blank = () => make("span", {});
    const said = saidOf(steps.scorer);
    const numbers = this.numbers.map(({ label, name }) => words(label, `neuron-number of-${name}`));
    this.head.replaceChildren(
      words("Key", "neuron-token"),
      words("k", "neuron-label"),
      words(`${said.left} × ${said.right}`, "neuron-label"),
      ...numbers,
      words("weight", "neuron-number"),
      words("weight × v", "neuron-label of-v"),
    );
    const name = make("bdi", { class: "text", dir: "auto" }, chosen.nameOf("query", query));
    const token = make(
      "span",
      { class: "neuron-token" },
      words("q", "neuron-sign"),
      name,
      words(String(query), "position"),
    );
    this.query.replaceChildren(
      token,
      this.strip("q"),
      words(steps.scorer?.v ? "plus each k" : "times each k", "neuron-hint"),
    );
    const total = steps.weights.reduce((a, b) => a + b, 0);
    const sum = make("span", { class: "neuron-number" }, formatNumber(total));
    const result = steps.context ? this.strip("context") : blank();
    this.foot.replaceChildren(
      words("Sum", "neuron-token"),
      blank(),
      blank(),
      ...this.numbers.map(({ name: each }) => make("span", { class: `neuron-number of-${each}` })),
      sum,
      result,
    );
    this.width = this.query.querySelector(".neuron-strip").clientWidth;
    const of = this.foot.querySelector(".neuron-strip");
    this.vWidth = of ? of.clientWidth : 0;
    this.bars(this.query.querySelector("canvas"), steps.q, { largest: largestSize(steps.q), width: this.width });
    if (of) this.bars(of.firstChild, steps.context, { largest: largestSize(steps.context), width: this.vWidth });
  }

  bars(canvas, values, options) {
    drawBars(canvas, values, { height: this.height - BETWEEN, colours: this.colours, ...options });
  }

  makeRow(key) {
    const { steps, keys } = this.chosen;
    const sink = this.chosen.isSink(key);
    const weight = make("span", { class: "neuron-number neuron-weight" }, formatNumber(steps.weights[key]));
    weight.style.setProperty("--weight", steps.weights[key]);
    const numbers = this.numbers.map(({ name, of }) => {
      const value = sink ? (name === "score" && steps.sink !== null ? steps.sink : null) : of(key);
      return make("span", { class: `neuron-number of-${name}` }, value === null ? "" : formatNumber(value));
    });
    const name = make("bdi", { class: "text", dir: "auto" }, this.chosen.nameOf("key", key));
    const said = this.numbers
      .map(({ label }, i) => (numbers[i].textContent ? `${label} ${numbers[i].textContent}` : ""))
      .filter(Boolean);
    const classes = ["neuron-line", "neuron-row"];
    if (keys[key].special) classes.push("special");
    if (!sink && !steps.allowed[key]) classes.push("forbidden");
    return make(
      "div",
      {
        class: classes.join(" "),
        role: "option",
        id: `regard-key-${key}`,
        "data-key": String(key),
        "aria-setsize": String(keys.length),
        "aria-posinset": String(key + 1),
        "aria-selected": "false",
        "aria-label": `${this.chosen.nameOf("key", key)}, ${key}: ${[...said, `weight ${weight.textContent}`].join(", ")}`,
      },
      make("span", { class: "neuron-token" }, name, make("span", { class: "position" }, String(key))),
      sink ? make("span", { class: "neuron-hint" }, "no key") : this.strip("k", key),
      sink ? make("span", {}) : this.strip("product", key),
      ...numbers,
      weight,
      steps.v && !sink ? this.strip("weighted", key) : make("span", {}),
    );
  }

  drawRow(row, key) {
    const { steps } = this.chosen;
    for (const strip of row.querySelectorAll(".neuron-strip")) {
      const { what } = strip.dataset;
      const canvas = strip.firstChild;
      const own = steps.k.subarray(key * steps.dim, (key + 1) * steps.dim);
      if (what === "k") this.bars(canvas, own, { largest: this.largest.k, width: this.width });
      if (what === "product")
        this.bars(canvas, this.chosen.terms(key), { largest: this.largest.product, width: this.width });
      if (what === "weighted")
        this.bars(canvas, this.chosen.weighted(key), { largest: this.largest.weighted, width: this.vWidth });
    }
  }

  // What is under the pointer: { what, key, index }, or null.
  at(event) {
    const strip = event.target.closest?.(".neuron-strip");
    if (!strip) return null;
    const { what, key } = strip.dataset;
    const box = strip.getBoundingClientRect();
    const count = what === "weighted" || what === "context" ? this.chosen.steps.vDim : this.chosen.steps.dim;
    const index = Math.max(0, Math.min(count - 1, Math.floor(((event.clientX - box.left) / box.width) * count)));
    return { what, key: key === "" ? null : Number(key), index, of: count };
  }

  onMove(event) {
    if (!this.chosen.steps) return;
    const found = this.at(event);
    this.onPoint(found);
    if (!found) this.mark();
    else
      this.cursor(
        found.what === "weighted" || found.what === "context" ? "--v-at" : "--at",
        (found.index + 0.5) / found.of,
      );
  }

  onClick(event) {
    if (!this.chosen.steps) return;
    const row = event.target.closest(".neuron-row");
    const found = this.at(event);
    const patch = {};
    if (row) patch.key = Number(row.dataset.key);
    if (found) patch[found.what === "weighted" || found.what === "context" ? "vdim" : "dim"] = found.index;
    this.state.set(patch);
  }

  onKey(pressed) {
    if (!this.chosen.steps) return false;
    const { key, dim, keys, steps } = this.chosen;
    const page = Math.max(1, Math.floor(this.list.clientHeight / this.height) - 1);
    const to = placeIn(keys.length, key, pressed, { ...DOWN, PageDown: page, PageUp: -page });
    const turn = pressed in ACROSS ? placeIn(steps.dim, dim, pressed, ACROSS) : undefined;
    if (turn !== undefined) this.state.set({ dim: turn });
    else if (to !== undefined) this.state.set({ key: to });
    else return false;
    return true;
  }

  // Brings the chosen key into view.
  reveal() {
    const top = this.chosen.key * this.height;
    const { scrollTop, clientHeight } = this.list;
    if (top < scrollTop) this.list.scrollTop = top - this.height;
    else if (top + this.height > scrollTop + clientHeight) this.list.scrollTop = top + 2 * this.height - clientHeight;
  }
}
