// The row source: the only thing that a view asks about the model. This one computes rows from the q and k in the
// file; a notebook's kernel or a server is another object with the same methods.
//
//   kinds                              the kinds of attention, of "encoder", "decoder", "cross"
//   layers(kind)                       the numbers of its layers: of "cross", some may be missing
//   heads(kind, layer)                 query heads
//   holds(kind, layer, head)           whether rows of a head can be had: a file of a long text holds some heads alone.
//                                      The state names no other; see held.js
//   thumbnail(kind, layer, head, of)   of a head that it does not hold, a small picture: see thumbnails.js
//   tokens(kind, side)                 side "query" or "key": [{ text, surface?, bytes?, special, sequence, word, unknown? }];
//                                      unknown: not in the vocabulary, so that the model has read its text ("[UNK]"),
//                                      whatever its surface; where the model has attention sinks, the last key is { sink: true }: no token,
//                                      but a column of the softmax
//   words(kind, side)                  the text of each word, by the number that tokens name; may be empty
//   pair(kind)                         whether both sides are the same two texts
//   computed(kind)                     whether the weights are computed from q and k; of weights that were given
//                                      there are no steps
//   allows(kind, layer, head, query, key)  whether the mask lets a query look at a key; without this method, always
//   statistics(kind)                   means over the queries, by name: { entropy: [a row a layer, of a number a
//                                      head, null where there is none], ... }
//   names(kind)                        null, or what each head does: [a row a layer, of a list a head, of what it shows,
//                                      strongest first, { name, detail?, effect }]; what the names mean is in
//                                      facts.names, { said, patterns: [{ name, says }] }; may be missing
//   measures(kind)                     what can be drawn, names of measures.js: "weights" and what the source has of
//                                      the others; without this method, the weights alone
//   most(kind, layer, head, what)      the number that a full line of a measure stands for
//   measured(kind, what)               { difference, of }: how far a measure is from Python's, and what it is of
//   facts                              { model, sides: { encoder, decoder }, difference, every }, for the header
//
//   positions(kind, side)              how the stack of a side knows positions: { said, table }; table is null, or
//                                      { count, dim, values }, what is added at each position, row by row
//   distances(kind, layer)             null, or { heads, values, queries, keys, dense }: what is added to the scores
//                                      by distance, head by head, from key - query = 1 - queries on; dense, and
//                                      without values, where it depends on more than the distance
//   rotary(kind, layer)                null, or { frequencies, layout, amplitude }: radians a position of each pair
//   story(stack)                       the way of the words of the "encoder" or "decoder" through it, see story.js;
//                                      null where it cannot be told
//   facts.values                       { held: "all" | "some" | "none", difference, every }, of v, where there is any
//
// and three that may have to be fetched:
//
//   row(kind, layer, head, query, what)    Float64Array over the keys: the weights of one query, or another measure
//   column(kind, layer, head, key, what)   Float64Array over the queries: the weight that each gives one key
//   steps(kind, layer, head, query)    all that is between q and these weights: { q, k, dim, scorer, scale, softcap, sink,
//                                      products, scaled, capped, bias, allowed, scores, weights }; arrays over
//                                      the keys, null where the layer has no such step; and what becomes of the
//                                      weights, { v, vDim, context }: values and result of the head, null where
//                                      the source has no values of it (then vDim says whether the layer has any)
//
// A source beside a model's own Python may have more (notebook/source.js has): picture and strongest, which spare it
// the rows of a whole head (of the weights or of a measure). They too are null while they are on their way, and so are
// its statistics. check(kind, { layer, head }) is the run without a head, { cosine, apart, next, ... }: of each query's last
// hidden state to the one before, how far two different words are apart (null without two), and what a decoder goes on with
// before and after; check(kind, { unseen }) is the run where no other word looks at that of this token; undefined where it
// cannot be had, and { error } where it failed. beside(first) is a word on its way here and in another sentence.
//
// **null is "not yet".** These three answer at once: with the numbers, or with null, and then the source fetches
// them and calls its listeners when they have come; the page tells the view that is on (changed, with "rows"),
// which asks again. A view draws what it has and never waits in a frame. `arrived(() => source.row(...))` is the
// same as a promise, for what is not drawn. A row that was returned may be kept, and must not be written to.
//
// A source may forget rows; a view that draws many keeps those that it needs.

