// The text as it is written: what was read is shaded and joined by lines to the word that is written. Of an
// encoder-decoder the source stands above it.

import { drawn, make, onClicks, readable, whenResized } from "../base/dom.js";
import { inkOn, mixed } from "../base/shade.js";
import { gapsOf } from "../heads/running.js";
import { percent } from "./steps.js";

const MOST_LINES = 12;
const SHORT = 40; // words: they are written large
const LEAST = 0.02; // of all weight; a line of less would not be seen
const APART = 15; // pixels over a line of text, in which arcs within it have room

export class WrittenText {
  // go(step): a written word was clicked.
  constructor({ source, state, colours }, steps, go) {
    this.source = source;
    this.state = state;
    this.colours = colours;
    this.steps = steps;
    this.lines = drawn("svg", { class: "reading-lines", "aria-hidden": "true" });
    this.sheet = make("div", { class: "writing-sheet" });
    this.element = make("div", { class: "writing-text" }, this.sheet);
    onClicks(this.sheet, "[data-step]", ({ dataset }) => go(Number(dataset.step)));
    whenResized(this.sheet, () => this.connect(), state.gone);
  }

  layout() {
    const { encoder } = this.source.facts.sides;
    const crossed = Boolean(encoder) && this.source.kinds.includes("cross");
    this.words = { query: [], key: [] };
    const last = this.steps.token(this.steps.all.length - 1);
    const target = this.makeText(crossed ? "cross" : "decoder", "query", "It writes");
    if (last >= this.words.query.length) {
      // What ended it is no token that was read.
      const end = make("span", { class: "word end", "data-step": this.steps.all.length - 1 }, "");
      end.append(make("bdi", {}, readable(this.steps.all.at(-1).text)));
      this.words.query[last] = end;
      target.append(" ", end);
    }
    const count = this.words.query.length + this.words.key.length;
    this.sheet.classList.toggle("short", count <= SHORT);
    if (!crossed) this.words.key = this.words.query;
    this.sheet.replaceChildren(...(crossed ? [this.makeText("cross", "key", "It reads")] : []), target, this.lines);
  }

  makeText(kind, side, label) {
    const { values } = this.state;
    const units = this.state.units(side, { ...values, kind, units: "pieces" });
    const gaps = gapsOf(this.source, kind, side, units);
    const element = make("p", { class: `written ${side}` });
    if (kind === "cross") element.append(make("span", { class: "written-by" }, label));
    const messages = side === "query" ? this.source.facts.messages : [];
    let [begun, into] = [false, element];
    for (const { first: index, special, sink, continues, continued } of units.all) {
      const hidden = sink || (special && !values.specials);
      const step = side === "query" ? index - this.steps.facts.first : -1;
      const word = make("span", { class: "word", "data-step": step >= 0 ? step : null }, units.element(index));
      if (messages.some(({ frame }) => frame === index)) element.append((into = make("span", { class: "message" })));
      const frame = messages.length > 0 && !messages.some((of) => of.first <= index && index <= of.last);
      const looks = { prompt: side === "query" && step < 0, frame, continues, continued };
      for (const [look, on] of Object.entries(looks)) word.classList.toggle(look, on);
      this.words[side][index] = hidden ? null : word;
      if (hidden) continue;
      if (begun) into.append(gaps.get(index));
      begun = true;
      into.append(word);
    }
    return element;
  }

  // Which words stand there: of the side that the row is over.
  keys() {
    return this.steps.kind() === "cross" ? this.words.key : this.words.query;
  }

  draw(place) {
    const now = this.steps.token(place);
    const row = this.steps.row(place);
    const keys = this.keys();
    const full = row ? this.steps.full(row, (key) => keys[key]) : 1;
    this.words.query.forEach((word, index) => {
      word?.classList.toggle("now", index === now);
      word?.classList.toggle("unwritten", index > now);
    });
    const [card, blue] = ["--card", "--query"].map((name) => this.colours.of(name));
    for (const words of new Set([this.words.query, this.words.key])) {
      words.forEach((word, key) => {
        if (!word) return;
        const part = words === keys && row ? (row[key] || 0) / full : 0;
        const colour = part > 0.02 ? mixed(card, blue, 0.06 + 0.84 * part) : "";
        word.style.backgroundColor = colour;
        word.style.color = colour ? inkOn(colour) : "";
        word.title = row && words === keys && row[key] > 0 ? percent(row[key]) : "";
      });
    }
    this.now = this.words.query[now];
    this.read = (row ? Array.from(row, (weight, key) => ({ key, weight })) : [])
      .filter(({ key, weight }) => keys[key] && weight >= LEAST)
      .sort((a, b) => b.weight - a.weight)
      .slice(0, MOST_LINES)
      .map(({ key, weight }) => ({ word: keys[key], part: weight / full }));
    this.connect();
  }

  // The lines, between the words where they stand now.
  connect() {
    if (!this.now || this.sheet.clientWidth === 0) return;
    const from = this.placeOf(this.now);
    const shapes = this.read.map(({ word, part }) => {
      const to = this.placeOf(word);
      const flat = Math.abs(to.top - from.top) < 4;
      const [x, y] = [to.x, flat ? to.top : to.bottom];
      const lift = flat ? Math.min(APART, 6 + Math.abs(from.x - x) / 12) : (from.top - to.bottom) / 2;
      const path = flat
        ? `M${from.x} ${from.top} C${from.x} ${from.top - 1.33 * lift} ${x} ${y - 1.33 * lift} ${x} ${y}`
        : `M${from.x} ${from.top} C${from.x} ${from.top - lift} ${x} ${y + lift} ${x} ${y}`;
      return drawn("path", {
        d: path,
        fill: "none",
        stroke: this.colours.of("--query"),
        "stroke-width": (0.8 + 3.2 * part).toFixed(2),
        "stroke-opacity": (0.25 + 0.65 * part).toFixed(2),
        "stroke-linecap": "round",
      });
    });
    const { scrollWidth: width, scrollHeight: height } = this.sheet;
    for (const [name, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` }))
      this.lines.setAttribute(name, String(value));
    this.lines.replaceChildren(...shapes);
  }

  placeOf(word) {
    const { offsetLeft, offsetTop, offsetWidth, offsetHeight } = word;
    return { x: offsetLeft + offsetWidth / 2, top: offsetTop, bottom: offsetTop + offsetHeight };
  }
}
