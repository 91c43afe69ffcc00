// The strongest weights between the tokens on show, of the heads on show: a short text's at once, a long one's in idle
// time, a kernel's when they come. The panel lists them, and the largest is what a full line stands for.

import { inIdleTime } from "../base/dom.js";

export const STRONGEST = 10;
const AT_ONCE = 8; // milliseconds
const SHORT = 128 ** 2; // weights: of more the first milliseconds would only hold up the frame

export class Strongest {
  // found(): there are others.
  constructor({ source, state }, weights, found) {
    this.source = source;
    this.state = state;
    this.weights = weights;
    this.found = found;
    this.list = null; // [{ query, key, weight, head }], largest first; null while it is not known
  }

  // What they are of has perhaps changed, or rows have come.
  ask() {
    const { kind, what, together, filter, specials, units } = this.state.values;
    const heads = this.weights.chosen.map(({ name }) => name);
    const name = JSON.stringify([kind, what, heads, together, filter, specials, units]);
    if (name === this.name && (this.list || this.under)) return;
    this.name = name;
    this.stop();
    this.list = null;
    this.weights.thickest = null;
    const shown = this.state.shown();
    const combined = this.weights.heads.some(({ of }) => of);
    if (this.source.strongest && !combined) this.take(this.asked(shown));
    else this.look(shown);
  }

  stop() {
    if (this.under) this.under();
    this.under = null;
  }

  take(list) {
    if (!list) return;
    this.list = list;
    this.weights.thickest = list.length > 0 ? Math.abs(list[0].weight) : null;
    this.found();
  }

  // Of a source that looks through a head by itself.
  asked(shown) {
    const { heads } = this.weights;
    const units = (side, order) => order.map((first) => this.state.units(side).at(first));
    const { kind, what } = this.state.values;
    const queries = units("query", shown.queries);
    const found = this.source.strongest(kind, heads, queries, units("key", shown.keys), STRONGEST, what);
    if (!found) return null;
    const headOf = (of) => heads.find(({ layer, head }) => layer === of.layer && head === of.head);
    return found
      .filter(({ query, key }) => this.weights.isThere({ side: "query", index: query }, key))
      .map((each) => ({ ...each, head: headOf(each) }));
  }

  look(shown) {
    const keys = shown.keys.filter((index) => this.state.units("key").at(index).only === undefined);
    const queue = this.weights.heads.flatMap((head) => shown.queries.map((query) => ({ head, query })));
    const list = [];
    let next = 0;
    let whole = true;
    const task = (deadline) => {
      for (; next < queue.length; next += 1) {
        if (performance.now() > deadline) return false;
        const { head, query } = queue[next];
        const row = this.weights.makeRow(head, this.weights.units("query", query, query));
        if (!row) whole = false;
        else
          collect(list, row, keys, { head, query }, (key) =>
            this.weights.isThere({ side: "query", index: query }, key),
          );
      }
      this.under = null;
      if (whole) this.take(list);
      return true;
    };
    const short = queue.length * keys.length <= SHORT;
    if (!short || !task(performance.now() + AT_ONCE)) this.under = inIdleTime(task);
  }
}

function collect(list, row, keys, { head, query }, isThere) {
  for (const key of keys) {
    const weight = row[key];
    if (list.length === STRONGEST && Math.abs(weight) <= Math.abs(list[STRONGEST - 1].weight)) continue;
    if (!isThere(key)) continue;
    list.push({ query, key, weight, head });
    list.sort((a, b) => Math.abs(b.weight) - Math.abs(a.weight));
    if (list.length > STRONGEST) list.pop();
  }
}
