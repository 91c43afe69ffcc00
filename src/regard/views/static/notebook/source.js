// The row source of a notebook: it asks the kernel, where Python works the numbers out, and keeps what came.
//
// One message is on its way at a time. What is asked for meanwhile waits, and of that the newest goes first: a row
// under the pointer overtakes a wall of thumbnails. When an answer has come, all that still waits is forgotten, and the
// views ask again for what they still need: so what nobody looks at any more is never worked out.

//
// A measure is worked out layer by layer, a quarter of a second at a time, when nothing else is asked for: see work.js.

import { Layer } from "../base/layer.js";
import { decodeValues, stretches } from "../base/numbers.js";
import { FileSource } from "../base/source.js";
import { MeasureWork } from "./work.js";

const MOST_BYTES = 1 << 20; // of one answer, if more than one thing is in it
const KEPT_BYTES = 1 << 28;
const REST = 1000; // milliseconds
const PATIENCE = 4000; // milliseconds after which the page says that it waits

class KernelLayer {
  constructor(source, kind, facts, queries, keys, columns, readBlock) {
    this.source = source;
    this.kind = kind;
    this.facts = facts;
    this.queries = queries;
    this.keys = keys;
    this.columns = columns;
    this.readBlock = readBlock;
    this.number = facts.layer;
  }

  ask(what, head, of, bytes, read) {
    const { kind, number } = this;
    return this.source.ask(
      `${what}.${kind}.${number}.${head}.${Object.values(of).join(".")}`,
      { what, kind, layer: number, head, ...of },
      bytes,
      read,
    );
  }

  row(head, query, of) {
    const found = this.ask("row", head, { query, of }, 4 * this.columns, ([row]) => floats(row));
    if (!found) return null;
    const row = new Float64Array(this.columns); // of a layer without a sink, where others have one, the last is 0
    row.set(found);
    return row;
  }

  // As far as a window says; what else there is of a mask stays in the kernel.
  allows(_head, query, key) {
    const { low, high } = this.facts.mask || { low: null, high: null };
    return key === this.keys || ((low === null || key >= query + low) && (high === null || key <= query + high));
  }

  column(head, key, of) {
    const found = this.ask("column", head, { key, of }, 4 * this.queries, ([column]) => floats(column));
    return found && Float64Array.from(found);
  }

  // Of one query: the same arithmetic as in a file, on what the kernel has of it.
  steps(head, query) {
    const { headDim } = this.facts;
    const layer = this.ask("steps", head, { query }, 8 * this.keys * headDim, (parts, said) =>
      this.oneQuery(parts, said),
    );
    return layer?.steps(0, 0);
  }

  oneQuery([q, k, bias, allowed, v], { scorer, scale, softcap, sink, vDim }) {
    const has = (part) => part.byteLength > 0;
    const facts = {
      scorer,
      scale,
      softcap,
      headDim: this.facts.headDim,
      bias: has(bias) ? { heads: 1, dense: true } : null,
      mask: { bits: { heads: 1 } },
      v: vDim === null ? null : { dim: vDim, heads: [0] },
    };
    return Object.assign(Object.create(Layer.prototype), {
      facts,
      heads: 1,
      group: 1,
      queries: 1,
      keys: this.keys,
      columns: this.columns,
      dim: facts.headDim,
      qPlace: [0],
      kPlace: [0],
      q: floats(q),
      k: floats(k),
      low: null,
      high: null,
      holes: true,
      bits: bytes(allowed), // packed as a mask is, see layer.js
      ...(has(bias) ? { bias: floats(bias) } : {}),
      ...(scorer?.v ? { added: Float32Array.from(scorer.v) } : {}),
      ...(sink === null ? {} : { sinks: Float32Array.of(sink) }),
      ...(vDim === null ? {} : { v: floats(v) }),
    });
  }

  // By distance; a dense one stays in the kernel.
  get bias() {
    const { bias } = this.facts;
    return bias && !bias.dense ? decodeValues(bias, this.readBlock) : null;
  }
}

