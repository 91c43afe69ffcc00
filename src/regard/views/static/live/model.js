// A BERT, GPT-2, Llama or Gemma, and what is built like them, in the browser: the weights that Python packed (views/_live.py, which says how),
// and the forward pass. A pass gives what a page shows of a run, and takes the edits that a reader makes; or, of a text
// that goes on, the next word alone: then what was read before is kept.

import { capped, likeliest, softmax } from "./arithmetic.js";
import { crc32 } from "./blocks.js";
import { drag, rowsOf } from "./edits.js";
import { Gpu } from "./gpu.js";
import { openKernel } from "./kernel.js";
import { Naming } from "./naming.js";
import { NextWord } from "./next_word.js";
import { Opening } from "./opening.js";
import { LONGEST } from "./reasons.js";
import { checked } from "./request.js";
import { Means, neurons, vectors } from "./telling.js";
import { Workspace } from "./workspace.js";

/**
 * @typedef {{ block: string, at: number, rows: number, columns: number, type: string }} Packed a matrix in blocks of a
 *   type, or with rows 0 a vector
 * @typedef {{ frequencies: number[], layout: "half" | "interleaved", amplitude: number }} Rotary radians a position of
 *   each pair of a head's numbers
 * @typedef {object} Description what Python says of a model
 * @property {Record<string, { bytes: number, crc: number }>} blocks
 * @property {Record<string, Packed>} tensors by their names in regard's network
 * @property {number} dim size of the residual stream
 * @property {number | null} scale of the learned embeddings
 * @property {{ heads: number, kvHeads: number, scale: number, softcap: number | null, rotary: Rotary | null }[]} layers
 *   softcap: the bound of the scaled scores; rotary: how positions turn queries and keys
 * @property {"pre" | "post"} norm where the norms of a layer are
 * @property {boolean} rms whether they are RMSNorm, and not LayerNorm
 * @property {boolean} gated whether the feed-forward network has a gate
 * @property {string} activation
 * @property {number} eps
 * @property {boolean} causal
 * @property {number} vocabulary
 * @property {number} positions the most tokens
 * @property {"next" | "masked" | null} head what its head says
 * @property {number[]} ends tokens that end a text
 * @property {string} output the tensor of the output layer
 * @property {number | null} softcap the bound of the logits
 * @property {number | null} [mask] the token that stands for a word to be guessed
 * @property {import("./naming.js").NamingFacts} names
 * @property {"mean" | "cls" | "last" | null} [pooling]
 *
 * @typedef {import("./request.js").Request} Request
 * @typedef {import("./next_word.js").Said} Said
 * @typedef {import("./past.js").Past} Past
 * @typedef {import("./edits.js").Dragged} Dragged
 * @typedef {import("./telling.js").Neurons} Neurons
 * @typedef {import("./telling.js").Vectors} Vectors
 * @typedef {import("./workspace.js").Area} Area
 *
 * @typedef {object} LayerRun arrays from head to head, then from token to token
 * @property {number} heads
 * @property {number} kvHeads heads of k and v
 * @property {number} dim of a head
 * @property {Float32Array} q
 * @property {Float32Array} k
 * @property {Float32Array} v
 * @property {(Dragged & { bias: number })[]} dragged weights of this layer, and what stands for them in the scores
 * @property {Record<string, number[]>} statistics means of the weights, of each head
 * @property {import("./naming.js").Name[][]} names what each head does
 * @property {import("./opening.js").Found | null} opening the link to open on, of this layer and those before
 * @property {Float32Array} norms how long what each head takes from each token is
 * @property {Float32Array} most the largest weight times norm of each head
 * @property {Float32Array} parts how long what each head gives each token is
 * @property {Float32Array} context what each head took for each token; these three of short texts alone, see reasons.js
 * @property {Float32Array} attended what attention gave each token
 * @property {Float32Array} fed what the feed-forward network gave each token
 * @property {Vectors[]} rows
 * @property {number} inside the size of the feed-forward network
 * @property {Neurons} neurons
 *
 * @typedef {object} Run
 * @property {{ rows: Vectors[], learned: Float32Array, positions: Float32Array | null }} embedding
 * @property {LayerRun[]} layers
 * @property {Float32Array[]} hidden the residual stream, token by token: what enters layer 0, and what each layer gives;
 *   the last is the contextual embeddings, after the final norm
 * @property {{ at: number, best: { id: number, probability: number }[] }[]} predicted
 * @property {{ said: string, patterns: { name: string, says: string }[] }} named what is said of the names of heads
 */

