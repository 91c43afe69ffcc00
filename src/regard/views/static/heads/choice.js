// Which heads are on show: the one under the cursor, and those that are kept beside it.

import { heldOf } from "../base/held.js";

const same = (one, other) => one.layer === other.layer && one.head === other.head;

// [{ layer, head, name, place }]; `place` gives a head its colour, its dashes and its letter.
export function chosenHeads({ layer, head, also }) {
  const list = also.some((each) => same(each, { layer, head })) ? also : [...also, { layer, head }];
  return list.map((each, place) => ({ layer: each.layer, head: each.head, name: `${each.layer}.${each.head}`, place }));
}

const plain = (list) => list.map(({ layer, head }) => ({ layer, head }));

// Takes a head in, or lets it go; one always stays.
export function toggleHead(state, layer, head) {
  const list = chosenHeads(state.values);
  const at = list.findIndex((each) => same(each, { layer, head }));
  if (at < 0) {
    state.set({ layer, head, also: [...plain(list), { layer, head }] });
    return;
  }
  const rest = plain(list).filter((_, i) => i !== at);
  if (rest.length === 0) return;
  const cursor = same(state.values, { layer, head }) ? rest[rest.length - 1] : state.values;
  state.set({ layer: cursor.layer, head: cursor.head, also: rest.length > 1 ? rest : [] });
}

// All heads of a layer and no others; the cursor alone where they are all there already.
export function toggleLayer(state, layer) {
  const { kind } = state.values;
  const all = heldOf(state.source, kind, layer).map((head) => ({ layer, head }));
  const list = chosenHeads(state.values);
  const there = all.length === list.length && all.every((each) => list.some((other) => same(each, other)));
  if (all.length === 0) {
    state.set({ layer }); // which says that it is not there
    return;
  }
  const head = state.values.layer === layer ? state.values.head : all[0].head;
  state.set({ layer, head, also: there || all.length === 1 ? [] : all });
}
