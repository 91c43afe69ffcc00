// A layer of weights that were given: somebody else computed them, and nothing is known of where they come from.
// It answers as Layer does; it has no steps.

part((shared) => {
  const { decodeRows } = shared;

  class GivenLayer {
    constructor(facts, queries, keys, columns, readBlock) {
      Object.assign(this, { facts, queries, keys, columns });
      this.heads = facts.heads;
      this.weights = decodeRows(facts.weights, readBlock, facts.heads * queries);
    }

    row(head, query, out = new Float64Array(this.columns)) {
      const start = (head * this.queries + query) * this.keys;
      out.set(this.weights.subarray(start, start + this.keys));
      return out;
    }

    column(head, key) {
      const start = head * this.queries * this.keys + key;
      return Float64Array.from({ length: this.queries }, (_, query) => this.weights[start + query * this.keys]);
    }
  }

  return { GivenLayer };
});