const BEST = 10;
const NONE = { places: new Int32Array(), values: new Float32Array(), active: new Int32Array() };

export class LiveModel {
  /**
   * @param {Description} description
   * @param {(name: string) => Uint8Array} read the bytes of a block
   * @param {{ wasm?: boolean, gpu?: string }} [options] wasm: false for JavaScript in any case; gpu: "any" for one that is
   *   software too, "off" for none
   * @returns {Promise<LiveModel>}
   * @throws {Error} in words, where a block is not what Python wrote
   */
  static async open(description, read, options = {}) {
    const sizes = Object.values(description.blocks).map(({ bytes }) => bytes);
    const kernel = await openKernel(
      sizes.reduce((sum, each) => sum + each, 0),
      options,
    );
    /** @type {Record<string, number>} */
    const starts = {};
    let at = 0;
    for (const [name, { bytes, crc }] of Object.entries(description.blocks)) {
      const block = read(name);
      if (block.length !== bytes)
        throw new Error(
          `The model in this file was cut short: of its part ${name}, ${block.length} of ${bytes} bytes are there.`,
        );
      if (crc32(block) !== crc)
        throw new Error(`The model in this file was damaged: its part ${name} is not what was written.`);
      new Uint8Array(kernel.buffer()).set(block, at);
      starts[name] = at;
      at += bytes;
    }
    const bytes = (/** @type {string} */ name) =>
      new Uint8Array(kernel.buffer(), starts[name], description.blocks[name].bytes);
    const gpu = options.gpu === "off" ? null : await Gpu.open(description, bytes, options.gpu === "any");
    return new LiveModel(description, new Workspace(description, kernel, starts, at), gpu);
  }

  /** @param {Description} description @param {Workspace} work @param {Gpu | null} gpu */
  constructor(description, work, gpu) {
    this.description = description;
    this.work = work;
    this.naming = new Naming(description.names, description.causal);
    /** @type {ReturnType<Naming["of"]>} */
    this.text = null;
    /** @type {Opening | null} */
    this.opening = null;
    /** @type {{ request: Required<Request>, run: Run, text: ReturnType<Naming["of"]> } | null} */
    this.last = null;
    this.nextWord = new NextWord(this, gpu);
  }

  /** @param {Request} request @returns {Run} @throws {RangeError} in words, for what cannot be run */
  run(request) {
    const steps = this.steps(request);
    for (;;) {
      const { done, value } = steps.next();
      if (done) return /** @type {Run} */ (value);
    }
  }

  /**
   * The same, layer by layer, so that a newer request can take the place of this one.
   * @param {Request} request
   * @returns {Generator<number, Run>}
   */
  *steps(request) {
    const asked = checked(request, this.description);
    const { work } = this;
    const { dim, layers, tensors } = this.description;
    work.take(asked.ids.length);
    // What comes before the first layer with another edit is what it was.
    const from = this.unchanged(asked);
    /** @type {Run} */
    const run = {
      embedding: { rows: [], learned: work.floats, positions: null },
      layers: [],
      hidden: [],
      predicted: [],
      named: { said: "", patterns: [] },
    };
    const heads = layers.reduce((sum, each) => sum + each.heads, 0);
    this.text = from < 0 || !this.last ? this.naming.of(asked, heads) : this.last.text;
    this.opening = new Opening(this.description.causal, heads, asked, this.last?.run.layers[from - 1]?.opening);
    if (this.last && from >= 0) {
      run.embedding = this.last.run.embedding;
      run.layers = this.last.run.layers.slice(0, from);
      run.hidden = this.last.run.hidden.slice(0, from + 1);
      work.write(work.x, run.hidden[from]);
    } else {
      run.embedding = this.embed(asked);
      run.hidden.push(work.read(work.x));
    }
    for (let layer = Math.max(0, from); layer < layers.length; layer += 1) {
      run.layers.push(this.layer(layer, asked));
      const isNormed = layer === layers.length - 1 && Boolean(tensors["norm.weight"]);
      if (isNormed) work.norm(work.x, "norm");
      run.hidden.push(work.read(work.x));
      if (isNormed) run.layers[layer].rows.push(vectors(`final ${this.normName}`, "final", run.hidden[layer + 1], dim));
      yield layer;
    }
    run.named = this.naming.told(this.text);
    run.predicted = this.predict(asked.predict, run.hidden[layers.length]);
    this.last = { request: asked, run, text: this.text };
    return run;
  }

