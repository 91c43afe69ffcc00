// The numbers of one pass, a row for each token, in the kernel's memory; and the products of them, with packed weights
// and, of one head at a time, with each other.

import { ACTIVATIONS, layerNorm, rmsNorm } from "./arithmetic.js";
import { BLOCK_BYTES } from "./kernel.js";

/** @typedef {{ at: number, stride: number }} Area rows of float32, one a token, in bytes */

/** @type {Area} */
const NOWHERE = { at: 0, stride: 0 };

/** @param {number} count @param {number} to */
const upTo = (count, to) => to * Math.ceil(count / to);
/** @param {number} columns @param {string} type */
const rowBytes = (columns, type) => Math.ceil(columns / 32) * BLOCK_BYTES[type];

export class Workspace {
  // The residual stream, and what is added to it; queries (later contexts), keys, values; what is inside the
  // feed-forward network, and what gates it; logits, of two tokens at a time.
  x = NOWHERE;
  y = NOWHERE;
  q = NOWHERE;
  k = NOWHERE;
  v = NOWHERE;
  inner = NOWHERE;
  gate = NOWHERE;
  logits = NOWHERE;
  // Of one head: its queries (later its contexts), its keys, its values column by column, its weights, and a matrix.
  one = NOWHERE;
  other = NOWHERE;
  columns = NOWHERE;
  weights = NOWHERE;
  square = NOWHERE;
  tokens = 0;
  keys = 0; // which may be more: those that were read before
  floats = new Float32Array(0);

  /**
   * @param {import("./model.js").Description} description
   * @param {import("./kernel.js").Kernel} kernel
   * @param {Record<string, number>} starts where each block is
   * @param {number} free where they end
   */
  constructor(description, kernel, starts, free) {
    this.description = description;
    this.kernel = kernel;
    this.starts = starts;
    this.free = free;
    this.rows = 0; // tokens that there is room for
    this.reach = 0; // and keys
    this.zeros = NOWHERE.at;
    this.unpacked = NOWHERE.at;
  }

  /** Makes room for so many tokens and keys. @param {number} tokens @param {number} [keys] */
  take(tokens, keys = tokens) {
    this.tokens = tokens;
    this.keys = keys;
    if (tokens <= this.rows && keys <= this.reach) return;
    const { dim, tensors, layers, head, output, gated, positions } = this.description;
    const room = (/** @type {number} */ now, /** @type {number} */ wanted) =>
      wanted <= now ? now : upTo(Math.max(wanted, Math.min(2 * now, positions)), 4);
    this.rows = room(this.rows, tokens);
    this.reach = room(this.reach, keys);
    const widest = (/** @type {string} */ name) =>
      Math.max(...layers.map((_, layer) => tensors[`layers.${layer}.${name}.weight`].rows));
    const [wide, inner] = [widest("attention.q"), widest(gated ? "ffn.gate" : "ffn.hidden")];
    const deep = Math.max(
      ...layers.map(({ heads }, layer) => tensors[`layers.${layer}.attention.q.weight`].rows / heads),
    );
    let at = this.free;
    const area = (/** @type {number} */ width, rows = this.rows) => {
      const found = { at, stride: 4 * upTo(width, 32) };
      at += rows * found.stride;
      return found;
    };
    this.zeros = area(4, 1).at;
    this.unpacked = area(Math.max(dim, wide, inner), 4).at;
    this.x = area(dim);
    this.y = area(dim);
    this.q = area(wide);
    this.k = area(wide);
    this.v = area(wide);
    this.inner = area(inner);
    this.gate = area(gated ? inner : 0);
    this.logits = area(head ? tensors[output].rows : 0, 2);
    this.one = area(deep);
    this.other = area(deep, Math.max(this.rows, this.reach));
    this.columns = area(this.reach, upTo(deep, 4));
    this.weights = area(this.reach);
    this.square = area(deep, upTo(deep, 4));
    this.kernel.grow(at);
    this.floats = new Float32Array(this.kernel.buffer());
    // Old numbers may stand where there is nothing now: what fills up a row is 0.
    this.floats.fill(0, this.free / 4, at / 4);
  }

  /**
   * The tokens' rows of an area, without what fills them up.
   * @param {Area} area
   * @param {number} [width]
   */
  read({ at, stride }, width = this.description.dim) {
    const out = new Float32Array(this.tokens * width);
    for (let token = 0, from = at / 4; token < this.tokens; token += 1, from += stride / 4) {
      out.set(this.floats.subarray(from, from + width), token * width);
    }
    return out;
  }

