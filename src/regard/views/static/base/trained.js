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

  layers(kind) {
    return this.on.layers(kind);
  }

  heads(kind, layer) {
    return this.on.heads(kind, layer);
  }

  holds(kind, layer, head) {
    return this.on.holds(kind, layer, head);
  }

  thumbnail(kind, layer, head, of) {
    return this.on.thumbnail(kind, layer, head, of);
  }

  tokens(kind, side) {
    return this.on.tokens(kind, side);
  }

  words(kind, side) {
    return this.on.words(kind, side);
  }

  pair(kind) {
    return this.on.pair(kind);
  }

  computed(kind) {
    return this.on.computed(kind);
  }

  allows(kind, layer, head, query, key) {
    return this.on.allows(kind, layer, head, query, key);
  }

  statistics(kind) {
    return this.on.statistics(kind);
  }

  names(kind) {
    return this.on.names(kind);
  }

  measures(kind) {
    return this.on.measures(kind);
  }

  measured(kind, what) {
    return this.on.measured(kind, what);
  }

  most(kind, layer, head, what) {
    return this.on.most(kind, layer, head, what);
  }

  row(kind, layer, head, query, what) {
    return this.on.row(kind, layer, head, query, what);
  }

  column(kind, layer, head, key, what) {
    return this.on.column(kind, layer, head, key, what);
  }

  steps(kind, layer, head, query) {
    return this.on.steps(kind, layer, head, query);
  }

  positions(kind, side) {
    return this.on.positions(kind, side);
  }

  distances(kind, layer) {
    return this.on.distances(kind, layer);
  }

  rotary(kind, layer) {
    return this.on.rotary(kind, layer);
  }

  story(stack) {
    return this.on.story(stack);
  }

  listen(listener) {
    for (const run of this.runs) run.listen(listener);
  }
}