  get normName() {
    return this.description.rms ? "RMSNorm" : "LayerNorm";
  }

  /**
   * What the head says after the last token, and what that took from each token.
   * @param {Request} request
   * @returns {Generator<number | Promise<void>, Said>} waits for what it yields
   */
  next(request) {
    return this.nextWord.read(checked(request, this.description));
  }

  /** The first layer that has to be worked out; -1 where the tokens are others. @param {Required<Request>} asked */
  unchanged(asked) {
    if (!this.last) return -1;
    const { request } = this.last;
    if (
      ["ids", "types", "special", "marks", "units", "ranks", "about", "among", "unseen"].some(
        (name) => String(request[name]) !== String(asked[name]),
      )
    )
      return -1;
    const { layers } = this.description;
    const edits = (/** @type {Required<Request>} */ { off, weights }, /** @type {number} */ layer) =>
      JSON.stringify([off.filter(([of]) => of === layer), weights.filter((each) => each.layer === layer)]);
    const first = layers.findIndex((_, layer) => edits(asked, layer) !== edits(request, layer));
    return first < 0 ? layers.length : first;
  }

  /** @param {Required<Request>} asked @param {number} [first] position @returns {Run["embedding"]} */
  embed({ ids, types }, first = 0) {
    const { work } = this;
    const { dim, tensors, scale } = this.description;
    const table = (/** @type {string} */ name, /** @type {(token: number) => number} */ number) => {
      const out = new Float32Array(ids.length * dim);
      ids.forEach((_, token) => out.set(work.row(`embeddings.${name}.weight`, number(token)), token * dim));
      return out;
    };
    const learned = table("tokens", (token) => ids[token]);
    const rows = [vectors("learned", "embedding", learned, dim)];
    let sum = learned;
    if (scale !== null) {
      sum = learned.map((each) => each * scale);
      rows.push(vectors("scaled", "embedding", sum, dim));
    }
    const add = (/** @type {string} */ name, /** @type {Float32Array} */ more) => {
      rows.push(vectors(name, "embedding", more, dim));
      sum = sum.map((each, at) => each + more[at]);
    };
    const positions = tensors["embeddings.positions.weight"] ? table("positions", (token) => first + token) : null;
    if (positions) add("position", positions);
    if (tensors["embeddings.token_types.weight"])
      add(
        "token type",
        table("token_types", (token) => types[token]),
      );
    work.write(work.x, sum);
    if (rows.length > (scale === null ? 1 : 2)) rows.push(vectors("sum", "embedding", sum, dim));
    if (tensors["embeddings.norm.weight"]) {
      work.norm(work.x, "embeddings.norm");
      rows.push(vectors(this.normName, "embedding", work.whole(work.x), dim, work.x.stride / 4));
    }
    return { rows, learned, positions };
  }

