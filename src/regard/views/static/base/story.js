// The way of every word through a stack, as a file holds it: the first numbers of each vector, and exact lengths.

import { decodeBase64, decodeValues } from "./numbers.js";

// facts: of one stack. Returns the facts and, of the token at a place in facts.tokens,
//   vector(row, place)        Float64Array, the first numbers of a row's vector; of a sum, its rows added up
//   length(row, place)        of the whole vector
//   moved(state, place, to)   { cosine, distance } of the row with `hidden: state`, by the whole vectors, to the learned
//                             embedding (to = 0), to what enters layer 0 (1), to the state before (2); null where
//                             the two have not the same size
//   neurons(layer, place)     { places, values, active }, of the feed-forward network; null where it is not seen
//   parts(kind, layer, place) of each head, the length of what it adds to the attention's output; null where unknown
export function decodeStory(facts, readBlock) {
  const { tokens, rows, shown } = facts;
  const count = tokens.length;
  const stored = rows.map((_, row) => row).filter((row) => !rows[row].sum);
  const values = decodeValues(facts.values, readBlock, stored.length, shown);
  const bytes = (name) => decodeBase64(readBlock(name)).buffer;
  const read = (name) => new Float32Array(bytes(name));
  const lengths = read(facts.lengths);
  const ways = facts.moved && read(facts.moved);
  const states = rows.filter(({ hidden }) => hidden !== undefined).length;
  const neurons = facts.neurons && {
    places: new Int32Array(bytes(facts.neurons.places)),
    values: read(facts.neurons.values),
    active: new Int32Array(bytes(facts.neurons.active)),
  };
  const parts = facts.parts && read(facts.parts.lengths);

  function vector(row, place) {
    const { sum, dim } = rows[row];
    if (!sum) {
      const at = (stored.indexOf(row) * count + place) * shown;
      return Float64Array.from(values.subarray(at, at + Math.min(shown, dim ?? shown)));
    }
    const terms = sum.map((each) => vector(each, place));
    return terms[0].map((_, i) => terms.reduce((total, term) => total + term[i], 0));
  }

  function moved(state, place, to = 0) {
    const of = (what) => ways[((what * 3 + to) * states + state) * count + place];
    return ways && !Number.isNaN(of(0)) ? { cosine: of(0), distance: of(1) } : null;
  }

  function neuronsOf(layer, place) {
    const at = neurons ? facts.neurons.layers.indexOf(layer) * count + place : -1;
    if (at < 0) return null;
    const { top } = facts.neurons;
    const of = (list) => list.subarray(at * top, (at + 1) * top);
    return { places: of(neurons.places), values: of(neurons.values), active: neurons.active[at] };
  }

  function partsOf(kind, layer, place) {
    if (!parts) return null;
    const { attentions, heads } = facts.parts;
    const at = attentions.findIndex((each) => each.kind === kind && each.layer === layer);
    return at < 0 ? null : parts.subarray((at * count + place) * heads, (at * count + place + 1) * heads);
  }

  const length = (row, place) => lengths[row * count + place];
  return { ...facts, vector, length, moved, neurons: neuronsOf, parts: partsOf, neuronCount: facts.neurons?.count };
}
