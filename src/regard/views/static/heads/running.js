// The text as people read it, shaded by the row or column of a word: the form of long texts, and of paper.
//
// Of a text that looks at itself a word stands for both sides: a click pins it on the side that is on, and while one is
// pinned the others are pointed at on the other side. Of cross-attention there are two texts, a side each.

import { make, onceAFrame, whenResized } from "../base/dom.js";
import { ACROSS, DOWN, makeStop, onKeys, placeIn } from "../base/keys.js";
import { inkOn, mixed } from "../base/shade.js";
import { sheetOf } from "../base/sheet.js";
import { Pointing } from "./pointing.js";
import { tokenElement } from "./tokens.js";
import { largestOf } from "./weights.js";

const LEVELS = 24; // of shading: a word whose level stays is not painted again
const FAR = 24; // characters that may lie between two tokens; further on it is another word

export class Running {
  constructor(page, weights) {
    this.page = page;
    this.state = page.state;
    this.colours = page.colours;
    this.weights = weights;
    this.series = [];
    this.largest = 0; // of the row that is on show
    this.side = "query"; // which side a click pins, while nothing is pinned
    this.request = (resized = false) => {
      this.resized = this.resized || resized;
      this.nextFrame();
    };
    this.nextFrame = onceAFrame(() => this.draw());
    this.sheet = make("div", { class: "running" });
    this.stage = make("div", { class: "stage", tabindex: "-1" }, this.sheet);
    this.tip = make("span", { class: "running-tip", "aria-hidden": "true", hidden: true }, "");
    this.sheet.append(this.tip);
    this.note = make("p", { class: "note floor" });
    this.element = make("div", { class: "headview" }, this.stage);
    this.pointing = new Pointing(page, weights, this);
    this.stage.addEventListener("scroll", () => this.request(), { passive: true });
    this.stop = makeStop();
    onKeys(this.sheet, (key, event) => this.onKey(key, event));
    whenResized(this.stage, () => this.request(true), this.state.gone);
  }

  // Whether one text serves for both sides.
  isOne() {
    const { kind, filter } = this.state.values;
    return kind !== "cross" && !["ab", "ba"].includes(filter);
  }

  pinOf(target) {
    const element = target.closest("[data-token]");
    if (!element) return null;
    const index = Number(element.dataset.token);
    const last = this.state.units("query").tokens.length; // what comes after it is a sink: no query
    const side = index >= last ? "key" : (this.state.values.pin?.side ?? this.side);
    return { side: element.dataset.side || side, index };
  }

  tokenOf(target) {
    const token = this.pinOf(target);
    const pin = this.state.held();
    if (!token || !pin || !this.isOne()) return token;
    return { side: pin.side === "query" ? "key" : "query", index: token.index };
  }

  rove({ side, index }) {
    this.stop(this.elementOf({ side, index }));
  }

  elementOf({ side, index }) {
    return this.words.find((word) => word.index === index && (!word.side || word.side === side))?.element;
  }

  focusToken(token, focusVisible = true) {
    this.reveal(token);
    this.elementOf(token)?.focus({ preventScroll: true, focusVisible });
  }

  reveal(token) {
    const element = this.elementOf(token);
    if (!element) return;
    const { offsetTop: top, offsetHeight: height } = element;
    if (top < this.stage.scrollTop + height) this.stage.scrollTop = top - 2 * height;
    else if (top + 2 * height > this.stage.scrollTop + this.stage.clientHeight)
      this.stage.scrollTop = top + 3 * height - this.stage.clientHeight;
  }

  // The words on show have changed.
  layout() {
    const shown = this.state.shown();
    this.words = [];
    const one = this.isOne();
    const blocks = one
      ? [["", "key", shown.keys]]
      : [
          ["query", "query", shown.queries],
          ["key", "key", shown.keys],
        ];
    this.sheet.replaceChildren(...blocks.map((block) => this.makeText(...block)), this.tip);
    if (this.words.length > 0) this.rove({ side: this.words[0].side, index: this.words[0].index });
    this.request(true);
  }

