// What a page tells of a run beside q, k and v: the vectors on the way (the story), and means of the weights
// (statistics). Python's forms of these are tracing/pages/_contents.py and views/_contents.py.

import { topOf } from "./arithmetic.js";

/** Numbers of each vector that are shown. */
export const SHOWN = 32;
/** Tokens that the story is told of. */
export const MOST_TOKENS = 64;
/** Neurons that are named. */
export const TOP = 5;

/**
 * @typedef {object} Vectors one vector of each token
 * @property {string} name
 * @property {string} part "embedding", "attention", "feed-forward" or "final"
 * @property {Float32Array} values the first numbers of each, token by token
 * @property {Float32Array} lengths of the whole vectors
 *
 * @typedef {{ places: Int32Array, values: Float32Array, active: Int32Array }} Neurons the largest of each token, and how
 *   many are above 0
 */

/**
 * @param {string} name
 * @param {string} part
 * @param {Float32Array} rows
 * @param {number} width of a row
 * @param {number} [stride] from row to row
 * @returns {Vectors}
 */
export function vectors(name, part, rows, width, stride = width) {
  const tokens = Math.min(MOST_TOKENS, rows.length / stride);
  const shown = Math.min(SHOWN, width);
  const values = new Float32Array(tokens * shown);
  const lengths = new Float32Array(tokens);
  for (let token = 0; token < tokens; token += 1) {
    const row = rows.subarray(token * stride, token * stride + width);
    values.set(row.subarray(0, shown), token * shown);
    let square = 0;
    for (const each of row) square += each * each;
    lengths[token] = Math.sqrt(square);
  }
  return { name, part, values, lengths };
}

/**
 * @param {Float32Array} rows what is inside a feed-forward network
 * @param {number} width of a row
 * @param {number} stride from row to row
 * @returns {Neurons}
 */
export function neurons(rows, width, stride) {
  const tokens = Math.min(MOST_TOKENS, rows.length / stride);
  const sizes = new Float32Array(width);
  const top = Math.min(TOP, width);
  const found = {
    places: new Int32Array(tokens * top),
    values: new Float32Array(tokens * top),
    active: new Int32Array(tokens),
  };
  for (let token = 0; token < tokens; token += 1) {
    const row = rows.subarray(token * stride, token * stride + width);
    for (let at = 0; at < width; at += 1) {
      if (row[at] > 0) found.active[token] += 1;
      sizes[at] = Math.abs(row[at]);
    }
    const best = topOf(sizes, top);
    found.places.set(best, token * top);
    found.values.set(
      best.map((at) => row[at]),
      token * top,
    );
  }
  return found;
}

/** Means of the rows of one layer's heads. */
export class Means {
  /** @param {number} heads @param {number} tokens @param {boolean[]} special */
  constructor(heads, tokens, special) {
    this.tokens = tokens;
    this.special = special.flatMap((each, at) => (each ? [at] : []));
    const names = ["entropy", "largest", "to_first", "distance", "to_self"];
    if (this.special.length > 0) names.push("to_special");
    if (tokens > 1) names.push("to_previous", "to_next");
    /** @type {Record<string, number[]>} */
    this.sums = Object.fromEntries(names.map((name) => [name, new Array(heads).fill(0)]));
  }

  /** @param {number} head @param {number} query @param {Float64Array} row */
  add(head, query, row) {
    const { tokens, sums } = this;
    let [entropy, largest, distance, total] = [0, 0, 0, 0];
    for (let key = 0; key < tokens; key += 1) {
      const weight = row[key];
      if (weight > 0) entropy -= weight * Math.log(weight);
      if (weight > largest) largest = weight;
      distance += weight * Math.abs(query - key);
      total += weight;
    }
    sums.entropy[head] += entropy;
    sums.largest[head] += largest;
    sums.distance[head] += total > 0 ? distance / total : 0;
    sums.to_first[head] += row[0];
    sums.to_self[head] += row[query];
    if (sums.to_special) for (const key of this.special) sums.to_special[head] += row[key];
    // The first query has no token before it, and the last none after it.
    if (query > 0) sums.to_previous[head] += row[query - 1];
    if (query < tokens - 1) sums.to_next[head] += row[query + 1];
  }

  /** @returns {Record<string, number[]>} by name, of each head */
  found() {
    const count = (/** @type {string} */ name) => (["to_previous", "to_next"].includes(name) ? 1 : 0);
    return Object.fromEntries(
      Object.entries(this.sums).map(([name, sums]) => [name, sums.map((sum) => sum / (this.tokens - count(name)))]),
    );
  }
}
