// What is said of a head in one number: means over all queries of a text, hidden tokens included, as
// `Trace.statistics().mean(name)` in Python has them, by the same names. Python works them out; of each there is only
// what the text and the kind of attention have.

export const STATISTICS = [
  {
    name: "entropy",
    label: "Entropy",
    unit: "nats",
    says: "how far a query spreads its weight: 0 is one key, log n is n keys alike",
  },
  { name: "distance", label: "Mean distance", unit: "tokens", says: "how far away the keys are that it looks at" },
  {
    name: "spread",
    label: "Spread of the distance",
    unit: "tokens",
    says: "how unlike the distances are at which it looks",
  },
  { name: "largest", label: "Largest weight", unit: "", says: "the weight of the key that it looks at most" },
  { name: "to_first", label: "To the first token", unit: "", says: "the weight on the text's first token" },
  { name: "to_special", label: "To special tokens", unit: "", says: "the weight on tokens that the model added" },
  { name: "to_punctuation", label: "To punctuation", unit: "", says: "the weight on signs between words" },
  { name: "to_self", label: "To itself", unit: "", says: "the weight on the query's own token" },
  { name: "to_previous", label: "To the previous token", unit: "", says: "the weight on the token before" },
  { name: "to_next", label: "To the next token", unit: "", says: "the weight on the token after" },
  {
    name: "to_same_word",
    label: "To the rest of its word",
    unit: "",
    says: "the weight on the other pieces of the query's word",
  },
  {
    name: "to_repeated_word",
    label: "To its word elsewhere",
    unit: "",
    says: "the weight on other places of the query's word",
  },
  {
    name: "to_other_sentence",
    label: "To the other text",
    unit: "",
    says: "the weight on the text that the query is not in",
  },
  {
    name: "divergence",
    label: "Divergence",
    unit: "bits",
    says: "how differently the two attend (Jensen-Shannon): 0 is alike, 1 nothing in common",
  },
  { name: "compared", label: "Compared", unit: "", says: "the share of attention that lies on tokens that both have" },
  { name: "to_sink", label: "To nothing", unit: "", says: "the weight on the sink, which has no value" },
];

export class HeadStatistics {
  constructor(source, kind) {
    this.values = source.statistics(kind);
    this.places = new Map(source.layers(kind).map((layer, place) => [layer, place]));
    this.offered = STATISTICS.filter(({ name }) => Object.hasOwn(this.values, name));
  }

  // A number of a head; null where it has none.
  of({ layer, head }, name) {
    return this.values[name][this.places.get(layer)][head];
  }

  // What all heads have: the mean and the standard deviation.
  usual(name) {
    const all = this.values[name].flat().filter((value) => value !== null);
    const mean = all.reduce((sum, value) => sum + value, 0) / all.length;
    const square = all.reduce((sum, value) => sum + (value - mean) ** 2, 0) / all.length;
    return { mean, spread: Math.sqrt(square) || 1 };
  }
}

// In digits; what a head does not have is a dash.
export function formatStatistic(value, digits) {
  return value === null ? "–" : value.toFixed(digits);
}
