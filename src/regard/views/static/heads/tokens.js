// One column of units: their elements, and the numbers and bars on those in view.

import { make } from "../base/dom.js";
import { makeStop } from "../base/keys.js";

const FADED = 0.02; // a token whose bar would be shorter steps back
const SHORT = /^[ -~]{1,5}$/; // it fits on the narrowest page
const BLOCK = 16; // tokens; the browser passes over a block that is out of view: its style, layout and paint

export class TokenColumn {
  constructor({ state, colours }, side, label) {
    this.state = state;
    this.colours = colours;
    this.side = side;
    const name = side === "query" ? "queries" : "keys";
    this.element = make("div", { class: `tokens ${name}`, role: "listbox", "aria-label": label });
    this.order = [];
    this.stop = makeStop();
  }

  // The units on show have changed; order: their first tokens.
  fill(order) {
    const units = this.state.units(this.side);
    this.order = order;
    this.place = new Int32Array(units.tokens.length).fill(-1);
    order.forEach((index, position) => (this.place[index] = position));
    this.elements = order.map((index, position) => this.make(units, index, order[position - 1]));
    this.painted = [0, 0];
    this.looks = this.elements.map(() => ({ bar: "", several: false, classes: 0 })); // what the elements have
    const blocks = [];
    for (let i = 0; i < order.length; i += BLOCK) {
      const some = this.elements.slice(i, i + BLOCK);
      blocks.push(make("div", { class: "token-block", "--tokens": some.length }, ...some));
    }
    this.element.replaceChildren(...blocks);
    this.stop(this.elements[0]);
  }

  make(units, index, above) {
    const unit = units.at(index);
    const element = tokenElement(units, index, this.side);
    if (!SHORT.test(unit.text)) element.classList.add("long");
    if (unit.continues && above === index - 1) element.classList.add("continues");
    if (unit.continued) element.classList.add("continued");
    if (above !== undefined && units.at(above).sequence !== unit.sequence && unit.sequence === 1)
      element.classList.add("second");
    element.append(make("span", { class: "number" }, ""));
    return element;
  }

  elementOf(index) {
    return this.elements[this.place[index]];
  }

  rove(index) {
    this.stop(this.elementOf(index));
  }

  // Numbers and bars, for the units in view only; what has left the view is cleared, so that nothing there keeps
  // the number of another row.
  // series: [{ place, weights, strength(weight) }], one for each head; null where this column has no numbers.
  // measure: how its numbers are written, what share they are of the largest, and whether there is one (see Weights).
  paint(from, to, { series, least, measure, on, at, pin }) {
    const last = Math.min(to, this.order.length);
    const [oldFirst, oldLast] = this.painted;
    const blank = { series: null, least, measure, on: null, at: null, pin: null };
    for (let position = oldFirst; position < oldLast; position += 1) {
      if (position < from || position >= last) this.paintOne(position, blank);
    }
    this.painted = [from, last];
    for (let position = from; position < last; position += 1)
      this.paintOne(position, { series, least, measure, on, at, pin });
  }

  paintOne(position, { series, least, measure, on, at, pin }) {
    const element = this.elements[position];
    const index = this.order[position];
    const inside = (token) => token.index <= index && index <= (token.to ?? token.index);
    const holds = (token) => Boolean(token) && token.side === this.side && inside(token);
    const best = series && measure.isThere(on, index) ? strongestOf(series, index) : null;
    this.write(
      element.lastChild,
      best && this.state.units(this.side).at(index).only === undefined ? this.number(best, series.length, measure) : "",
    );
    const look = this.looks[position];
    this.paintBars(element, look, series, best, index);
    this.paintClasses(element, look, {
      weighed: series,
      several: series && series.length > 1,
      faded: best ? measure.share(best.weight) < least || best.strength < FADED : on && !holds(on),
      less: best && best.weight < 0,
      unwritten: !this.state.isWritten(this.side, index),
      on: holds(on),
      at: holds(at),
      pinned: holds(pin),
    });
  }

  // What an element has already is not set again: the browser would go over its style.
  paintClasses(element, look, wanted) {
    Object.entries(wanted).forEach(([name, value], i) => {
      const bit = 1 << i;
      if (Boolean(look.classes & bit) === Boolean(value)) return;
      look.classes ^= bit;
      element.classList.toggle(name, Boolean(value));
      if (name === "pinned") element.setAttribute("aria-selected", String(Boolean(value)));
    });
  }

  number({ weight, place }, count, measure) {
    return count > 1 ? `${measure.format(weight)} ${this.colours.letter(place)}` : measure.format(weight);
  }

  // The text node is kept: a new one would be laid out with all that is around it.
  write(number, text) {
    const node = number.firstChild;
    if (!node) number.append(text);
    else if (node.data !== text) node.data = text;
  }

  // A bar is the token's own background: a box of its own, or a custom property, which its children inherit, costs
  // the browser several times as much in every frame.
  // The browser draws whole pixels, and a row over a long text is mostly bars of none: to a thousandth of the column
  // they stay as they are from row to row.
  paintBars(element, look, series, best, index) {
    const several = Boolean(series) && series.length > 1;
    const bar = several
      ? this.bars(series, index)
      : best
        ? `${(100 * best.strength).toFixed(1)}% calc(100% - 4px)`
        : "";
    if (bar === look.bar && several === look.several) return;
    if (several !== look.several) element.style.background = "";
    element.style[several ? "background" : "backgroundSize"] = bar;
    Object.assign(look, { bar, several });
  }

  // One strip for each head, always in the same order, so that a strip is known by its place too.
  bars(series, index) {
    const toSide = this.side === "key" ? "left" : "right";
    const height = `(var(--row) - 4px) / ${series.length}`;
    return series
      .map(({ place, weights, strength }, i) => {
        const colour = `${this.colours.series(place)}66`;
        return `linear-gradient(${colour}, ${colour}) ${toSide} calc(2px + ${i} * ${height}) / ${100 * strength(weights[index])}% calc(${height}) no-repeat`;
      })
      .join(", ");
  }
}

// A word as something to be chosen; side: "" where it stands for both.
export function tokenElement(units, index, side) {
  const { special, sink, only } = units.at(index);
  const classes = [
    ["token", true],
    ["special", special],
    ["sink", sink],
    ["only", only !== undefined],
  ];
  const said =
    only !== undefined
      ? `Only in ${only + 1}: there is no difference to show`
      : sink
        ? "What the softmax gives to nothing: a column of its own, without a value"
        : null;
  const badge =
    only === undefined
      ? []
      : [make("span", { class: "only-in" }, make("span", { class: "sr-only" }, "only in "), String(only + 1))];
  const attributes = {
    class: classes.flatMap(([name, has]) => (has ? [name] : [])).join(" "),
    role: "option",
    tabindex: "-1",
    "aria-selected": "false",
    "data-side": side || null,
    "data-token": String(index),
    "aria-description": special ? null : `token ${index}`, // a text has many an "a"
    title: said,
  };
  return make("div", attributes, make("span", { class: "chip" }, units.element(index), ...badge));
}

function strongestOf(series, index) {
  let best = null;
  for (const { place, weights, strength } of series) {
    const weight = weights[index];
    if (!best || Math.abs(weight) > Math.abs(best.weight)) best = { place, weight, strength: strength(weight) };
  }
  return best;
}
