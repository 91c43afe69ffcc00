// Which number is worked out: a kind, a layer, a head, a query and a key; and its steps.

import { factorsOf } from "../base/scorers.js";
import { countOr } from "../base/state.js";

// The key that is worked out, a dimension of q and k, one of v.
export const NEURON_FIELDS = { key: countOr(null), dim: countOr(null), vdim: countOr(null) };

export class Chosen {
  constructor({ source, state }) {
    this.source = source;
    this.state = state;
    this.name = "";
  }

  // The state's choice, whole: where it says no query or no key, a query with words in it, and its largest weight.
  // of: the query in any case; chosen: what is chosen otherwise than the state says.
  update(of = null, chosen = {}) {
    const { source, state } = this;
    const { kind, layer, head, pin, key, dim, vdim } = { ...state.values, ...chosen };
    const queries = source.tokens(kind, "query");
    const keys = source.tokens(kind, "key");
    let query = pin && pin.side === "query" ? pin.index : queries.findIndex((token) => !token.special);
    if (pin && pin.side === "key") query = kind === "cross" ? query : Math.min(pin.index, queries.length - 1);
    query = of ?? Math.max(0, query);
    const name = [kind, layer, head, query].join();
    if (name !== this.name || !this.steps) {
      this.steps = source.steps(kind, layer, head, query);
      this.name = name;
    }
    this.kind = kind;
    this.layer = layer;
    this.head = head;
    this.query = query;
    this.queries = queries;
    this.keys = keys;
    if (!this.steps) return false;
    const wanted = pin && pin.side === "key" && key === null ? pin.index : key;
    this.key = wanted !== null && wanted < keys.length ? wanted : placeOfLargest(this.steps.weights);
    this.softmax = softmaxOf(this.steps);
    this.dim = dim !== null && dim < this.steps.dim ? dim : placeOfLargest(this.terms());
    this.vdim = vdim !== null && vdim < this.steps.vDim ? vdim : placeOfLargest(this.steps.context ?? [0]);
    return true;
  }

  // What must be set for a query to be the chosen one, wherever it is hidden or part of a word.
  reach(query) {
    const { state } = this;
    const { units } = state.values;
    const hidden = !state.isShown("query", query, { ...state.values, units: "pieces" });
    const inside = units === "words" && state.units("query").at(query).first !== query;
    return {
      pin: { side: "query", index: query },
      ...(hidden ? { specials: true, filter: "all" } : {}),
      ...(inside ? { units: "pieces" } : {}),
    };
  }

  isSink(key = this.key) {
    return Boolean(this.keys[key].sink);
  }

  // The two factors of a summand.
  factors(d, key = this.key) {
    const { q, k, dim, scorer } = this.steps;
    return factorsOf(scorer, d, q[d], k[key * dim + d]);
  }

  // The summands of the score, dimension by dimension.
  terms(key = this.key) {
    const { dim } = this.steps;
    if (this.isSink(key)) return new Float64Array(dim);
    return Float64Array.from({ length: dim }, (_, d) => {
      const [left, right] = this.factors(d, key);
      return left * right;
    });
  }

  // The summands of the result that this key gives.
  weighted(key = this.key) {
    const { v, vDim, weights } = this.steps;
    if (!v || this.isSink(key)) return null;
    return Float64Array.from({ length: vDim }, (_, d) => weights[key] * v[key * vDim + d]);
  }

  nameOf(side, index) {
    return this.pieces(side).name(index);
  }

  // Tokens, whatever the units of the page: each has a row of its own.
  pieces(side) {
    return this.state.units(side, { kind: this.kind, units: "pieces" });
  }

  // The word that a token is in: { first, last }, whose pieces a page of words counts together.
  word(side, index) {
    return this.state.units(side, { kind: this.kind, units: "words" }).at(index);
  }
}

export function placeOfLargest(values) {
  let best = 0;
  for (let i = 1; i < values.length; i += 1) if (Math.abs(values[i]) > Math.abs(values[best])) best = i;
  return best;
}

// What the softmax does with the scores: the largest, which is taken away first, and the sum of the powers.
function softmaxOf({ scores, sink }) {
  let largest = sink === null ? -Infinity : sink;
  let at = sink === null ? -1 : scores.length;
  scores.forEach((score, key) => {
    if (score > largest) [largest, at] = [score, key];
  });
  if (largest === -Infinity) return { largest, at, total: 0, power: () => 0 };
  const power = (key) => Math.exp((key < scores.length ? scores[key] : sink) - largest);
  let total = sink === null ? 0 : power(scores.length);
  for (let key = 0; key < scores.length; key += 1) total += power(key);
  return { largest, at, total, power };
}

// The places of the largest of some numbers, by size, and the sum of the others.
export function largestPlaces(values, count) {
  const places = Array.from(values, (_, i) => i).sort((a, b) => Math.abs(values[b]) - Math.abs(values[a]) || a - b);
  const rest = places.slice(count);
  return { places: places.slice(0, count), others: rest.length, sum: rest.reduce((total, i) => total + values[i], 0) };
}
