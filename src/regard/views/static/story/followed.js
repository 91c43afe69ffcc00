// Which word is followed, through what: the state's kind, layer, head and query, and where it is in the story.

import { make } from "../base/dom.js";
import { Chosen } from "../neuron/chosen.js";

const ALL = 14; // keys that are all drawn

export class Followed {
  constructor(page) {
    this.source = page.source;
    this.state = page.state;
    this.colours = page.colours;
    this.chosen = new Chosen(page);
  }

  // Null where all is there, or why a story cannot be told. of: the word, in any case.
  update(of = null) {
    const { source, state, chosen } = this;
    const { kind } = state.values;
    chosen.update(of); // where the head's numbers are not there yet, chosen.steps is null
    this.stack = kind === "encoder" ? "encoder" : "decoder";
    this.story = source.story(this.stack);
    if (!this.story) return `What happens inside this ${this.stack} is not on this page, so its story cannot be told.`;
    this.place = this.story.tokens.indexOf(chosen.query);
    const { tokens } = this.story;
    return this.place >= 0
      ? null
      : `Of a text as long as this, the page tells the story of ${tokens.length} tokens, ${tokens[0]} to ${tokens[tokens.length - 1]}.`;
  }

  get steps() {
    return this.chosen.steps;
  }

  name(side, index) {
    return this.chosen.nameOf(side, index);
  }

  // A word in a sentence: blue where it looks, orange where it is looked at.
  word(side = "query", index = this.chosen.query) {
    return make("bdi", { class: `token-${side}`, dir: "auto" }, this.name(side, index));
  }

  row(want, from = 0) {
    return this.story.rows.findIndex((row, i) => i >= from && want(row));
  }

  // The row of what enters a layer, or, of the number of layers, of the contextual embedding.
  hidden(layer) {
    return this.row((row) => row.hidden === layer);
  }

  get layers() {
    return this.story.rows.reduce((most, { hidden }) => Math.max(most, hidden ?? 0), 0);
  }

  // The first row of the chosen attention in its layer: a norm, or what comes out of it; -1 where it is not seen.
  attention() {
    const { kind, layer } = this.chosen;
    const part = kind === "cross" ? "cross-attention" : "attention";
    return this.row((row) => row.layer === layer && row.part === part);
  }

  // The row of what the queries of the chosen attention are made from.
  read() {
    const first = this.attention();
    if (first < 0) return this.hidden(this.chosen.layer);
    return isNorm(this.story.rows[first]) ? first : first - 1;
  }

  vector(row) {
    return this.story.vector(row, this.place);
  }

  length(row) {
    return this.story.length(row, this.place);
  }

  shownOf(dim = this.story.dim) {
    return dim > this.story.shown ? `the first ${this.story.shown} of ${dim} numbers` : `all ${dim} numbers`;
  }

  // What of each vector is drawn, and what its length is of.
  drawnOf() {
    return `Drawn: ${this.shownOf()} of each vector; the length is that of the whole.`;
  }

  // The keys by their weight, those that count for nothing left out; of the sink no value is mixed in.
  strongest(most) {
    const { weights } = this.steps;
    const keys = Array.from(weights, (_, key) => key).sort((a, b) => weights[b] - weights[a] || a - b);
    const some = keys.filter((key) => weights[key] > 0);
    return { listed: some.slice(0, most), others: some.slice(most) };
  }

  // Of few keys all, of many those, in the order of the text.
  shown(keys) {
    const { length } = this.chosen.keys;
    return length <= ALL ? Array.from({ length }, (_, key) => key) : [...keys].sort((a, b) => a - b);
  }
}

export const isNorm = ({ name }) => name.endsWith("Norm") || name.startsWith("LayerNorm");
export const isCross = ({ chosen }) => chosen.kind === "cross";
export const headName = ({ chosen }) => `layer ${chosen.layer}, head ${chosen.head}`;