  /**
   * One layer: what is in work.x becomes what the layer gives. Of a text that goes on, `past` has the tokens before, and
   * nothing is told.
   * @param {number} number
   * @param {Required<Request>} asked
   * @param {Past | null} [past]
   * @returns {LayerRun}
   */
  layer(number, asked, past = null) {
    const { work } = this;
    const [name, pre] = [`layers.${number}`, this.description.norm === "pre"];
    const { heads, kvHeads, rotary } = this.description.layers[number];
    const { dim: wide, tensors, gated } = this.description;
    const dim = tensors[`${name}.attention.q.weight`].rows / heads;
    const [group, first] = [heads / kvHeads, past?.length ?? 0];
    const linear = (/** @type {Area} */ from, /** @type {string} */ part, /** @type {Area} */ to) =>
      work.linear(from, `${name}.${part}.weight`, `${name}.${part}.bias`, to);
    /** @type {Vectors[]} */
    const rows = [];
    const tell = (/** @type {string} */ what, /** @type {string} */ part, /** @type {Area} */ area) =>
      past ?? rows.push(vectors(what, part, work.whole(area), wide, area.stride / 4));
    // What a sublayer reads, and the residual sum after it: the norm is before the one or after the other; Gemma norms what
    // is added too.
    const before = (/** @type {string} */ part, /** @type {string} */ norm) => {
      if (!pre) return work.x;
      work.copy(work.x, work.y);
      work.norm(work.y, `${name}.${norm}.norm`);
      tell(this.normName, part, work.y);
      return work.y;
    };
    const after = (/** @type {string} */ part, /** @type {string} */ norm) => {
      tell(part, part, work.y);
      if (tensors[`${name}.${norm}.after.weight`]) {
        work.norm(work.y, `${name}.${norm}.after`);
        tell(this.normName, part, work.y);
      }
      work.add();
      tell(`x + ${part}`, part, work.x);
      if (pre) return;
      work.norm(work.x, `${name}.${norm}.norm`);
      tell(this.normName, part, work.x);
    };

    const entering = before("attention", "attention_residual");
    linear(entering, "attention.q", work.q);
    linear(entering, "attention.k", work.k);
    linear(entering, "attention.v", work.v);
    for (const [part, area, of] of /** @type {[string, Area, number][]} */ ([
      ["q", work.q, heads],
      ["k", work.k, kvHeads],
    ])) {
      if (tensors[`${name}.attention.${part}_norm.weight`]) work.normHeads(area, `${name}.attention.${part}_norm`, of);
      if (rotary) work.turn(area, of, dim, first, rotary);
    }
    const q = work.byHead(work.q, heads * dim, heads);
    const [k, v] = [work.k, work.v].map((area) => work.byHead(area, kvHeads * dim, kvHeads));
    const triangles = `${name}.attention.triangles`;
    const norms = work.lengths(triangles, v, heads, group);
    const read = past ? past.add(number, { k, v, norms }) : { k, v, norms, reach: work.tokens };
    const attention = this.attend(number, { heads, kvHeads, dim, q, first, ...read }, asked, past); // into work.q
    const context = past ? NONE.values : work.byHead(work.q, heads * dim, heads);
    const parts = past ? norms : work.lengths(triangles, context, heads);
    const isKept = !past && work.tokens <= LONGEST;
    linear(work.q, "attention.output", work.y);
    const attended = isKept ? work.read(work.y) : NONE.values;
    after("attention", "attention_residual");
    const between = before("feed-forward", "ffn_residual");
    linear(between, gated ? "ffn.gate" : "ffn.hidden", work.inner);
    work.activate(work.inner);
    if (gated) {
      linear(between, "ffn.up", work.gate);
      work.open();
    }
    const inside = tensors[`${name}.ffn.output.weight`].columns;
    const inner = past ? NONE : neurons(work.whole(work.inner), inside, work.inner.stride / 4);
    linear(work.inner, "ffn.output", work.y);
    const fed = isKept ? work.read(work.y) : NONE.values;
    after("feed-forward", "ffn_residual");
    const taken = { context: isKept ? context : NONE.values, attended, fed };
    return { heads, kvHeads, dim, q, k, v, norms, parts, ...taken, ...attention, rows, inside, neurons: inner };
  }

