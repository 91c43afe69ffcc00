// What became of each head over the steps: its numbers, and since when it has had the name that it has at the end.

import { kept } from "../base/dom.js";
import { allHeads } from "../base/held.js";
import { nameOf } from "../base/names.js";

export class Emergence {
  constructor({ source, state }) {
    this.runs = source.runs;
    this.state = state;
    this.kept = new Map();
  }

  // A statistic of a head at each traced step, null where it has none.
  values({ layer, head }, stat) {
    const { kind } = this.state.values;
    return this.runs.map((run) => run.statistics(kind)[stat][run.layers(kind).indexOf(layer)][head]);
  }

  // The least and the largest of all heads at all steps, with 0 where that is near.
  range(stat) {
    const { kind } = this.state.values;
    return kept(this.kept, `range.${kind}.${stat}`, () => {
      const all = this.runs.flatMap((run) => run.statistics(kind)[stat].flat()).filter((value) => value !== null);
      const [least, most] = [Math.min(...all, Infinity), Math.max(...all, -Infinity)];
      return [least > 0 && least < 0.5 * most ? 0 : least, most];
    });
  }

  heads() {
    return allHeads(this.runs[0], this.state.values.kind);
  }

  // { name, place }: the name at the last step, and the first step from which on it has been that; undefined for none.
  named({ layer, head }) {
    const { kind, effect } = this.state.values;
    return kept(this.kept, `named.${kind}.${effect}.${layer}.${head}`, () => {
      const names = this.runs.map((run) => nameOf(run, { kind, effect }, { layer, head }));
      const name = names[names.length - 1];
      if (!name) return undefined; // null would be worked out again
      const other = names.findLastIndex((each) => each?.name !== name.name);
      return { name, place: other + 1 };
    });
  }

  // The heads that have got a name, in the order of the steps.
  events() {
    return this.heads()
      .map((head) => ({ head, named: this.named(head) }))
      .filter(({ named }) => named)
      .sort((a, b) => a.named.place - b.named.place || b.named.name.effect - a.named.name.effect);
  }
}