// What comes over the wire begins anywhere: numbers need a buffer of their own.
const bytes = (view) => new Uint8Array(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength));
const floats = (view) => new Float32Array(bytes(view).buffer);

export class KernelSource extends FileSource {
  // channel: { send(message), listen((message, buffers) => ...) }, to and from the kernel; tell(): what the reader
  // should know has changed, see status().
  constructor({ facts, blocks }, run, channel, tell) {
    super(facts, (name) => blocks[name]);
    this.run = run;
    this.channel = channel;
    this.tell = tell;
    this.number = 0;
    this.sent = null;
    this.heard = 0;
    this.bytes = 0;
    this.late = false;
    this.lost = false;
    this.kept = new Map();
    this.wanted = new Map();
    this.failed = new Map();
    this.work = new MeasureWork(this);
    channel.listen((message, buffers) => this.onAnswer(message, buffers));
  }

  // What the reader should know, whose page's state is this: { text, failed }, or of a measure more, see work.js; null for nothing.
  status(chosen) {
    if (this.lost)
      return {
        text: "The kernel of this widget is gone: it was restarted, or has ended. Run the cell again.",
        failed: true,
      };
    const [error] = [...this.failed].filter(([name]) => !name.startsWith("check.")).map(([, text]) => text);
    if (error) return { text: `Python could not answer: ${error}`, failed: true };
    if (this.late && this.sent?.[0].done) return this.work.status(chosen, true); // one step of a measure takes long
    if (this.late && this.number === 1)
      return {
        text: 'No kernel answers: it is busy, or there is none here. trace.write_page("page.html") writes an interactive file that needs none.',
        failed: true,
      };
    if (this.late)
      return { text: "Waiting for the kernel: it is busy. If it was restarted, run the cell again.", failed: true };
    return this.work.status(chosen);
  }

  /** @returns {any} */
  makeLayer(kind, facts) {
    const { query, key, keys } = this.sides[kind];
    return new KernelLayer(this, kind, facts, query.length, keys, key.length, this.readBlock);
  }

  // Python knows the normalisers.
  logSums() {
    return [];
  }

  statistics(kind) {
    return this.ask(`statistics.${kind}`, { what: "statistics", kind }, 0, (_, { statistics }) => statistics);
  }

  row(kind, layer, head, query, what = "weights") {
    return this.work.ready(kind, layer, what) ? this.layer(kind, layer).row(head, query, what) : null;
  }

  column(kind, layer, head, key, what = "weights") {
    return this.work.ready(kind, layer, what) ? this.layer(kind, layer).column(head, key, what) : null;
  }

  most(kind, layer, head, what) {
    return what === "weights" ? 1 : this.work.most(kind, layer, head, what);
  }

  measured(kind, what) {
    return { difference: 0, of: this.work.of(kind, what) };
  }

  // What more a kernel can do than hand out rows: a head as a small picture, `height` of the queries and the largest
  // weight in each of `width` bins of the keys; and the strongest weights of some heads.
  picture(kind, layer, head, { queries, keys, width, height }, what) {
    if (!this.work.ready(kind, layer, what, true)) return null;
    const of = { kind, layer, head, of: what, queries: stretches(queries), keys: stretches(keys), width, height };
    return this.ask(`picture.${JSON.stringify(of)}`, { what: "picture", ...of }, 4 * width * height, ([levels]) =>
      floats(levels),
    );
  }

  // [{ layer, head, query, key, weight }], largest first, between units, [first, last] each.
  strongest(kind, heads, queries, keys, count, what) {
    if (!heads.every(({ layer }) => this.work.ready(kind, layer, what))) return null;
    const plain = (units) => units.map(({ first, last }) => [first, last]);
    const of = {
      kind,
      of: what,
      heads: heads.map(({ layer, head }) => [layer, head]),
      queries: plain(queries),
      keys: plain(keys),
      count,
    };
    return this.ask(
      `strongest.${JSON.stringify(of)}`,
      { what: "strongest", ...of },
      0,
      (_, { strongest }) => strongest,
    );
  }