  /**
   * Weights and contexts of a layer; the contexts take the place of q. k, v and norms have room for `reach` tokens a
   * head; the first of q is token `first`.
   * @param {number} layer
   * @param {Pick<LayerRun, "heads" | "kvHeads" | "dim" | "q" | "k" | "v" | "norms"> & { reach: number, first: number }} run
   * @param {Required<Request>} asked
   * @param {Past | null} past
   * @returns {Pick<LayerRun, "most" | "statistics" | "dragged" | "names" | "opening">}
   */
  attend(layer, { heads, kvHeads, dim, q, k, v, norms, reach, first }, { off, weights, unseen, special }, past) {
    const { work } = this;
    const { tokens, keys, floats } = work;
    const { causal, layers } = this.description;
    const { scale, softcap } = layers[layer];
    const rows = new Float64Array(tokens * keys);
    /** @type {LayerRun["names"]} */
    const names = [];
    const means = new Means(heads, keys, special);
    const most = new Float32Array(heads);
    /** @type {LayerRun["dragged"]} */
    const dragged = [];
    for (let head = 0; head < heads; head += 1) {
      const from = Math.floor((head * kvHeads) / heads) * reach * dim;
      work.score(q.subarray(head * tokens * dim, (head + 1) * tokens * dim), k.subarray(from, from + keys * dim), dim);
      const changes = rowsOf(weights, layer, head);
      const isOff = off.some(([of, each]) => of === layer && each === head);
      for (let token = 0; token < tokens; token += 1) {
        const query = first + token;
        const seen = causal ? query + 1 : keys;
        const at = (work.weights.at + token * work.weights.stride) / 4;
        const row = rows.subarray(token * keys, (token + 1) * keys);
        row.fill(0, seen);
        for (let key = 0; key < seen; key += 1) row[key] = capped(floats[at + key] * scale, softcap);
        if (!unseen.includes(query)) for (const key of unseen) if (key < seen) row[key] = -Infinity;
        softmax(row, seen);
        const changed = changes.get(query);
        if (changed) drag(row, changed, seen).forEach((bias, i) => dragged.push({ ...changed[i], bias }));
        const share = (/** @type {number} */ key) => row[key] * norms[head * reach + key];
        if (!past) {
          means.add(head, query, row);
          for (let key = 0; key < seen; key += 1) most[head] = Math.max(most[head], share(key));
        } else if (token === tokens - 1) {
          past.rests += row[0];
          if (!isOff) for (let key = 0; key < seen; key += 1) past.taken[key] += share(key);
        }
        floats.fill(0, at, at + work.weights.stride / 4);
        if (!isOff) floats.set(row, at);
      }
      work.mix(v.subarray(from, from + keys * dim), dim, work.q, head);
      if (past) continue;
      names.push(this.text?.head(rows) ?? []);
      this.opening.look(layer, head, rows, names[head]);
    }
    return { most, statistics: means.found(), dragged, names, opening: this.opening?.found ?? null };
  }

  /**
   * What the head expects at some positions.
   * @param {number[]} positions
   * @param {Float32Array} hidden
   */
  predict(positions, hidden) {
    const { work } = this;
    const { dim, vocabulary, head } = this.description;
    /** @type {Run["predicted"]} */
    const found = [];
    for (let first = 0; first < positions.length; first += 2) {
      const two = positions.slice(first, first + 2);
      work.take(two.length);
      two.forEach((at, place) => {
        const of = { ...work.x, at: work.x.at + place * work.x.stride };
        work.write(of, hidden.subarray(at * dim, (at + 1) * dim));
      });
      let read = work.x;
      if (head === "masked") {
        work.linear(read, "head.dense.weight", "head.dense.bias", work.y);
        work.activate(work.y);
        work.norm(work.y, "head.norm");
        read = work.y;
      }
      const logits = this.logits(read);
      for (const [place, at] of two.entries()) {
        found.push({ at, best: likeliest(logits.subarray(place * vocabulary, (place + 1) * vocabulary), BEST) });
      }
    }
    return found;
  }

  /** What the output layer makes of tokens in an area. @param {Area} area */
  logits(area) {
    const { work } = this;
    const { output, vocabulary, softcap } = this.description;
    work.linear(area, output, "head.output.bias", work.logits);
    return work.read(work.logits, vocabulary).map((each) => capped(each, softcap));
  }
}
