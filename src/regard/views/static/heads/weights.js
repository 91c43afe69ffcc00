// The weights on show, between units (pieces or words) and spans of them, and how strongly each is drawn.

import { kept } from "../base/dom.js";
import { formatQuantity, fullOf, quantityOf } from "../base/measures.js";
import { oneOf } from "../base/state.js";
import { meanOf, meanUnits, sumUnits, totalOf } from "../base/units.js";
import { chosenHeads } from "./choice.js";

const MOST_ROWS = 1200;
const MOST_SPANS = 500;
const DECADES = 4; // of the logarithmic scale
export const THRESHOLDS = [0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5];

export const STRENGTH_FIELDS = {
  least: {
    initial: 0,
    read: (text) => THRESHOLDS.find((each) => each === Number(text)),
    write: (least) => (least > 0 ? String(least) : null),
  },
  scale: oneOf(["linear", "log"]),
  largest: oneOf(["head", "one", "own"]), // what a full line stands for: the head's largest, a weight of 1, the row's
  together: oneOf(["each", "mean", "largest"]), // how several heads are drawn
};

export class Weights {
  // heads(): as chosenHeads() has them.
  constructor({ source, state }, heads = () => chosenHeads(state.values)) {
    this.source = source;
    this.state = state;
    this.choose = heads;
    this.forget();
  }

  // After another kind, another measure, other heads or other units. Rows that were missing are asked for again.
  forget() {
    const { values } = this.state;
    this.rows = new Map();
    this.spans = new Map();
    this.chosen = this.choose();
    const combined = values.together !== "each" && this.chosen.length > 1;
    this.heads = combined ? [{ name: values.together, place: 0, of: this.chosen }] : this.chosen;
    this.thickest = null; // the largest of these heads, once it is known (strongest.js)
    this.measure();
    this.signed = Boolean(quantityOf(values.what).signed);
  }

  // Which heads these are, in words.
  named() {
    const { layer, head, together } = this.state.values;
    const count = this.chosen.length;
    if (count < 2) return `layer ${layer}, head ${head}`;
    if (together === "each") return `${count} heads`;
    const [first] = this.chosen;
    const whole =
      this.chosen.every((each) => each.layer === first.layer) &&
      count === this.source.heads(this.state.values.kind, first.layer);
    const of = whole ? `all ${count} heads of layer ${first.layer}` : `${count} heads`;
    return `${together === "mean" ? "mean" : "largest"} of ${of}`;
  }

  // What a full line stands for; of a measure that is still worked out it comes with the numbers.
  measure() {
    this.full = fullOf(this.source, this.state.values, this.chosen);
  }

  // A number as a share of what a full line stands for: the number itself, of weights.
  share(weight) {
    return Math.abs(weight) / this.full;
  }

  // How strongly a number is drawn, from 0 to 1, whatever its sign; `largest` is the largest of its row.
  strength(weight, largest) {
    return this.strengthBy(weight, this.fullest(largest));
  }

  strengthBy(weight, full) {
    const part = Math.min(1, Math.abs(weight) / full) || 0;
    if (this.state.values.scale !== "log") return part;
    return part > 0 ? Math.max(0, 1 + Math.log10(part) / DECADES) : 0;
  }

  // The number that is drawn in full.
  fullest(largest) {
    return { head: this.thickest, one: this.full, own: largest }[this.state.values.largest] || this.full;
  }

  // The number that is drawn this strongly.
  numberAt(strength, largest) {
    const part = this.state.values.scale === "log" ? 10 ** (DECADES * (strength - 1)) : strength;
    return part * this.fullest(largest);
  }

  format(weight) {
    return formatQuantity(weight, this.state.values.what, this.full);
  }

  // In words and lists a weight is a share of 100 %.
  percent(weight) {
    if (this.state.values.what !== "weights") return this.format(weight);
    return weight > 0 && weight < 0.005 ? "< 1 %" : `${Math.round(100 * weight)} %`;
  }

