// Why a head of the live model looks from each word at each: the largest parts of its scores by what wrote the key, each norm
// with its scale as it was in this run. Python's form is tracing/reasons/_pairs.py, whose names these are.

import { softmax } from "./arithmetic.js";

const LEAST = 0.05; // weights below are not asked about
const MOST = 3; // parts that are told of a pair
export const LONGEST = 256; // tokens of which a run keeps what it takes

/**
 * @typedef {import("./model.js").LiveModel} LiveModel
 * @typedef {{ said: string, values: Float64Array, taken?: (key: number, toward: Float64Array) => number }} Part
 *   values: for each token one of the size of a head, before the turn; taken: from which token a head took most of it
 * @typedef {{ query: number, key: number, total: number, values: number[] }} Pair
 * @typedef {{ parts: string[], pairs: [number, number, number, [number, number | null, number][], number][] }} Why
 */

/**
 * Of the last run; null where it was of a longer text or with other edits than heads switched off, and of models that norm
 * their keys or what a sublayer gives.
 * @param {LiveModel} model @param {number} layer @param {number} head
 * @returns {Why | null}
 */
export function pairsOf(model, layer, head) {
  const { last, description } = model;
  if (!last || last.request.ids.length > LONGEST || last.request.unseen.length + last.request.weights.length > 0)
    return null;
  const normed = ["attention.k_norm", "attention_residual.after"].map((name) => `layers.${layer}.${name}.weight`);
  if (normed.some((name) => description.tensors[name])) return null;
  const keys = new Keys(model, layer, head);
  const pairs = keys.pairs();
  /** @type {Part[]} */
  const written = [];
  for (const part of keys.parts()) {
    written.push(part);
    keys.add(pairs, part.values);
  }
  for (const { total, values } of pairs) values.push(total - values.reduce((sum, each) => sum + each, 0));
  written.push({ said: "biases", values: new Float64Array() });
  /** @type {Map<string, number>} */
  const parts = new Map();
  const told = pairs.map(({ query, key, total, values }) => {
    const sign = total >= 0 ? 1 : -1;
    const best = [...values.keys()].sort((one, other) => sign * (values[other] - values[one])).slice(0, MOST);
    const toward = keys.toward(query, key);
    return /** @type {Why["pairs"][number]} */ ([
      query,
      key,
      rounded(total),
      best.map((place) => {
        const { said, taken } = written[place];
        if (!parts.has(said)) parts.set(said, parts.size);
        return [parts.get(said), taken?.(key, toward) ?? null, rounded(values[place])];
      }),
      rounded(values.reduce((sum, each) => sum + (sign * each > 0 ? each : 0), 0)),
    ]);
  });
  return { parts: [...parts.keys()], pairs: told };
}

/** @param {number} value */
const rounded = (value) => Math.round(100 * value) / 100;

/** The keys of a head as a sum: one map, from the residual stream to them, is drawn back through the layers. */
class Keys {
  /** @param {LiveModel} model @param {number} layer @param {number} head */
  constructor({ description, work, last }, layer, head) {
    const { request, run } = /** @type {NonNullable<typeof last>} */ (last);
    this.description = description;
    this.work = work;
    this.request = request;
    this.run = run;
    this.layer = layer;
    this.head = head;
    this.tokens = request.ids.length;
    this.of = run.layers[layer];
    const { heads, kvHeads, dim, k } = this.of;
    const group = Math.floor((head * kvHeads) / heads);
    this.k = k.subarray(group * this.tokens * dim, (group + 1) * this.tokens * dim);
    this.map = Array.from({ length: dim }, (_, i) =>
      Float64Array.from(work.row(`layers.${layer}.attention.k.weight`, group * dim + i)),
    );
    this.scale = new Float64Array(this.tokens).fill(1);
    if (description.norm === "pre") this.through(`layers.${layer}.attention_residual.norm`, run.hidden[layer]);
  }