  makeText(side, of, order) {
    const label = { "": "The text", query: "Queries", key: "Keys" }[side];
    const element = make("div", { class: `running-text ${side}`, role: "listbox", "aria-label": label });
    const units = this.state.units(of);
    const gaps = gapsOf(this.page.source, this.state.values.kind, of, units);
    let above = null;
    for (const index of order) {
      const unit = units.at(index);
      if (above !== null && units.at(above).sequence !== unit.sequence && unit.sequence === 1)
        element.append(make("br"));
      else if (above !== null) element.append(gaps.get(index));
      const word = tokenElement(units, index, side);
      word.classList.add("word", ...["continues", "continued"].filter((name) => unit[name]));
      element.append(word);
      this.words.push({ side, index, element: word, level: "" });
      above = index;
    }
    return element;
  }

  redraw() {
    this.request();
  }

  // Which words are in view is known from where they stood when the text was laid out.
  measure() {
    if (this.stage.clientWidth === 0) return;
    this.resized = false;
    this.height = this.stage.clientHeight;
    for (const word of this.words) word.top = word.element.offsetTop;
  }

  draw(whole = false) {
    if (this.resized) this.measure();
    if (this.resized) return; // it is not on show
    const { on, at } = this.state.focus();
    this.series = on ? this.seriesOf(on) : [];
    this.lacking = Boolean(on) && this.series.length === 0;
    const [from, to] = whole ? [-Infinity, Infinity] : [this.stage.scrollTop - 60, this.stage.scrollTop + this.height];
    const { pin } = this.state.values;
    for (const word of this.words) if (word.top >= from && word.top <= to) this.paint(word, on, at, pin);
    this.showTip(at);
    this.describe();
  }

  seriesOf(on) {
    const shown = this.state.shown();
    const others = (on.side === "query" ? shown.keys : shown.queries).filter((index) =>
      this.weights.isThere(on, index),
    );
    const series = this.weights.series(on).map(({ head, weights }) => ({ place: head.place, weights }));
    // A row is drawn by itself here: its own largest is the darkest, unless a weight of 1 was asked for.
    this.largest = Math.max(0, ...series.map(({ weights }) => largestOf(weights, others)));
    return series;
  }

  // The strongest of the heads, and how strongly it is drawn; null where there is no number.
  strongest(on, { side, index }) {
    if (this.series.length === 0 || (side && side === on.side) || !this.weights.isThere(on, index)) return null;
    const best = this.series
      .map(({ place, weights }) => ({ place, weight: weights[index] }))
      .reduce((a, b) => (Math.abs(b.weight) > Math.abs(a.weight) ? b : a));
    const { largest, least } = this.state.values;
    const full = largest === "one" ? this.weights.full : this.largest;
    const strength = this.weights.strengthBy(best.weight, full);
    return { ...best, strength: this.weights.share(best.weight) < least ? 0 : strength };
  }

  paint(word, on, at, pin) {
    const holds = (token) =>
      Boolean(token) &&
      (!word.side || word.side === token.side) &&
      token.index <= word.index &&
      word.index <= (token.to ?? token.index);
    const best = on ? this.strongest(on, word) : null;
    const step = best ? Math.round(LEVELS * best.strength) : 0;
    const less = Boolean(best) && best.weight < 0;
    const written = this.state.isWritten(word.side || "query", word.index);
    const level = [step, step && best.place, less, on?.side, holds(on), holds(at), holds(pin), written].join();
    if (level === word.level) return;
    word.level = level;
    const { style, classList } = word.element;
    const { colour, ink } = this.shade(step, best, on);
    style.backgroundColor = colour;
    style.color = ink;
    classList.toggle("on", holds(on));
    classList.toggle("at", holds(at));
    classList.toggle("pinned", holds(pin));
    classList.toggle("less", less && step > 0);
    classList.toggle("unwritten", !written);
    word.element.setAttribute("aria-selected", String(holds(pin)));
  }

  shade(step, best, on) {
    if (step === 0) return { colour: "", ink: "" };
    const colour = mixed(this.colours.of("--card"), this.fullColour(best, on), 0.08 + (0.84 * step) / LEVELS);
    return { colour, ink: inkOn(colour) };
  }

  fullColour(best, on) {
    if (this.weights.signed) return this.colours.of(best.weight < 0 ? "--less" : "--more");
    if (this.weights.heads.length > 1) return this.colours.series(best.place);
    return this.colours.of(on.side === "query" ? "--query" : "--key");
  }

