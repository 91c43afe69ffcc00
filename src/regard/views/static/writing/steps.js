// What a generation says of itself (facts.writing), and what the model read at each of its steps.
//
//   first      the token of the decoder that was written first: step s read up to token first - 1 + s, and wrote the next
//   steps      of each { text, probability, place, likeliest: [[text, probability], ...] }: the model's own probabilities;
//              place, how many were likelier
//   how        how tokens were chosen, in words; ended: whether the last of them ended the text
//   branches   null, or of a beam search its ways, [{ parent, step, text, total, end, won }]: the place of the one
//              that each goes on from, -1 for none; log p; "on", "ended", or "dropped"

import { kept, readable } from "../base/dom.js";
import { heldOf } from "../base/held.js";

const LEAST_FULL = 0.15;
const MOST_ROWS = 500; // that are kept

export class Steps {
  constructor({ source, state }) {
    this.source = source;
    this.state = state;
    this.facts = source.facts.writing;
    this.kept = new Map();
  }

  get all() {
    return this.facts.steps;
  }

  // The step that is on: the one that was chosen, or else the one of the word that the page opens on.
  place() {
    const last = this.all.length - 1;
    const { word } = this.state.values;
    if (word !== null) return Math.min(word, last);
    const { start } = this.source.facts;
    const pin = [start, ...(start?.others || [])].find((each) => each?.kind === this.kind())?.pin ?? -1;
    const at = pin - this.facts.first + 1;
    return at >= 0 && at <= last ? at : last;
  }

  // What is written at a step, as a token of the decoder; one that ended the text stands behind the last.
  token(place) {
    return this.facts.first + place;
  }

  name(place) {
    return readable(this.all[place].text);
  }

  // Which attention: an encoder reads nothing while a text is written.
  kind() {
    const { kind } = this.state.values;
    return kind === "encoder" ? "cross" : kind;
  }

  // The heads whose weights are on show.
  heads() {
    const { layer, head, reads, kind } = this.state.values;
    const of = (each) => heldOf(this.source, this.kind(), each).map((one) => ({ layer: each, head: one }));
    if (reads === "all" || kind === "encoder") return this.source.layers(this.kind()).flatMap(of);
    return reads === "layer" ? of(layer) : [{ layer, head }];
  }

  named() {
    const heads = this.heads();
    const { layer, reads } = this.state.values;
    if (heads.length === 1) return `layer ${heads[0].layer}, head ${heads[0].head}`;
    return reads === "layer"
      ? `mean of the ${heads.length} heads of layer ${layer}`
      : `mean of all ${heads.length} heads`;
  }

  // What is drawn in full: of a row that looks everywhere alike nothing is.
  full(row, there = (_key) => true) {
    return Math.max(LEAST_FULL, ...Array.from(row).filter((_, key) => there(key)));
  }

  // The weights of the row that a step read with, over the keys; null while they are not there.
  row(place) {
    const heads = this.heads();
    const mean = () => {
      const rows = heads.map(({ layer, head }) =>
        this.source.row(this.kind(), layer, head, this.token(place) - 1, "weights"),
      );
      if (!rows.every(Boolean)) return null;
      return rows[0].map((_, key) => rows.reduce((sum, row) => sum + row[key], 0) / rows.length);
    };
    return kept(this.kept, JSON.stringify([this.kind(), place, heads]), mean, MOST_ROWS);
  }
}

// "34 %", "3.4 %", "0.03 %", "<0.01 %", and "100 %" of the whole alone.
export function percent(part) {
  if (part < 5e-5) return part > 1e-9 ? "<0.01 %" : "0 %";
  const size = 100 * part;
  if (part < 1 && size >= 99.45) return `${Math.min(99.9, size).toFixed(1)} %`;
  return `${size.toFixed(size >= 9.95 ? 0 : size >= 0.95 ? 1 : 2)} %`;
}