  // For a legend: two digits that count.
  short(weight) {
    const text = String(Number(weight.toPrecision(2)));
    return this.signed ? `±${text}` : text;
  }

  // The weights of a query unit over the key units, at their first tokens; null while they are not there.
  row(head, query) {
    const made = () => this.makeRow(head, this.units("query", query, query));
    return kept(this.rows, `${head.name}.${query}`, made, MOST_ROWS);
  }

  // The row or the column of what has the focus: a unit or a span of units.
  focused(head, { side, index, to = index }) {
    const made = () => {
      const units = this.units(side, index, to);
      return side === "query" ? this.makeRow(head, units) : this.makeColumn(head, units);
    };
    return kept(this.spans, `${head.name}.${side}.${index}.${to}`, made, MOST_SPANS);
  }

  // The rows or columns of what has the focus, one for each head whose numbers are there.
  series(on) {
    return this.heads.map((head) => ({ head, weights: this.focused(head, on) })).filter(({ weights }) => weights);
  }

  // Whether a unit of the other side is there for what has the focus: the mask of some head on show lets a token of
  // the one look at a token of the other, and both are written. What is mixed over layers knows no mask: there, what
  // is exactly 0 has no way.
  isThere({ side, index, to = index }, other) {
    const { kind, what } = this.state.values;
    const across = side === "query" ? "key" : "query";
    if (!this.state.isWritten(across, other)) return false;
    if (!this.source.allows) return true;
    if (what === "rollout")
      return this.heads.some((head) => (this.focused(head, { side, index, to }) || [1])[other] !== 0);
    const ends = (units, from, last) => [units.at(from).first, units.at(last).last];
    const [first, end] = ends(this.state.units(side), index, to);
    const [otherFirst, otherEnd] = ends(this.state.units(across), other, other);
    for (const { layer, head } of this.chosen) {
      for (let one = first; one <= end; one += 1) {
        for (let two = otherFirst; two <= otherEnd; two += 1) {
          const [query, key] = side === "query" ? [one, two] : [two, one];
          if (this.source.allows(kind, layer, head, query, key)) return true;
        }
      }
    }
    return false;
  }

  // The units on show between two, both included.
  units(side, index, to) {
    const units = this.state.units(side);
    return units.all
      .slice(units.of[index], units.of[to] + 1)
      .filter(({ first }) => index === to || this.state.isShown(side, first));
  }

  // A span looks as its tokens do on average.
  makeRow({ layer, head, of }, units) {
    if (of) return this.combined(of.map((each) => this.makeRow(each, units)));
    const { kind, what } = this.state.values;
    const keys = this.state.units("key");
    const mean = meanOf(units, (query) => this.source.row(kind, layer, head, query, what));
    return mean && sumUnits(mean, keys, mean.length === keys.all.length ? mean : undefined);
  }

  // What is given to a span is what is given to all of it.
  makeColumn({ layer, head, of }, units) {
    if (of) return this.combined(of.map((each) => this.makeColumn(each, units)));
    const { kind, what } = this.state.values;
    const total = totalOf(units, (key) => this.source.column(kind, layer, head, key, what));
    return total && meanUnits(total, this.state.units("query"));
  }

  // Of several heads, number by number: the mean, or what is largest whatever its sign.
  combined(each) {
    if (!each.every(Boolean)) return null;
    const mean = this.state.values.together === "mean";
    return each[0].map((_, i) =>
      mean
        ? each.reduce((sum, weights) => sum + weights[i], 0) / each.length
        : each.reduce((most, weights) => (Math.abs(weights[i]) > Math.abs(most) ? weights[i] : most), 0),
    );
  }
}

// The largest of the weights at some places, whatever their signs.
export function largestOf(weights, places) {
  let largest = 0;
  for (const place of places) if (Math.abs(weights[place]) > largest) largest = Math.abs(weights[place]);
  return largest;
}
