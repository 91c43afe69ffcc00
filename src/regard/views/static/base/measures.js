// What can be drawn of attention: the weights, or one of the measures that the page holds beside them.
//
// A measure has a row and a column as the weights have, and one number that a full line stands for. Python's form of
// these is views/_budget.py; by the name of each the method of a trace is found.

import { decodeRows, decodeValues } from "./numbers.js";

const QUANTITIES = {
  weights: { label: "Weights", one: "weight", says: "how much of a query's weight of 1 goes to each key", from: "" },
  norm: {
    label: "Norm-weighted",
    one: "norm-weighted attention",
    says: "the weight times the size of what the head takes from the key, |α f(x)|: a large weight on a value of no size moves nothing",
    from: "Kobayashi et al. 2020, arXiv 2004.10102",
  },
  value_zeroing: {
    label: "Value zeroing",
    one: "change",
    byLayer: true,
    says: "how far the layer's output of the query turns without the key's value, 1 − cos",
    from: "Mohebbi et al. 2023, arXiv 2301.12971",
  },
  rollout: {
    label: "Rollout",
    one: "share",
    byLayer: true,
    says: "how much of each token of the input is in the query after this layer, if attention were all that mixes",
    from: "Abnar and Zuidema 2020, arXiv 2005.00928",
  },
  gradient: {
    label: "Weight × gradient",
    one: "weight × gradient",
    signed: true,
    more: "raises the number",
    less: "lowers it",
    says: "the weight times the gradient by it",
    from: "Chefer et al. 2021, arXiv 2103.15679",
  },
  difference: {
    label: "Difference",
    one: "difference",
    signed: true,
    shared: true, // one scale for the pictures of all heads: how much they differ is what is asked
    more: "is more in 2",
    less: "more in 1",
    says: "the weight in the second less the weight in the first",
    from: "",
  },
};

export const quantityOf = (name) => ({ name, ...QUANTITIES[name] });

// The names of what a source can draw, the weights first; a source that does not say has these alone.
export function quantities(source, kind) {
  return source.measures ? source.measures(kind) : ["weights"];
}

// The number that a full line of some heads stands for: the same for all of them, so that they can be compared.
export function fullOf(source, { kind, what }, heads) {
  if (what === "weights") return 1;
  return Math.max(...heads.map(({ layer, head }) => source.most(kind, layer, head, what))) || 1;
}

// How the numbers are written. Four decimals; of small ones four digits.
export function formatQuantity(value, what, full) {
  if (what === "weights") return value.toFixed(4);
  const size = Math.abs(value);
  const text = full < 0.02 && size > 0 ? size.toExponential(2) : size.toFixed(4);
  if (Number(text) === 0) return text;
  return QUANTITIES[what].signed ? `${value < 0 ? "−" : "+"}${text}` : text;
}

// Matrices as they are, one a head or one a layer; a sink has no column in them.
export class Matrices {
  constructor(facts, queries, keys, columns, readBlock) {
    this.queries = queries;
    this.keys = keys;
    this.columns = columns;
    this.heads = facts.heads;
    this.values = decodeRows(facts, readBlock, facts.heads * queries);
  }

  start(head, query) {
    return ((this.heads > 1 ? head : 0) * this.queries + query) * this.keys;
  }

  row(head, query) {
    const out = new Float64Array(this.columns);
    const start = this.start(head, query);
    out.set(this.values.subarray(start, start + this.keys));
    return out;
  }

  column(head, key) {
    if (key === this.keys) return new Float64Array(this.queries);
    return Float64Array.from({ length: this.queries }, (_, query) => this.values[this.start(head, query) + key]);
  }
}

// The weights times a number for each key.
export class Norms {
  // weights: { row(head, query), column(head, key) }, null where they are not there yet.
  constructor(facts, keys, columns, readBlock, weights) {
    this.keys = keys;
    this.columns = columns;
    this.weights = weights;
    this.values = decodeValues(facts, readBlock, facts.heads, 1);
  }

  row(head, query) {
    const weights = this.weights.row(head, query);
    if (!weights) return null;
    const out = new Float64Array(this.columns);
    for (let key = 0; key < this.keys; key += 1) out[key] = weights[key] * this.values[head * this.keys + key];
    return out;
  }

  column(head, key) {
    const weights = this.weights.column(head, key);
    if (!weights) return null;
    const norm = key === this.keys ? 0 : this.values[head * this.keys + key];
    return Float64Array.from(weights, (weight) => weight * norm);
  }
}
