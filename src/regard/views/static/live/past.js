// What is kept of the tokens that a model has read, so that the next one costs one token's work: keys and values of each
// layer, and how long what each head takes of them is.

/** @typedef {{ k: Float32Array, v: Float32Array, norms: Float32Array }} Read head by head, token by token */

export class Past {
  /** @type {number[]} */
  ids = [];
  /** Of those, how many a pass begins with. */
  length = 0;
  /** @type {Float32Array | null} what the head said after the last of them */
  logits = null;
  /** How much the last of them took from each, over all heads. */
  taken = new Float64Array();
  /** The share of its attention on the first token, the mean of all heads. */
  rests = 0;
  edits = "";
  reach = 0; // tokens that there is room for
  /** @type {Read[]} */
  layers = [];

  /** @param {import("./model.js").Description} description */
  constructor({ layers, positions }) {
    this.positions = positions;
    this.sizes = layers;
  }

  /**
   * How many of some tokens need not be read again; the last always is, unless all is as it was.
   * @param {number[]} ids @param {string} edits of the model
   */
  begin(ids, edits) {
    const isSame = edits === this.edits;
    let same = 0;
    while (isSame && same < ids.length && ids[same] === this.ids[same]) same += 1;
    if (same === ids.length && same === this.ids.length) return same;
    this.length = Math.min(same, ids.length - 1);
    // Until the pass has come to its end, no more than this is known.
    Object.assign(this, {
      ids: ids.slice(0, this.length),
      edits,
      logits: null,
      rests: 0,
      taken: new Float64Array(ids.length),
    });
    if (ids.length > this.reach) this.grow(Math.min(this.positions, Math.max(64, 2 * ids.length)));
    return this.length;
  }

  /** @param {number[]} ids */
  end(ids) {
    this.ids = [...ids];
  }

  /** @param {number} reach */
  grow(reach) {
    this.layers = this.layers.map((layer, number) => {
      const { heads, kvHeads } = this.sizes[number];
      return {
        k: moved(layer.k, kvHeads, reach, this.reach),
        v: moved(layer.v, kvHeads, reach, this.reach),
        norms: moved(layer.norms, heads, reach, this.reach),
      };
    });
    this.reach = reach;
  }

  /** Adds what was read of some tokens to a layer's. @param {number} number @param {Read} read */
  add(number, read) {
    const { heads, kvHeads } = this.sizes[number];
    const tokens = read.norms.length / heads;
    const room = (/** @type {Float32Array} */ { length }) => new Float32Array((length / tokens) * this.reach);
    this.layers[number] ??= { k: room(read.k), v: room(read.v), norms: room(read.norms) };
    const layer = this.layers[number];
    for (const name of /** @type {(keyof Read)[]} */ (["k", "v", "norms"])) {
      const of = name === "norms" ? heads : kvHeads;
      const width = read[name].length / of / tokens;
      for (let head = 0; head < of; head += 1) {
        const from = head * tokens * width;
        layer[name].set(read[name].subarray(from, from + tokens * width), (head * this.reach + this.length) * width);
      }
    }
    return { ...layer, reach: this.reach };
  }
}

/**
 * With room for more tokens.
 * @param {Float32Array} array @param {number} heads @param {number} reach @param {number} before
 */
function moved(array, heads, reach, before) {
  const width = array.length / heads / before;
  const out = new Float32Array(heads * reach * width);
  for (let head = 0; head < heads; head += 1)
    out.set(array.subarray(head * before * width, (head + 1) * before * width), head * reach * width);
  return out;
}