  /** @returns {Generator<Part>} the last that was written first; without biases */
  *parts() {
    const { run, request, work } = this;
    const { norm, tensors } = this.description;
    for (let layer = this.layer - 1; layer >= 0; layer -= 1) {
      const { attended, fed } = run.layers[layer];
      const sum = run.hidden[layer].map((each, at) => each + attended[at]);
      const name = `layers.${layer}.attention_residual.norm`;
      if (norm === "post") {
        const between = this.normed(name, sum);
        this.through(
          `layers.${layer}.ffn_residual.norm`,
          between.map((each, at) => each + fed[at]),
        );
      }
      yield { said: `feed-forward ${layer}`, values: this.made(fed) };
      if (norm === "post") this.through(name, sum);
      yield* this.heads(layer);
    }
    const { learned, positions } = run.embedding;
    /** @type {[string, Float32Array][]} */
    const looked = [["the word itself", learned]];
    if (positions) looked.push(["its position", positions]);
    if (tensors["embeddings.token_types.weight"]) {
      const types = request.types.flatMap((type) => [...work.row("embeddings.token_types.weight", type)]);
      looked.push(["its token type", Float32Array.from(types)]);
    }
    if (tensors["embeddings.norm.weight"])
      this.through(
        "embeddings.norm",
        learned.map((_, at) => looked.reduce((sum, [, rows]) => sum + rows[at], 0)),
      );
    for (const [said, rows] of looked) yield { said, values: this.made(rows) };
  }

  /** @param {number} layer @returns {Generator<Part>} */
  *heads(layer) {
    const { map, tokens, work } = this;
    const { heads, kvHeads, dim, context, v } = this.run.layers[layer];
    const [size, wide] = [map.length, heads * dim];
    const scale = Float64Array.from(this.scale);
    const maps = new Float64Array(wide * size);
    for (let row = 0; row < this.description.dim; row += 1) {
      const output = work.row(`layers.${layer}.attention.output.weight`, row);
      for (let d = 0; d < size; d += 1) {
        const of = map[d][row];
        for (let i = 0; i < wide; i += 1) maps[d * wide + i] += of * output[i];
      }
    }
    for (let head = 0; head < heads; head += 1) {
      const values = new Float64Array(tokens * size);
      for (let token = 0; token < tokens; token += 1) {
        const from = (head * tokens + token) * dim;
        for (let d = 0; d < size; d += 1) {
          let sum = 0;
          for (let i = 0; i < dim; i += 1) sum += maps[d * wide + head * dim + i] * context[from + i];
          values[token * size + d] = scale[token] * sum;
        }
      }
      const taken = (/** @type {number} */ key, /** @type {Float64Array} */ toward) => {
        const back = new Float64Array(dim);
        for (let d = 0; d < size; d += 1)
          for (let i = 0; i < dim; i += 1) back[i] += maps[d * wide + head * dim + i] * toward[d];
        const first = Math.floor((head * kvHeads) / heads) * tokens * dim;
        const given = this.weights(layer, head, key).map(
          (weight, at) => weight * dot(v, first + at * dim, back, 0, dim),
        );
        const sign = given.reduce((sum, each) => sum + each, 0) >= 0 ? 1 : -1;
        return given.indexOf(sign * Math.max(...given.map((each) => sign * each)));
      };
      yield { said: `head ${layer}.${head}`, values, taken };
    }
  }

  /** A row of the weights of a head. @param {number} layer @param {number} head @param {number} query */
  weights(layer, head, query) {
    const { tokens, description } = this;
    const { heads, kvHeads, dim, q, k } = this.run.layers[layer];
    const seen = description.causal ? query + 1 : tokens;
    const [from, first] = [(head * tokens + query) * dim, Math.floor((head * kvHeads) / heads) * tokens];
    const row = new Float64Array(seen);
    for (let key = 0; key < seen; key += 1)
      row[key] = description.layers[layer].scale * dot(q, from, k, (first + key) * dim, dim);
    softmax(row, seen);
    return row;
  }

  /** Those of enough weight, each with its score less the mean of its row. @returns {Pair[]} */
  pairs() {
    /** @type {Pair[]} */
    const pairs = [];
    for (let query = 0; query < this.tokens; query += 1)
      this.weights(this.layer, this.head, query).forEach((weight, key) => {
        if (weight >= LEAST) pairs.push({ query, key, total: 0, values: [] });
      });
    this.scores(pairs, this.k, (pair, value) => {
      pair.total = value;
    });
    return pairs;
  }

  /** Adds a part's value to each pair. @param {Pair[]} pairs @param {Float64Array} values */
  add(pairs, values) {
    this.scores(pairs, this.turned(values), (pair, value) => pair.values.push(value));
  }