  /** The other way round. @param {Area} area @param {Float32Array} rows @param {number} [width] */
  write({ at, stride }, rows, width = this.description.dim) {
    for (let from = 0, to = at / 4; from < rows.length; from += width, to += stride / 4) {
      this.floats.set(rows.subarray(from, from + width), to);
    }
  }

  /** From token to token with its heads, to head by head. @param {Area} area @param {number} width @param {number} heads */
  byHead(area, width, heads) {
    const [rows, dim] = [this.read(area, width), width / heads];
    const out = new Float32Array(rows.length);
    for (let token = 0; token < this.tokens; token += 1) {
      for (let head = 0; head < heads; head += 1) {
        const from = token * width + head * dim;
        out.set(rows.subarray(from, from + dim), (head * this.tokens + token) * dim);
      }
    }
    return out;
  }

  /** All numbers of the tokens in an area, as they lie. @param {Area} area */
  whole({ at, stride }) {
    return this.floats.subarray(at / 4, (at + this.tokens * stride) / 4);
  }

  /** @param {Area} from @param {Area} to of the same width */
  copy(from, to) {
    this.whole(to).set(this.whole(from));
  }

  /** The numbers of a vector. @param {string} name */
  vector(name) {
    const { block, at, columns } = this.description.tensors[name];
    const from = (this.starts[block] + at) / 4;
    return this.floats.subarray(from, from + columns);
  }

  /** A row of a table. @param {string} name @param {number} number */
  row(name, number) {
    const { block, at, columns, type } = this.description.tensors[name];
    const from = this.starts[block] + at + number * rowBytes(columns, type);
    this.kernel.unpack[type](from, this.unpacked, this.unpacked + 4 * upTo(columns, 32));
    return this.floats.slice(this.unpacked / 4, this.unpacked / 4 + columns);
  }

  /**
   * to = from W^T + b, four rows of W at a time.
   * @param {Area} from
   * @param {string} weight
   * @param {string} bias there may be none
   * @param {Area} to
   */
  linear(from, weight, bias, to) {
    const { tensors } = this.description;
    const { block, at, rows, columns, type } = tensors[weight];
    const width = upTo(columns, 32);
    const [start, bytes, unpack] = [this.starts[block] + at, rowBytes(columns, type), this.kernel.unpack[type]];
    const added = tensors[bias];
    const last = upTo(this.tokens, 2) * to.stride;
    for (let row = 0; row < rows; row += 4) {
      unpack(start + row * bytes, this.unpacked, this.unpacked + 16 * width);
      const of = added ? this.starts[added.block] + added.at + 4 * row : this.zeros;
      const y = to.at + 4 * row;
      this.kernel.product(
        from.at,
        from.at + 4 * width,
        this.unpacked,
        of,
        y,
        y + last,
        from.stride,
        4 * width,
        to.stride,
      );
    }
  }

  /**
   * to = from by^T, over the first `inside` numbers of their rows: what follows them up to the next eight must be 0.
   * @param {Area} from @param {Area} by @param {number} rows of it @param {number} inside @param {Area} to
   */
  multiply(from, by, rows, inside, to) {
    const end = from.at + 4 * upTo(inside, 8);
    const last = upTo(this.tokens, 2) * to.stride;
    for (let row = 0; row < rows; row += 4) {
      const [w, y] = [by.at + row * by.stride, to.at + 4 * row];
      this.kernel.product(from.at, end, w, this.zeros, y, y + last, from.stride, by.stride, to.stride);
    }
  }

  /**
   * The scores of a head, into `weights`: q k^T.
   * @param {Float32Array} q of its tokens @param {Float32Array} k of its keys @param {number} dim
   */
  score(q, k, dim) {
    this.write(this.one, q, dim);
    this.write(this.other, k, dim);
    this.multiply(this.one, this.other, this.keys, dim, this.weights);
  }

  /**
   * The contexts of a head, from `weights` into the head's columns of `to`.
   * @param {Float32Array} v of its keys @param {number} dim @param {Area} to @param {number} head
   */
  mix(v, dim, to, head) {
    const { tokens, keys, floats, columns, one } = this;
    for (let i = 0; i < dim; i += 1) {
      const at = columns.at / 4 + (i * columns.stride) / 4;
      floats.fill(0, at + keys, at + upTo(keys, 8));
      for (let key = 0; key < keys; key += 1) floats[at + key] = v[key * dim + i];
    }
    this.multiply(this.weights, columns, dim, keys, one);
    for (let token = 0; token < tokens; token += 1) {
      const from = (one.at + token * one.stride) / 4;
      floats.copyWithin((to.at + token * to.stride) / 4 + head * dim, from, from + dim);
    }
    this.clear(one);
  }