  // What becomes of the run without a head, or with a word unseen; null while it is not there, { error } where there is
  // none.
  check(kind, what) {
    if (!this.facts.check) return super.check(kind, what); // of a page, what it knows
    const name = `check.${kind}.${JSON.stringify(what)}`;
    if (this.failed.has(name)) return { error: this.failed.get(name) };
    if (this.lost) return { error: "The kernel is gone: run the cell again." };
    return this.ask(name, { what: "check", kind, ...what }, MOST_BYTES, (_, { check }) => check);
  }

  // The same of any head, by the model.
  whyOf(kind, layer, head) {
    const known = super.whyOf(kind, layer, head);
    if (known || !this.facts.check) return known;
    const asked = { what: "check", kind, layer, head, pairs: 1 };
    return this.ask(`check.why.${kind}.${layer}.${head}`, asked, MOST_BYTES, (_, { check }) => check);
  }

  ask(name, what, size, read) {
    const known = this.kept.get(name);
    if (known) {
      this.kept.delete(name);
      this.kept.set(name, known);
      return known.value;
    }
    if (this.failed.has(name) || this.lost) return null;
    this.wanted.delete(name);
    this.wanted.set(name, { name, what, size, read });
    this.soon();
    return null;
  }

  // Once everyone has asked.
  soon() {
    if (this.timer || this.sent || this.closed || this.lost) return;
    this.timer = setTimeout(() => {
      this.timer = 0;
      this.send();
    }, 4);
  }

  send() {
    if (this.sent || this.closed || this.lost) return;
    if (this.wanted.size === 0) {
      const work = this.work.next();
      if (work) this.wanted.set(work.name, work);
      else return this.tell();
    }
    const asked = [];
    let size = 0;
    for (const each of [...this.wanted.values()].reverse()) {
      if (asked.length > 0 && size + each.size > MOST_BYTES) break;
      size += each.size;
      asked.push(each);
      this.wanted.delete(each.name);
    }
    this.number += 1;
    this.sent = asked;
    this.channel.send({ number: this.number, run: this.run, asks: asked.map(({ what }) => what) });
    this.tell();
    this.patience = setTimeout(() => {
      this.late = true;
      this.tell();
    }, PATIENCE);
  }

  // The kernel is no longer there: nothing is asked any more, and what has come stays.
  lose() {
    this.lost = true;
    clearTimeout(this.patience);
    for (const listener of this.listeners) listener();
    this.tell();
  }

  onAnswer({ number, answers }, buffers) {
    if (!this.sent || number !== this.number) return; // of another, or too late
    clearTimeout(this.patience);
    this.late = false;
    const asked = this.sent;
    this.sent = null;
    let at = 0;
    answers.forEach((answer, i) => {
      const { name, what, read, done } = asked[i];
      const parts = buffers.slice(at, at + answer.buffers);
      at += answer.buffers;
      if (done) done(answer);
      else if (answer.gone) this.work.forget(what);
      else if (answer.error === undefined)
        this.keep(
          name,
          read(parts, answer),
          parts.reduce((sum, part) => sum + part.byteLength, 0),
        );
      else this.failed.set(name, answer.error);
    });
    // While nothing new is there, what is asked for is looked at anew once a second: drawing takes time.
    const nothing = asked.every(({ done }, i) => done && answers[i].done < 1);
    if (nothing && performance.now() - this.heard < REST) return this.soon();
    this.heard = performance.now();
    this.wanted.clear();
    this.work.clear();
    for (const listener of this.listeners) listener();
    this.soon();
  }

  keep(name, value, size) {
    this.kept.set(name, { value, size });
    this.bytes += size;
    for (const [oldest, { size: less }] of this.kept) {
      if (this.bytes <= KEPT_BYTES) break;
      this.kept.delete(oldest);
      this.bytes -= less;
    }
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    clearTimeout(this.patience);
  }
}