import { DifferenceSource } from "./difference.js";
import { inIdleTime, kept } from "./dom.js";
import { GivenLayer } from "./given.js";
import { allHeads } from "./held.js";
import { Layer } from "./layer.js";
import { Matrices, Norms } from "./measures.js";
import { decodeBase64, decodeValues } from "./numbers.js";
import { decodeStory } from "./story.js";
import { TrainedSource } from "./trained.js";

// What a column needs first is one number for each row of the head, which is quadratic: up to so many products it
// is worked out at once, in less than half a frame, and beyond it in idle time.
const AT_ONCE = 2e6;
const KEPT_SUMS = 64; // heads

export class FileSource {
  // facts: the page's JSON; readBlock(name): the base64 text of one block.
  constructor(facts, readBlock) {
    this.facts = facts;
    this.readBlock = readBlock;
    this.kinds = Object.keys(facts.kinds);
    this.decoded = new Map();
    this.sums = new Map();
    this.waiting = new Map();
    this.missing = new Map();
    this.listeners = [];
    const sink = { text: "sink", special: true, sequence: null, word: null, sink: true };
    this.sides = {};
    for (const kind of this.kinds) {
      const { query, key, layers } = facts.kinds[kind];
      const { tokens } = facts.sides[key];
      const sinks = layers.some((layer) => layer.sinks);
      this.sides[kind] = {
        query: facts.sides[query].tokens,
        key: sinks ? [...tokens, sink] : tokens,
        keys: tokens.length,
      };
    }
  }

  layers(kind) {
    return this.facts.kinds[kind].layers.map(({ layer }) => layer);
  }

  heads(kind, layer) {
    return this.layerFacts(kind, layer).heads;
  }

  holds(kind, layer, head) {
    const { held } = this.layerFacts(kind, layer);
    return !held || held.includes(head);
  }

  // Of a head that is not held, the levels of its picture; null where there is none of these tokens.
  thumbnail(kind, layer, head, { queries, keys, width, height }) {
    const { pictures } = this.facts.kinds[kind];
    const plain = (side) => this.tokens(kind, side).flatMap(({ special }, i) => (special ? [] : [i]));
    const whole = (side) => this.tokens(kind, side).map((_, i) => i);
    const isOf = (tokens) => String([queries, keys]) === String([tokens("query"), tokens("key")]);
    const name = isOf(whole) ? "all" : isOf(plain) ? "plain" : null;
    if (!pictures?.[name]) return null;
    const all = kept(this.decoded, pictures[name], () => decodeBase64(this.readBlock(pictures[name])));
    const at = this.unheld(kind).indexOf(`${layer}.${head}`) * width * height;
    return all.subarray(at, at + width * height);
  }

  // The names of the heads that are not held, in the order of their pictures.
  unheld(kind) {
    const missing = () => allHeads(this, kind).filter(({ layer, head }) => !this.holds(kind, layer, head));
    return kept(this.missing, kind, () => missing().map(({ layer, head }) => `${layer}.${head}`));
  }

  tokens(kind, side) {
    return this.sides[kind][side];
  }

  words(kind, side) {
    return this.facts.sides[this.facts.kinds[kind][side]].words;
  }

  pair(kind) {
    const { query, key } = this.facts.kinds[kind];
    return query === key && this.facts.sides[query].pair !== null;
  }

  computed(kind) {
    return this.facts.kinds[kind].layers.every(({ weights }) => !weights);
  }

  allows(kind, layer, head, query, key) {
    return this.layer(kind, layer).allows(head, query, key);
  }

  statistics(kind) {
    return this.facts.kinds[kind].statistics;
  }

  names(kind) {
    return this.facts.kinds[kind].names;
  }

  measures(kind) {
    return ["weights", ...(this.facts.kinds[kind].measures || []).map(({ name }) => name)];
  }

  measured(kind, what) {
    return (this.facts.kinds[kind].measures || []).find(({ name }) => name === what);
  }

