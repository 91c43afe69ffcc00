// A layer of weights that were given: somebody else computed them, and nothing is known of where they come from.
// It answers as Layer does; it has no steps.

import { heldHeads, placesOf } from "./layer.js";
import { decodeRows } from "./numbers.js";

export class GivenLayer {
  constructor(facts, queries, keys, columns, readBlock) {
    this.queries = queries;
    this.keys = keys;
    this.columns = columns;
    const held = heldHeads(facts);
    this.place = placesOf(held, facts.heads);
    this.weights = decodeRows(facts.weights, readBlock, held.length * queries);
  }

  // Nobody said what their mask was.
  allows() {
    return true;
  }

  row(head, query, out = new Float64Array(this.columns)) {
    const start = (this.place[head] * this.queries + query) * this.keys;
    out.set(this.weights.subarray(start, start + this.keys));
    return out;
  }

  column(head, key) {
    const start = this.place[head] * this.queries * this.keys + key;
    return Float64Array.from({ length: this.queries }, (_, query) => this.weights[start + query * this.keys]);
  }
}
