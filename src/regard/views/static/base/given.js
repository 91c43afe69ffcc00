// A layer of weights that were given: somebody else computed them, and nothing is known of where they come from.
// It answers as Layer does; it has no steps.

part((shared) => {
  const { decodeRows, heldHeads, placesOf } = shared;

  class GivenLayer {
    constructor(facts, queries, keys, columns, readBlock) {
      Object.assign(this, { facts, queries, keys, columns });
      this.heads = facts.heads;
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

  return { GivenLayer };
});