  // The number of the word that is pointed at, beside it.
  showTip(at) {
    const { on } = this.state.focus();
    const word = at && this.words.find(({ side, index }) => index === at.index && (!side || side === at.side));
    const best = word ? this.strongest(on, word) : null;
    this.tip.hidden = !best;
    if (!best) return;
    const letter = this.weights.heads.length > 1 ? ` ${this.colours.letter(best.place)}` : "";
    this.tip.textContent = `${this.weights.format(best.weight)}${letter}`;
    const { offsetLeft: x, offsetTop: y } = word.element;
    this.tip.style.transform = `translate(${x}px, ${y - 22}px)`;
  }

  // The steps of the legend: what is drawn this dark, of the row that is on show.
  scale() {
    const { on } = this.state.focus();
    if (!on || !this.largest) return null;
    return [0.25, 0.5, 1].map((part) => ({
      number: this.weights.short(part * this.largest),
      colour: this.shade(Math.round(LEVELS * this.weights.strengthBy(part, 1)), { weight: 1, place: 0 }, on).colour,
    }));
  }

  describe() {
    const { on } = this.state.focus();
    const name = on && this.state.units(on.side).name(on.index);
    this.note.textContent = !on
      ? "Point at a word to see what it looks at; click to pin it."
      : on.side === "query"
        ? `A stronger colour is more of what ${name} looks at, up to ${this.weights.format(this.largest)}.`
        : `A stronger colour looks more at ${name}, up to ${this.weights.format(this.largest)}.`;
  }

  onKey(key, event) {
    const token = this.pinOf(event.target);
    if (!token) return false;
    const { side } = this.words.find(({ element }) => element === event.target.closest("[data-token]"));
    const list = this.words.filter((word) => word.side === side);
    const at = list.findIndex(({ index }) => index === token.index);
    const to = key in DOWN ? this.beside(list, at, DOWN[key]) : placeIn(list.length, at, key, ACROSS);
    if (key === "Enter" || key === " ") this.pointing.togglePin(token);
    else if (to === undefined) return false;
    else this.go(token, list[to], event.shiftKey);
    return true;
  }

  // The pin goes with the keys.
  go(token, { index }, further) {
    const to = { side: token.side, index };
    if (further) this.pointing.extendFrom(token, index);
    else {
      this.focusToken(to);
      this.state.set({ pin: to, hover: null });
    }
  }

  // The word of the next line, or of the one before, that stands nearest.
  beside(list, at, by) {
    const { offsetTop, offsetLeft } = list[at].element;
    const tops = [...new Set(list.map(({ element }) => element.offsetTop))].sort((a, b) => a - b);
    const top = tops[tops.indexOf(offsetTop) + by];
    if (top === undefined) return at;
    const apart = (i) => Math.abs(list[i].element.offsetLeft - offsetLeft);
    const line = list.flatMap(({ element }, i) => (element.offsetTop === top ? [i] : []));
    return line.reduce((best, i) => (apart(i) < apart(best) ? i : best));
  }

  print(on) {
    return () => {
      for (const word of this.words) word.level = "";
      this.resized = true;
      this.draw(on);
    };
  }

  async picture() {
    this.draw(true);
    const { values } = this.state;
    const title = `${this.page.source.facts.model}: ${this.weights.named()}`;
    this.tip.hidden = true;
    return sheetOf(this.sheet, { title, name: `layer-${values.layer}-head-${values.head}-text` }, this.colours);
  }
}

// What stands between a unit and the one before: as it was typed, where the tokens are found in it; else a space
// between words.
export function gapsOf(source, kind, side, units) {
  const { kinds, sides } = source.facts;
  const facts = sides?.[kinds?.[kind]?.[side]];
  const texts = [facts?.text, facts?.pair].map((text) => text || "");
  const ends = [0, 0];
  const gaps = new Map();
  units.all.forEach((unit, i) => {
    const above = units.all[i - 1];
    const joined = unit.continues || (above && !unit.special && !above.special && isGlued(unit.text));
    gaps.set(unit.first, above && !joined ? " " : "");
    const text = texts[unit.sequence];
    if (text === undefined || unit.special) return;
    const from = ends[unit.sequence];
    const at = text.toLowerCase().indexOf(unit.text.toLowerCase(), from);
    if (at < 0 || at - from > FAR) return;
    if (above && above.sequence === unit.sequence && !above.special) gaps.set(unit.first, text.slice(from, at));
    ends[unit.sequence] = at + unit.text.length;
  });
  return gaps;
}

const isGlued = (text) => /^[.,;:!?)\]}’”]/u.test(text);
