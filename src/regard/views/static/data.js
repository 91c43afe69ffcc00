"use strict";

// Numbers: from the page's base64 to the softmax rows. Layers, heads and tokens count from 0.

function decodeBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i += 1) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

class Attention {
  // facts: the page's JSON; readBlock(name): the base64 text of one block.
  constructor(facts, readBlock) {
    this.facts = facts;
    this.size = facts.size;
    this.readBlock = readBlock;
    this.layers = new Map();
    this.lastSums = { key: "", sums: null };
  }

  // A layer is decoded when someone first looks at it.
  layer(layer) {
    let tensors = this.layers.get(layer);
    if (!tensors) {
      const { heads, kvHeads } = this.facts;
      tensors = { q: this.decode("q", layer, heads), k: this.decode("k", layer, kvHeads) };
      this.layers.set(layer, tensors);
    }
    return tensors;
  }

  // Float32Array (heads, tokens, headDim). Storing int * step in float32 rounds once, as Python's check does.
  decode(name, layer, heads) {
    const { headDim, encoding } = this.facts;
    const raw = decodeBase64(this.readBlock(`${name}-${layer}`)).buffer;
    if (encoding === "float32") return new Float32Array(raw);
    const integers = new Int16Array(raw);
    const steps = new Float32Array(decodeBase64(this.readBlock(`${name}-steps-${layer}`)).buffer);
    const values = new Float32Array(integers.length);
    const perHead = this.size * headDim;
    for (let head = 0; head < heads; head += 1) {
      for (let d = 0; d < headDim; d += 1) {
        const step = steps[head * headDim + d];
        const end = (head + 1) * perHead;
        for (let at = head * perHead + d; at < end; at += headDim) values[at] = integers[at] * step;
      }
    }
    return values;
  }

  kvHead(head) {
    return Math.floor(head / (this.facts.heads / this.facts.kvHeads));
  }

  score(q, k, qAt, kAt) {
    const { headDim } = this.facts;
    let sum = 0;
    for (let d = 0; d < headDim; d += 1) sum += q[qAt + d] * k[kAt + d];
    return sum * this.facts.scale;
  }

  // The weights of one query over all keys, a Float64Array, written into `out` where it is given.
  row(layer, head, query, out = new Float64Array(this.size)) {
    const { q, k } = this.layer(layer);
    const { headDim } = this.facts;
    const qAt = (head * this.size + query) * headDim;
    let kAt = this.kvHead(head) * this.size * headDim;
    let largest = -Infinity;
    for (let key = 0; key < this.size; key += 1, kAt += headDim) {
      const score = this.score(q, k, qAt, kAt);
      out[key] = score;
      if (score > largest) largest = score;
    }
    let total = 0;
    for (let key = 0; key < this.size; key += 1) {
      out[key] = Math.exp(out[key] - largest);
      total += out[key];
    }
    for (let key = 0; key < this.size; key += 1) out[key] /= total;
    this.rowLogSum = largest + Math.log(total);
    return out;
  }

  // The weight that every query gives one key. It needs each row's normaliser, not the rows themselves:
  // N numbers per head, kept for the head that is on show.
  column(layer, head, key) {
    const sums = this.logSums(layer, head);
    const { q, k } = this.layer(layer);
    const { headDim } = this.facts;
    const kAt = (this.kvHead(head) * this.size + key) * headDim;
    let qAt = head * this.size * headDim;
    const out = new Float64Array(this.size);
    for (let query = 0; query < this.size; query += 1, qAt += headDim) {
      out[query] = Math.exp(this.score(q, k, qAt, kAt) - sums[query]);
    }
    return out;
  }

  logSums(layer, head) {
    const name = `${layer}.${head}`;
    if (this.lastSums.key !== name) {
      const scan = new HeadScan(this, layer, head, { queries: [], keys: [] });
      scan.run(Infinity);
    }
    return this.lastSums.sums;
  }
}

const STRONGEST = 10;

// One pass over a head's rows, in slices so that it never holds up a pointer event: the rows' normalisers,
// and the strongest weights between tokens that are shown.
class HeadScan {
  constructor(attention, layer, head, shown) {
    this.attention = attention;
    this.layer = layer;
    this.head = head;
    this.keys = shown.keys;
    this.isShown = new Uint8Array(attention.size);
    for (const query of shown.queries) this.isShown[query] = 1;
    this.sums = new Float64Array(attention.size);
    this.row = new Float64Array(attention.size);
    this.strongest = [];
    this.next = 0;
  }

  // Works until `deadline` (as performance.now counts); true when all rows are done.
  run(deadline) {
    const { attention } = this;
    while (this.next < attention.size) {
      const query = this.next;
      attention.row(this.layer, this.head, query, this.row);
      this.sums[query] = attention.rowLogSum;
      if (this.isShown[query]) this.collect(query);
      this.next += 1;
      if (performance.now() > deadline) break;
    }
    const done = this.next >= attention.size;
    if (done) attention.lastSums = { key: `${this.layer}.${this.head}`, sums: this.sums };
    return done;
  }

  collect(query) {
    const { strongest } = this;
    for (const key of this.keys) {
      const weight = this.row[key];
      if (strongest.length === STRONGEST && weight <= strongest[STRONGEST - 1].weight) continue;
      strongest.push({ query, key, weight });
      strongest.sort((a, b) => b.weight - a.weight);
      if (strongest.length > STRONGEST) strongest.pop();
    }
  }
}

// The indices of the `count` largest weights among `indices`, largest first.
function largestAmong(weights, indices, count) {
  return Array.from(indices)
    .sort((a, b) => weights[b] - weights[a] || a - b)
    .slice(0, count);
}
