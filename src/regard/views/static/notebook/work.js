// Measures that the kernel works out layer by layer while somebody looks: what is wanted, how far it is, and who may say
// stop.
//
// A layer that is looked at is worked out; for the thumbnails of the others only while all of it takes a few seconds,
// or after the reader has said so. Every question works for a part of a second, so that a row under the pointer is not
// kept waiting; when nobody asks for a layer any more it stays as it is, and goes on from there.

import { quantityOf } from "../base/measures.js";

const UNASKED = 6; // seconds of work for thumbnails that nobody has to ask for
const SOON = 0.4; // seconds of work that are not worth a word

export class MeasureWork {
  constructor(source) {
    this.source = source;
    this.known = new Map(); // "kind.layer.what" to { most, of, seconds }
    this.going = new Map(); // the same to { done, seconds, error }
    this.stopped = new Set(); // "kind.what"
    this.all = new Set();
    this.clear();
  }

  // Before the views ask again.
  clear() {
    this.wanted = new Map(); // "kind.layer.what" to { kind, layer, what }, what is looked at
    this.behind = new Map(); // for thumbnails
  }

  // Whether the numbers of a layer are there; else they are wanted.
  ready(kind, layer, what = "weights", thumbnail = false) {
    const name = `${kind}.${layer}.${what}`;
    if (what === "weights" || this.known.has(name)) return true;
    (thumbnail ? this.behind : this.wanted).set(name, { name, kind, layer, what });
    this.source.soon();
    return false;
  }

  most(kind, layer, head, what) {
    const { most } = this.known.get(`${kind}.${layer}.${what}`) || { most: [0] };
    return most[most.length > 1 ? head : 0];
  }

  // What a gradient is of.
  of(kind, what) {
    const known = this.source
      .layers(kind)
      .map((layer) => this.known.get(`${kind}.${layer}.${what}`))
      .find(Boolean);
    return known ? known.of : "";
  }

  forget({ kind, layer, of }) {
    this.known.delete(`${kind}.${layer}.${of}`);
  }

  error({ name }) {
    return this.going.get(name)?.error;
  }

  isStopped({ kind, what }) {
    return this.stopped.has(`${kind}.${what}`);
  }

  // The layers of which only thumbnails are wanted, and how many seconds they take, as far as can be known.
  rest() {
    const layers = [...this.behind.values()].filter((each) => !this.wanted.has(each.name) && !this.error(each));
    if (layers.length === 0) return { layers, seconds: 0 };
    const [{ kind, what }] = layers;
    const took = this.source
      .layers(kind)
      .map((layer) => this.known.get(`${kind}.${layer}.${what}`))
      .filter(Boolean);
    const each = Math.max(...took.map(({ seconds }) => seconds));
    const begun = layers.reduce((sum, { name }) => sum + (this.going.get(name) || { seconds: 0 }).seconds, 0);
    return { layers, seconds: took.length > 0 ? Math.max(0, each * layers.length - begun) : null };
  }

  // What the kernel should go on with; null for nothing.
  current() {
    // What was asked for last goes first, as with rows.
    const first = [...this.wanted.values()].reverse().find((each) => !this.error(each));
    if (first) return this.isStopped(first) ? null : first;
    const { layers, seconds } = this.rest();
    if (layers.length === 0 || this.isStopped(layers[0])) return null;
    const { kind, what } = layers[0];
    // Of none it is known how long one takes: one tells.
    if (seconds === null || seconds < UNASKED || this.all.has(`${kind}.${what}`)) return layers[0];
    return null;
  }

  next() {
    const layer = this.current();
    if (!layer) return null;
    const { name, kind, layer: number, what } = layer;
    return {
      name: `measure.${name}`,
      what: { what: "measure", kind, layer: number, of: what },
      size: 0,
      done: (answer) => this.come(name, answer),
    };
  }

  come(name, { done, seconds, most, of, error }) {
    if (error !== undefined) this.going.set(name, { error });
    else if (done < 1) this.going.set(name, { done, seconds });
    else {
      this.going.delete(name);
      this.known.set(name, { most, of, seconds });
    }
  }

  // { text, failed }, or with { share, left, action: { label, run } } where there is something to see and to say.
  // chosen: the page's state, of which it is; late: the step on its way takes long.
  status(chosen, late = false) {
    const here = ({ kind, what }) => kind === chosen.kind && what === chosen.what;
    const named = ({ kind, layer, what }) =>
      `${quantityOf(what).label.toLowerCase()}, ${this.source.kinds.length > 1 ? `${kind} ` : ""}layer ${layer}`;
    const looked = [...this.wanted.values()].filter(here);
    const wrong = [...looked, ...this.behind.values()].find((each) => here(each) && this.error(each));
    const current = this.current();
    if (current && !here(current)) return null;
    if (wrong && (!current || looked.length > 0))
      return { text: `No ${named(wrong)}: ${this.error(wrong)}`, failed: true };
    if (current) {
      const { done, seconds } = this.going.get(current.name) || { done: 0, seconds: 0 };
      if (seconds < SOON && !late) return null;
      const left = done > 0.02 ? (seconds / done) * (1 - done) : null;
      return { text: `Working out ${named(current)}`, share: done, left, action: this.act(current, "Stop", "stop") };
    }
    const { layers, seconds } = this.rest();
    if (layers.length > 0 && !here(layers[0])) return null;
    const paused = [...looked, ...layers].find((each) => this.isStopped(each));
    if (paused) {
      const { done } = this.going.get(paused.name) || { done: 0 };
      return { text: `Stopped: ${named(paused)}`, share: done, action: this.act(paused, "Go on", "go") };
    }
    if (layers.length === 0) return null;
    const count = layers.length === 1 ? "one more layer" : `${layers.length} more layers`;
    return {
      text: `Thumbnails of ${count} take about ${inWords(seconds)} to work out.`,
      action: this.act(layers[0], "Work them out", "all"),
    };
  }

  act({ kind, what }, label, how) {
    const name = `${kind}.${what}`;
    const run = () => {
      if (how === "stop") this.stopped.add(name);
      else this.stopped.delete(name);
      if (how === "all") this.all.add(name);
      for (const listener of this.source.listeners) listener();
      this.source.soon();
      this.source.tell();
    };
    return { label, run };
  }
}

export const inWords = (seconds) =>
  seconds < 90 ? `${Math.max(1, Math.round(seconds))} s` : `${Math.round(seconds / 60)} min`;
