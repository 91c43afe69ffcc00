// What is said of a head in one number: means over all queries of a text, hidden tokens included, as
// `Trace.statistics().mean(name)` in Python has them, by the same names.

part((shared) => {
  const { inIdleTime } = shared;

  // Whether a kind has it: what lies between two texts has no distance, and not every text has special tokens.
  const within = ({ kind }) => kind !== "cross";

  const STATISTICS = [
    { name: "entropy", label: "Entropy", unit: "nats", says: "how far a query spreads its weight: 0 is one key, log n all n alike", has: () => true },
    { name: "distance", label: "Mean distance", unit: "tokens", says: "how far away the keys are that it looks at", has: within },
    { name: "largest", label: "Largest weight", unit: "", says: "the weight of the key that it looks at most", has: () => true },
    { name: "to_first", label: "To the first token", unit: "", says: "the weight on the text's first token", has: () => true },
    { name: "to_special", label: "To special tokens", unit: "", says: "the weight on tokens that the model added", has: ({ special }) => special.length > 0 },
    { name: "to_self", label: "To itself", unit: "", says: "the weight on the query's own token", has: within },
    { name: "to_previous", label: "To the previous token", unit: "", says: "the weight on the token before", has: (about) => within(about) && about.queries > 1 },
    { name: "to_next", label: "To the next token", unit: "", says: "the weight on the token after", has: (about) => within(about) && about.queries > 1 },
    { name: "to_sink", label: "To nothing", unit: "", says: "the weight on the sink, which has no value", has: ({ sink }) => sink },
  ];

  const PATIENCE = 8; // rows between two looks at the clock

  class HeadStatistics {
    constructor(source, kind) {
      Object.assign(this, { source, kind });
      const keys = source.tokens(kind, "key");
      this.keys = keys.filter(({ sink }) => !sink).length;
      const special = keys.map((token, i) => (token.special && !token.sink ? i : -1)).filter((i) => i >= 0);
      this.about = { kind, queries: source.tokens(kind, "query").length, special, sink: keys.length > this.keys };
      this.offered = STATISTICS.filter(({ has }) => has(this.about));
      this.known = new Map(); // "layer.head" to { name: mean }
    }

    of({ layer, head }) {
      return this.known.get(`${layer}.${head}`) || null;
    }

    // Works them out in idle time, head after head, and calls told(head); `paused()` is asked now and then, and ends
    // it. Returns { stop, resume } as Thumbnails.ask does.
    ask(heads, told, paused) {
      let stop = null;
      let query = 0;
      let sums = null;
      let queue = [];
      const step = (deadline) => {
        while (queue.length > 0) {
          if (paused()) break;
          const head = queue[0];
          if (!sums) [query, sums] = [0, this.empty()];
          for (; query < this.about.queries; query += 1) {
            if (query % PATIENCE === 0 && performance.now() > deadline) return false;
            const row = this.source.row(this.kind, head.layer, head.head, query);
            if (!row) {
              stop = null; // until rows have come
              return true;
            }
            this.add(sums, row, query);
          }
          this.known.set(`${head.layer}.${head.head}`, this.means(sums));
          sums = null;
          queue.shift();
          told(head);
        }
        stop = null;
        return true;
      };
      const resume = () => {
        if (stop) return;
        queue = heads.filter((head) => !this.of(head));
        sums = null;
        if (queue.length > 0) stop = inIdleTime(step);
      };
      resume();
      return {
        stop: () => {
          if (stop) stop();
          stop = null;
        },
        resume,
      };
    }

    empty() {
      return { entropy: 0, distance: 0, largest: 0, to_first: 0, to_special: 0, to_self: 0, to_previous: 0, to_next: 0, to_sink: 0 };
    }

    // One row more.
    add(sums, row, query) {
      const { keys, about } = this;
      let [entropy, total, away, largest] = [0, 0, 0, 0];
      for (let key = 0; key < keys; key += 1) {
        const weight = row[key];
        if (weight === 0) continue;
        entropy -= weight * Math.log(weight);
        total += weight;
        away += weight * Math.abs(query - key);
        if (weight > largest) largest = weight;
      }
      if (about.sink && row[keys] > 0) {
        entropy -= row[keys] * Math.log(row[keys]);
        sums.to_sink += row[keys];
      }
      sums.entropy += entropy;
      sums.largest += largest;
      if (total > 0) sums.distance += away / total;
      sums.to_first += row[0];
      for (const key of about.special) sums.to_special += row[key];
      if (about.kind === "cross") return;
      sums.to_self += row[query];
      if (query > 0) sums.to_previous += row[query - 1];
      if (query + 1 < keys) sums.to_next += row[query + 1];
    }

    // The first query has no token before it, and the last none after it: they do not count there.
    means(sums) {
      const { queries } = this.about;
      const counts = { to_previous: queries - 1, to_next: queries - 1 };
      return Object.fromEntries(this.offered.map(({ name }) => [name, sums[name] / (counts[name] ?? queries)]));
    }
  }

  return { STATISTICS, HeadStatistics };
});
