// A run of the live model as a page holds one: the facts and blocks that Python writes of a trace (views/_blocks.py,
// views/_contents.py), so that the page reads both with the same source. A block is bytes, not yet text.

import { SHOWN } from "./telling.js";

/**
 * @typedef {import("./model.js").Description} Description
 * @typedef {import("./model.js").LayerRun} LayerRun
 * @typedef {import("./model.js").Run} Run
 * @typedef {import("./tokenizer.js").Encoded} Encoded
 */

/** Arrays by name, as bytes. */
class Blocks {
  /** @type {Record<string, Uint8Array>} */
  bytes = {};

  /** @param {string} name @param {Float32Array | Int32Array} array */
  add(name, array) {
    this.bytes[name] = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
    return name;
  }

  /** As decodeValues reads it: float32, not in steps. @param {string} name @param {Float32Array} array */
  addValues(name, array) {
    return { values: this.add(name, array), steps: null };
  }
}

/**
 * @param {Description} description
 * @param {Encoded} encoded
 * @param {Run} run
 * @returns {{ facts: Record<string, any>, blocks: Record<string, Uint8Array> }} what is of the run; the page adds what
 *   is of the model
 */
export function factsOf(description, encoded, run) {
  const blocks = new Blocks();
  const kind = description.causal ? "decoder" : "encoder";
  const { positions } = run.embedding;
  const table = positions && {
    count: encoded.ids.length,
    dim: description.dim,
    ...blocks.addValues("positions", positions),
  };
  const side = {
    text: encoded.text,
    pair: encoded.pair,
    tokens: encoded.tokens.map(({ text, surface, bytes, special, sequence, word, unknown }) => ({
      text,
      special,
      sequence,
      word,
      ...(surface === text ? {} : { surface }),
      ...(bytes ? { bytes } : {}),
      ...(unknown ? { unknown } : {}),
    })),
    words: encoded.words,
    positions: { table },
  };
  const layers = run.layers.map((each, number) => layerFacts(description, number, each, blocks));
  const norms = run.layers.map(({ heads, norms: values, most }, number) => ({
    heads,
    ...blocks.addValues(`norm-${number}`, values),
    most: [...most],
  }));
  const facts = {
    encoding: "float32",
    every: 1,
    sides: { [kind]: side },
    kinds: {
      [kind]: {
        query: kind,
        key: kind,
        layers,
        statistics: statisticsOf(run.layers),
        names: run.layers.map(({ names }) => names),
        measures: [{ name: "norm", by: "head", of: "", difference: 0, layers: norms }],
      },
    },
    names: run.named,
    leftOut: null,
    values: { held: "all", difference: 0, every: 1 },
    story: { [kind]: storyOf(description, encoded, run, blocks) },
  };
  return { facts, blocks: blocks.bytes };
}

/** @param {Description} description @param {number} number @param {LayerRun} run @param {Blocks} blocks */
function layerFacts({ causal, layers }, number, { heads, kvHeads, dim, q, k, v, dragged }, blocks) {
  const tokens = q.length / heads / dim;
  const { scale, softcap, rotary } = layers[number];
  const bias = new Float32Array(dragged.length > 0 ? heads * tokens * tokens : 0);
  for (const { head, query, key, bias: added } of dragged) bias[(head * tokens + query) * tokens + key] = added;
  return {
    layer: number,
    heads,
    kvHeads,
    headDim: dim,
    scale,
    softcap,
    mask: causal ? { low: null, high: 0, keys: null, segments: null, bits: null } : null,
    bias: dragged.length > 0 ? { heads, dense: true, ...blocks.addValues(`bias-${number}`, bias) } : null,
    sinks: null,
    rotary: rotary && {
      ...rotary,
      frequencies: blocks.add(`rotary-${number}`, Float32Array.from(rotary.frequencies)),
    },
    q: blocks.addValues(`q-${number}`, q),
    k: blocks.addValues(`k-${number}`, k),
    v: { dim, heads: Array.from({ length: kvHeads }, (_, head) => head), ...blocks.addValues(`v-${number}`, v) },
  };
}

/** Of each head of each layer; null where a layer has fewer heads. @param {LayerRun[]} layers */
function statisticsOf(layers) {
  const heads = Math.max(...layers.map((each) => each.heads));
  const names = Object.keys(layers[0].statistics);
  const of = (/** @type {string} */ name) =>
    layers.map(({ statistics }) => Array.from({ length: heads }, (_, head) => statistics[name][head] ?? null));
  return Object.fromEntries(names.map((name) => [name, of(name)]));
}