  most(kind, layer, head, what) {
    if (what === "weights") return 1;
    const { most } = this.measureFacts(kind, layer, what);
    return most[most.length > 1 ? head : 0];
  }

  row(kind, layer, head, query, what = "weights") {
    return (what === "weights" ? this.layer(kind, layer) : this.measure(kind, layer, what)).row(head, query);
  }

  column(kind, layer, head, key, what = "weights") {
    if (what !== "weights") return this.measure(kind, layer, what).column(head, key);
    if (this.layerFacts(kind, layer).weights) return this.layer(kind, layer).column(head, key);
    const sums = this.logSums(kind, layer, head);
    return sums && this.layer(kind, layer).column(head, key, sums);
  }

  steps(kind, layer, head, query) {
    return this.layer(kind, layer).steps(head, query);
  }

  positions(kind, side) {
    const { said, table } = this.facts.sides[this.facts.kinds[kind][side]].positions || { said: null, table: null };
    if (!table) return { said, table };
    return {
      said,
      table: { count: table.count, dim: table.dim, values: decodeValues(table, this.readBlock, 1, table.dim) },
    };
  }

  distances(kind, layer) {
    const { bias } = this.layerFacts(kind, layer);
    if (!bias) return null;
    const { queries, keys, bias: values } = this.layer(kind, layer);
    return { heads: bias.heads, values: bias.dense ? null : values, queries, keys, dense: bias.dense };
  }

  rotary(kind, layer) {
    const { rotary } = this.layerFacts(kind, layer);
    if (!rotary) return null;
    return { ...rotary, frequencies: new Float32Array(decodeBase64(this.readBlock(rotary.frequencies)).buffer) };
  }

  // What is left of each token without a head; undefined where the file does not know it.
  check(kind, what) {
    const asked = Object.entries({ kind, ...what });
    const found = this.facts.without?.find((each) => asked.every(([name, value]) => each[name] === value));
    return found && { ...found, apart: this.facts.apart };
  }

  // What raises the score of a pair over the mean of its row: { total, parts: [{ said, source, value }], along }, the largest
  // first, along: the sum of all parts of its sign; undefined where the file does not know it.
  why({ kind, layer, head }, query, key) {
    const why = this.whyOf(kind, layer, head);
    const found = why?.pairs.find(([from, to]) => from === query && to === key);
    if (!found) return undefined;
    const [, , total, parts, along] = found;
    return { total, parts: parts.map(([part, source, value]) => ({ said: why.parts[part], source, value })), along };
  }

  // Other words in the place of one, and what a head gives them there: see door/instead.js.
  instead({ kind, layer, head }, from, to) {
    const asked = Object.entries({ kind, layer, head, from, to });
    const { instead } = this.facts;
    return instead && asked.every(([name, value]) => instead[name] === value) ? instead.words : undefined;
  }

  // What the file knows of all pairs of a head.
  whyOf(kind, layer, head) {
    const { why } = this.facts;
    return why && why.kind === kind && why.layer === layer && why.head === head ? why : undefined;
  }

  story(stack) {
    const facts = this.facts.story?.[stack];
    return facts ? kept(this.decoded, `story.${stack}`, () => decodeStory(facts, this.readBlock)) : null;
  }

  listen(listener) {
    this.listeners.push(listener);
  }

  layerFacts(kind, layer) {
    return this.facts.kinds[kind].layers.find((each) => each.layer === layer);
  }

  // A layer is decoded when someone first looks at it.
  layer(kind, number) {
    return kept(this.decoded, `${kind}.${number}`, () => this.makeLayer(kind, this.layerFacts(kind, number)));
  }

  /** @returns {any} */
  makeLayer(kind, facts) {
    const { query, key, keys } = this.sides[kind];
    return new (facts.weights ? GivenLayer : Layer)(facts, query.length, keys, key.length, this.readBlock);
  }

  measureFacts(kind, number, what) {
    return this.measured(kind, what).layers[this.layers(kind).indexOf(number)];
  }