  /**
   * The scores with these as keys, less the mean of their rows.
   * @param {Pair[]} pairs @param {ArrayLike<number>} keys @param {(pair: Pair, value: number) => void} told
   */
  scores(pairs, keys, told) {
    const { tokens, description, layer, head } = this;
    const { dim, q } = this.of;
    const score = (/** @type {number} */ query, /** @type {number} */ key) =>
      description.layers[layer].scale * dot(q, (head * tokens + query) * dim, keys, key * dim, dim);
    /** @type {Map<number, number>} */
    const means = new Map();
    for (const pair of pairs) {
      if (!means.has(pair.query)) {
        const seen = description.causal ? pair.query + 1 : tokens;
        let sum = 0;
        for (let key = 0; key < seen; key += 1) sum += score(pair.query, key);
        means.set(pair.query, sum / seen);
      }
      told(pair, score(pair.query, pair.key) - means.get(pair.query));
    }
  }

  /** What a key is multiplied with, turned back. @param {number} query @param {number} key */
  toward(query, key) {
    const { dim, q } = this.of;
    const from = (this.head * this.tokens + query) * dim;
    const found = Float64Array.from(q.subarray(from, from + dim));
    this.turn(found, 0, key, -1);
    return found;
  }

  /** @param {Float64Array} values */
  turned(values) {
    if (!this.description.layers[this.layer].rotary) return values;
    const found = Float64Array.from(values);
    for (let token = 0; token < this.tokens; token += 1) this.turn(found, token * this.of.dim, token, 1);
    return found;
  }

  /** @param {Float64Array} values @param {number} at @param {number} token @param {1 | -1} way */
  turn(values, at, token, way) {
    const { rotary } = this.description.layers[this.layer];
    if (!rotary) return;
    const { frequencies, layout, amplitude } = rotary;
    const [apart, step] = layout === "half" ? [frequencies.length, 1] : [1, 2];
    frequencies.forEach((frequency, pair) => {
      const angle = Math.fround(token * frequency);
      const [cos, sin] = [Math.cos(angle) * amplitude, way * Math.sin(angle) * amplitude];
      const one = at + pair * step;
      const [a, b] = [values[one], values[one + apart]];
      values[one] = a * cos - b * sin;
      values[one + apart] = b * cos + a * sin;
    });
  }

  /** What the map makes of rows, token by token. @param {Float32Array} rows */
  made(rows) {
    const { map, scale, tokens } = this;
    const wide = this.description.dim;
    const found = new Float64Array(tokens * map.length);
    for (let token = 0; token < tokens; token += 1)
      for (let d = 0; d < map.length; d += 1)
        found[token * map.length + d] = scale[token] * dot(rows, token * wide, map[d], 0, wide);
    return found;
  }

  /** Draws the map back through a norm, as it was where it was given these. @param {string} name @param {Float32Array} given */
  through(name, given) {
    const gain = this.work.vector(`${name}.weight`);
    const { dim, rms } = this.description;
    this.lengths(given).forEach(({ factor }, token) => {
      this.scale[token] *= factor;
    });
    for (const row of this.map) {
      for (let i = 0; i < dim; i += 1) row[i] *= gain[i];
      const mean = rms ? 0 : row.reduce((sum, each) => sum + each, 0) / dim;
      for (let i = 0; i < dim; i += 1) row[i] -= mean;
    }
  }

  /** What a norm makes of rows. @param {string} name @param {Float32Array} given */
  normed(name, given) {
    const { dim, rms } = this.description;
    const [gain, bias] = [this.work.vector(`${name}.weight`), rms ? null : this.work.vector(`${name}.bias`)];
    const lengths = this.lengths(given);
    return given.map((each, at) => {
      const { mean, factor } = lengths[Math.floor(at / dim)];
      return (each - mean) * factor * gain[at % dim] + (bias ? bias[at % dim] : 0);
    });
  }

  /** Of each row its mean, which RMSNorm leaves, and by what a norm multiplies it. @param {Float32Array} given */
  lengths(given) {
    const { dim, rms, eps } = this.description;
    return Array.from({ length: this.tokens }, (_, token) => {
      const row = given.subarray(token * dim, (token + 1) * dim);
      const mean = rms ? 0 : row.reduce((sum, each) => sum + each, 0) / dim;
      const square = row.reduce((sum, each) => sum + (each - mean) ** 2, 0);
      return { mean, factor: 1 / Math.sqrt(square / dim + eps) };
    });
  }
}

/** @param {ArrayLike<number>} one @param {number} from @param {ArrayLike<number>} other @param {number} at @param {number} count */
function dot(one, from, other, at, count) {
  let sum = 0;
  for (let i = 0; i < count; i += 1) sum += one[from + i] * other[at + i];
  return sum;
}