/** @param {Description} description @param {Encoded} encoded @param {Run} run @param {Blocks} blocks */
function storyOf({ dim, causal, vocabulary }, { ids }, run, blocks) {
  const all = [run.embedding, ...run.layers].flatMap(({ rows }, place) =>
    rows.map((row, at) => ({ ...row, layer: place === 0 ? null : place - 1, isLast: at === rows.length - 1 })),
  );
  const tokens = all[0].lengths.length;
  /** @type {number[]} */
  const stream = []; // the rows that are the residual stream
  const rows = all.map(({ name, part, layer, isLast }, place) => {
    const isSum = name === "sum" || name.startsWith("x + ");
    // The tables, or the stream and what the sublayer gave.
    const sum = name === "sum" ? stream.map((_, each) => each) : [stream[stream.length - 1], place - 1];
    const hidden = isLast ? { hidden: layer === null ? 0 : layer + 1 } : {};
    if (layer === null || isSum || (name === "LayerNorm" && all[place - 1].name.startsWith("x + ") && !causal))
      stream.push(place);
    return { layer, part, name, ...(isSum ? { sum } : {}), ...hidden };
  });
  const kept = all.filter((_, place) => !rows[place].sum);
  const shown = Math.min(SHOWN, dim);
  const layers = run.layers.map((_, number) => number);
  const heads = Math.max(...run.layers.map((each) => each.heads));
  return {
    tokens: ids.slice(0, tokens).map((_, place) => place),
    ids: ids.slice(0, tokens),
    vocabulary,
    dim,
    shown,
    difference: 0,
    rows,
    values: blocks.addValues("story", joined(kept.map(({ values }) => values))),
    lengths: blocks.add("story-lengths", joined(all.map(({ lengths }) => lengths))),
    moved: blocks.add("story-moved", moved(run, tokens, dim)),
    neurons: {
      layers,
      count: run.layers[0].inside,
      top: run.layers[0].neurons.places.length / tokens,
      places: blocks.add("story-neurons", joined(run.layers.map(({ neurons }) => neurons.places))),
      values: blocks.add("story-neuron-values", joined(run.layers.map(({ neurons }) => neurons.values))),
      active: blocks.add("story-active", joined(run.layers.map(({ neurons }) => neurons.active))),
    },
    parts: {
      attentions: layers.map((layer) => ({ kind: causal ? "decoder" : "encoder", layer })),
      heads,
      lengths: blocks.add("story-parts", joined(run.layers.map((each) => partsOf(each, tokens, heads)))),
    },
  };
}

/** Token by token, as the page reads it. @param {LayerRun} run @param {number} tokens @param {number} most heads */
function partsOf({ parts, heads }, tokens, most) {
  const all = parts.length / heads;
  const out = new Float32Array(tokens * most);
  for (let token = 0; token < tokens; token += 1) {
    for (let head = 0; head < heads; head += 1) out[token * most + head] = parts[head * all + token];
  }
  return out;
}

/**
 * Cosines and distances of each state: to the learned embedding, to what enters layer 0, to the state before.
 * @param {Run} run @param {number} tokens @param {number} dim
 */
function moved({ embedding, hidden }, tokens, dim) {
  const found = new Float32Array(2 * 3 * hidden.length * tokens);
  hidden.forEach((state, place) => {
    [embedding.learned, hidden[0], hidden[Math.max(0, place - 1)]].forEach((other, to) => {
      for (let token = 0; token < tokens; token += 1) {
        const { cosine, distance } = between(state, other, token * dim, dim);
        const at = (to * hidden.length + place) * tokens + token;
        found[at] = cosine;
        found[found.length / 2 + at] = distance;
      }
    });
  });
  return found;
}

/**
 * How alike two vectors are.
 * @param {ArrayLike<number>} one @param {ArrayLike<number>} other @param {number} at where both begin
 * @param {number} dim @param {number} [otherAt] where the other does
 */
export function between(one, other, at, dim, otherAt = at) {
  let [product, ones, others, apart] = [0, 0, 0, 0];
  for (let i = 0; i < dim; i += 1) {
    const [a, b] = [one[at + i], other[otherAt + i]];
    product += a * b;
    ones += a * a;
    others += b * b;
    apart += (a - b) ** 2;
  }
  return { cosine: product / Math.sqrt(ones * others || 1), distance: Math.sqrt(apart) };
}

/** @template {Float32Array | Int32Array} T @param {T[]} arrays @returns {T} */
function joined(arrays) {
  const length = arrays.reduce((sum, each) => sum + each.length, 0);
  const out = /** @type {T} */ (new /** @type {any} */ (arrays[0].constructor)(length));
  let at = 0;
  for (const each of arrays) {
    out.set(each, at);
    at += each.length;
  }
  return out;
}
