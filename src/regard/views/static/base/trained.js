// One text in a network that is trained: the traced steps are several sources, and this is the one that is on. The field
// `at` of the state says which (state.js); whoever draws over the steps asks `runs` for each of them.

/** @typedef {import("./source.js").FileSource} FileSource */

export class TrainedSource {
  /** @param {FileSource[]} runs from the first traced step to the last, of the same tokens, layers and heads */
  constructor(runs) {
    this.runs = runs;
    this.kinds = runs[0].kinds;
    this.turn(runs.length - 1);
  }

  turn(place) {
    this.on = this.runs[place];
  }

  get facts() {
    return this.on.facts;
  }

  listen(listener) {
    for (const run of this.runs) run.listen(listener);
  }
}

// What a source is asked is asked of the one that is on.
const ASKED = `layers heads holds thumbnail tokens words pair computed allows statistics names measures measured most
  row column steps positions distances rotary story`;
for (const name of ASKED.split(/\s+/))
  TrainedSource.prototype[name] = function (...asked) {
    return this.on[name](...asked);
  };