  /** Products write up to the next four: what reads the area after them wants zeros there. @param {Area} area */
  clear({ at, stride }) {
    this.floats.fill(0, at / 4, (at + upTo(this.tokens, 2) * stride) / 4);
  }

  /**
   * How long what each head makes of its vectors is in the residual stream: |R v|, where R^T R is that of W_O's part.
   * Python's form is Trace.norm_weighted.
   * @param {string} name of the matrices R, one after the other
   * @param {Float32Array} values head by head, token by token
   * @param {number} heads that so many read each of
   * @param {number} [group]
   */
  lengths(name, values, heads, group = 1) {
    const { tokens, floats, one, other, square } = this;
    const dim = (values.length / heads / tokens) * group;
    const out = new Float32Array(heads * tokens);
    for (let head = 0; head < heads; head += 1) {
      this.write(square, this.vector(name).subarray(head * dim * dim, (head + 1) * dim * dim), dim);
      const from = Math.floor(head / group) * tokens * dim;
      this.write(one, values.subarray(from, from + tokens * dim), dim);
      this.multiply(one, square, dim, dim, other);
      for (let token = 0; token < tokens; token += 1) {
        let sum = 0;
        for (let at = (other.at + token * other.stride) / 4, end = at + dim; at < end; at += 1) sum += floats[at] ** 2;
        out[head * tokens + token] = Math.sqrt(sum);
      }
    }
    this.clear(other);
    return out;
  }

  /** @param {Area} area of the width of the residual stream @param {string} name */
  norm(area, name) {
    const { dim, eps, rms } = this.description;
    const [numbers, stride, weight] = [this.whole(area), area.stride / 4, this.vector(`${name}.weight`)];
    if (rms) rmsNorm(numbers, dim, stride, weight, eps);
    else layerNorm(numbers, dim, stride, weight, this.vector(`${name}.bias`), eps);
  }

  /** The norm of each head of queries or keys. @param {Area} area @param {string} name @param {number} heads */
  normHeads(area, name, heads) {
    const [weight, numbers] = [this.vector(`${name}.weight`), this.whole(area)];
    for (let head = 0; head < heads; head += 1)
      rmsNorm(numbers.subarray(head * weight.length), weight.length, area.stride / 4, weight, this.description.eps);
  }

  /**
   * Turns the pairs of each head's numbers by their positions.
   * @param {Area} area @param {number} heads @param {number} dim @param {number} first position
   * @param {import("./model.js").Rotary} rotary
   */
  turn({ at, stride }, heads, dim, first, { frequencies, layout, amplitude }) {
    const { floats } = this;
    const pairs = frequencies.length;
    const [apart, step] = layout === "half" ? [pairs, 1] : [1, 2];
    for (let token = 0; token < this.tokens; token += 1) {
      for (let pair = 0; pair < pairs; pair += 1) {
        const angle = Math.fround((first + token) * frequencies[pair]);
        const [cos, sin] = [Math.fround(Math.cos(angle)) * amplitude, Math.fround(Math.sin(angle)) * amplitude];
        for (let head = 0; head < heads; head += 1) {
          const one = (at + token * stride) / 4 + head * dim + pair * step;
          const [a, b] = [floats[one], floats[one + apart]];
          floats[one] = a * cos - b * sin;
          floats[one + apart] = b * cos + a * sin;
        }
      }
    }
  }

  /** @param {Area} area */
  activate(area) {
    const activation = ACTIVATIONS[this.description.activation];
    const numbers = this.whole(area);
    for (let i = 0; i < numbers.length; i += 1) numbers[i] = activation(numbers[i]);
  }

  /** Multiplies what is inside the feed-forward network by its gate. */
  open() {
    const [inner, gate] = [this.whole(this.inner), this.whole(this.gate)];
    for (let i = 0; i < inner.length; i += 1) inner[i] *= gate[i];
  }

  /** Adds y to x. */
  add() {
    const [x, y] = [this.whole(this.x), this.whole(this.y)];
    for (let i = 0; i < x.length; i += 1) x[i] += y[i];
  }
}