  measure(kind, number, what) {
    return kept(this.decoded, `${kind}.${number}.${what}`, () => {
      const facts = this.measureFacts(kind, number, what);
      const { query, key, keys } = this.sides[kind];
      if (what !== "norm") return new Matrices(facts, query.length, keys, key.length, this.readBlock);
      const row = (head, of) => this.row(kind, number, head, of);
      const column = (head, of) => this.column(kind, number, head, of);
      return new Norms(facts, keys, key.length, this.readBlock, { row, column });
    });
  }

  // The normaliser of every row of a head; null while they are being worked out.
  logSums(kind, number, head) {
    const name = `${kind}.${number}.${head}`;
    const known = this.sums.get(name);
    if (known) return known;
    if (this.waiting.has(name)) return null;
    const layer = this.layer(kind, number);
    const sums = new Float64Array(layer.queries);
    const scratch = new Float64Array(layer.columns);
    let next = 0;
    const run = (deadline) => {
      for (; next < layer.queries; next += 1) {
        if (next % 16 === 0 && performance.now() > deadline) return false;
        layer.row(head, next, scratch);
        sums[next] = layer.logSum;
      }
      if (this.sums.size >= KEPT_SUMS) this.sums.delete(this.sums.keys().next().value);
      this.sums.set(name, sums);
      return true;
    };
    if (layer.queries * layer.keys * layer.dim <= AT_ONCE) {
      run(Infinity);
      return sums;
    }
    const task = (deadline) => {
      if (!run(deadline)) return false;
      this.waiting.delete(name);
      for (const listener of this.listeners) listener();
      return true;
    };
    this.waiting.set(name, inIdleTime(task));
    return null;
  }
}

// ask() until it is no longer null, as a promise.
export function arrived(source, ask) {
  return new Promise((resolve) => {
    let done = false;
    const look = () => {
      const found = done ? null : ask();
      if (found === null) return;
      done = true;
      resolve(found);
    };
    source.listen(look);
    look();
  });
}

// The runs whose attention a page can show, [{ label, title }]; none where there is but one. Of two that are
// compared, the first is their difference.
export function runsOf({ movement, compared, senses }) {
  if (senses) return senses.traced.map((_, i) => usesRun(senses, i));
  if (movement) return movement.texts.map((title, i) => ({ label: `Sentence ${i + 1}`, title }));
  if (!compared) return [];
  const one = compared.between === "texts" ? "Text" : "Model";
  return [
    { label: "Difference", title: "The second less the first" },
    ...compared.names.map((title, i) => ({ label: `${one} ${i + 1}`, title })),
  ];
}

// Of the uses of a word: those of a sense are numbered.
function usesRun({ traced, lines }, i) {
  const { sense, left, node, right } = lines[traced[i]];
  const number = traced.slice(0, i + 1).filter((use) => lines[use].sense === sense).length;
  return { label: `${sense}, line ${number}`, title: left + node + right };
}

// The source of the run that the address says, which is one of several or their difference; read(place) makes that
// of one of them.
export function chosenRun(facts, address, read) {
  const asked = Number(new URLSearchParams(address.replace(/^#/, "")).get("run") || 0);
  const number = Number.isInteger(asked) && asked >= 0 && asked < runsOf(facts).length ? asked : 0;
  if (!facts.compared) return read(number);
  const runs = [read(0), read(1)];
  const source = number === 0 ? new DifferenceSource(runs[0], runs[1], facts.compared) : runs[number - 1];
  return Object.assign(source, { compares: runs });
}

// The source of a page. The names of the blocks of further runs begin with the run.
export function fileSource(readBlock) {
  const facts = JSON.parse(readBlock("facts"));
  const { movement, compared, senses, training, start } = facts;
  if (training) {
    const runs = training.steps.map((_, place) => {
      const read = (name) => readBlock(place === 0 ? name : `run${place}-${name}`);
      return new FileSource({ ...JSON.parse(read("facts")), training, start }, read);
    });
    return new TrainedSource(runs);
  }
  return chosenRun(facts, location.hash, (place) => {
    if (place === 0) return new FileSource(facts, readBlock);
    const read = (name) => readBlock(`run${place}-${name}`);
    return new FileSource({ ...JSON.parse(read("facts")), movement, compared, senses }, read);
  });
}
