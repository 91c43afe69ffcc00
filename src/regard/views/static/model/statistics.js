// What is said of a head in one number: means over all queries of a text, hidden tokens included, as
// `Trace.statistics().mean(name)` in Python has them, by the same names. Python works them out; of each there is only
// what the text and the kind of attention have. Their list is statistics.json, which Python reads too.

import STATISTICS from "../statistics.json";

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
