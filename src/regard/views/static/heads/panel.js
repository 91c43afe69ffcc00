// The row or column on show, in numbers: the largest ones as a list, all of them as a table, and one sentence for a
// screen reader. Without a row, the strongest weights of the chosen heads.

import { makeTable, makeTables } from "../base/controls.js";
import { make, makeNote, onClicks, onceAFrame } from "../base/dom.js";
import { quantityOf } from "../base/measures.js";
import { rowOf, sharedBy } from "../base/said.js";
import { WeightList } from "./list.js";
import { STRONGEST } from "./strongest.js";

export class Panel {
  // strongest: see strongest.js; form(): what is drawn beside it; drawn(): the list is.
  constructor(page, weights, strongest, form, drawn) {
    this.source = page.source;
    this.state = page.state;
    this.weights = weights;
    this.strongest = strongest;
    this.form = form;
    this.drawn = drawn;
    this.request = onceAFrame(() => this.draw());
    this.title = make("h2", { class: "panel-title" });
    this.subtitle = makeNote();
    this.list = new WeightList(page, weights, (token) => this.name(token));
    this.sum = make("p", { class: "note sum" });
    this.table = makeTables("All numbers as a table", () => this.tables());
    this.live = make("p", { class: "sr-only", role: "status", "aria-live": "polite" });
    this.element = make(
      "section",
      { class: "panel", "aria-label": "Numbers" },
      this.title,
      this.subtitle,
      this.list.element,
      this.sum,
      this.table.element,
      this.live,
    );
    onClicks(this.list.element, "button", (button, event) => this.onClick(button, event));
    this.element.addEventListener(
      "focusout",
      ({ relatedTarget: to }) => this.element.contains(to) || this.state.set({ hover: null }),
    );
  }

  // A unit's name; of a span, its first and last.
  name({ side, index, to = index }) {
    const units = this.state.units(side);
    if (to === index) return units.name(index);
    return to === index + 1 ? `${units.name(index)} ${units.name(to)}` : `${units.name(index)} … ${units.name(to)}`;
  }

  // Which head, or what of several heads.
  where() {
    const named = this.weights.named();
    return named[0].toUpperCase() + named.slice(1);
  }

  several() {
    return this.weights.heads.length > 1;
  }

  onClick(button, event) {
    const token = { side: button.dataset.side, index: Number(button.dataset.token) };
    if (!button.dataset.pin) {
      this.form().reveal(token);
      return;
    }
    this.state.set({ pin: token, hover: null });
    // The list makes way for the row, and with it the button that had the focus; a click has no detail from a key.
    this.form().focusToken(token, event.detail === 0);
  }

  draw() {
    const { on, at } = this.state.focus();
    this.element.classList.toggle("of-key", Boolean(on) && on.side === "key");
    this.table.element.hidden = !on;
    if (!on) this.drawHead();
    else this.drawFocus(on, at);
    this.table.draw();
    this.drawn();
  }

  drawFocus(on, at) {
    const series = this.weights.series(on);
    const byQuery = on.side === "query";
    const shown = this.state.shown();
    const side = byQuery ? "key" : "query";
    const others = (byQuery ? shown.keys : shown.queries).filter((index) => this.isCompared(side, index));
    const there = others.filter((index) => this.weights.isThere(on, index));
    const name = make("bdi", { class: "panel-token" }, this.name(on));
    this.title.replaceChildren(
      ...(byQuery ? [name, on.to === undefined ? " looks at" : " look at"] : ["Looking at ", name]),
    );
    this.subtitle.textContent = [this.describe(on, byQuery), this.common(on)].join(" ");
    if (series.length === 0) {
      this.list.fill([]);
      this.sum.textContent = "The numbers are on their way.";
      return;
    }
    const entries = strongestOf(series, there, STRONGEST);
    const listed = at ? [...ofUnit(series, at.index), ...entries.filter(({ index }) => index !== at.index)] : entries;
    this.list.fill(
      listed.map(({ index, weight, head }) => ({
        tokens: [{ side, index }],
        weight,
        head,
        marked: Boolean(at) && index === at.index,
      })),
    );
    this.sum.textContent =
      this.several() || (!byQuery && this.state.values.row !== null)
        ? ""
        : this.sumUp(series[0].weights, others, byQuery, side);
    this.announce(on, at, series, listed, side);
  }

  describe(on, byQuery) {
    const { what } = this.state.values;
    if (what !== "weights") return this.describeMeasure(on, byQuery, quantityOf(what));
    const units = this.state.values.units === "words" ? "words" : "tokens";
    const [combined] = this.weights.heads.filter(({ of }) => of);
    if (combined) {
      const sums = combined.name === "mean" && byQuery ? ", which sums to 1" : ", which need not sum to 1";
      return `${byQuery ? "Row of query" : "Column of key"} ${on.index}: ${this.weights.named()}${sums}.`;
    }
    if (on.to !== undefined) {
      return byQuery
        ? `Queries ${on.index} to ${on.to}: the mean of their rows, which sums to 1.`
        : `Keys ${on.index} to ${on.to}: the sum of their columns, one weight from each query.`;
    }
    if (units === "words") {
      return byQuery
        ? "The mean row of the word's pieces, added up over the pieces of each key."
        : "What goes to all pieces of the word: one weight from each query.";
    }
    if (!byQuery) return "What each word gives to it: this need not come to 100 %.";
    return this.source.computed(this.state.values.kind) ? "Where its 100 % goes." : "Its weights, as they were given.";
  }

  // Whether there is a number at a unit: of two texts, both must have it.
  isCompared(side, index) {
    return this.state.units(side).at(index).only === undefined;
  }

  describeMeasure(on, byQuery, { label }) {
    if (on.to === undefined && !this.isCompared(on.side, on.index))
      return "This token is in one of the texts only: there is no difference to show.";
    const [rows, kept] = byQuery ? ["row", "the mean of the rows of"] : ["column", "the sum of the columns of"];
    const several = on.to !== undefined ? "several" : this.state.values.units === "words" ? "its pieces" : null;
    return several
      ? `${label}: ${kept} ${several === "several" ? `tokens ${on.index} to ${on.to}` : several}.`
      : `${label}: the ${rows} of ${on.side} ${on.index}.`;
  }

  sumUp(weights, others, byQuery, side) {
    if (this.state.values.what !== "weights" || this.weights.heads[0].name === "largest") return "";
    let total = 0;
    let visible = 0;
    for (const { first } of this.state.units(side).all) total += weights[first];
    for (const index of others) visible += weights[index];
    if (byQuery && total === 0 && !this.source.computed(this.state.values.kind))
      return "Every weight of this query is 0.";
    if (byQuery && total === 0) return "This query may attend to nothing: the mask hides every key.";
    if (others.length < this.state.units(side).all.length) {
      const hidden = this.weights.percent(byQuery ? (total - visible) / total : total - visible);
      return byQuery ? `${hidden} go to ${this.hidden(side)}.` : `${hidden} more come from ${this.hidden(side)}.`;
    }
    return byQuery ? "" : `This column sums to ${this.weights.format(total)}.`;
  }

  // What is not shown, by name where these are few: "[CLS] and [SEP]".
  hidden(side) {
    const shown = new Set(this.state.shown()[side === "key" ? "keys" : "queries"]);
    const units = this.state.units(side);
    const names = [
      ...new Set(units.all.filter(({ first }) => !shown.has(first)).map(({ first }) => units.name(first))),
    ];
    return names.length < 4 ? names.join(" and ") : "words that are not shown";
  }

  // Where most words look at one and the same, that is no news of any of them.
  common({ side, index, to }) {
    const { kind, layer, head, what } = this.state.values;
    if (what !== "weights" || side === "key" || to !== undefined || this.several() || kind === "cross") return "";
    const row = rowOf(this, { kind, layer, head }, index);
    return row ? sharedBy(this, { kind, layer, head }, row) : "";
  }

  // Spoken once the choice has rested: neither a moving pointer nor a held arrow key must chatter.
  announce(on, at, series, listed, side) {
    const several = this.several();
    const where = several ? `${series.length} heads.` : `${this.where()}.`;
    const number = ({ weight, head: of }) =>
      several ? `${this.weights.format(weight)} in ${of.layer}.${of.head}` : this.weights.format(weight);
    const said = at
      ? `${this.name(on)} and ${this.name(at)}: ${ofUnit(series, at.index).map(number).join(", ")}`
      : `${where} ${on.side === "query" ? "Query" : "Key"} ${on.index}, ${this.name(on)}: ${listed
          .slice(0, 3)
          .map((each) => `${this.name({ side, index: each.index })} ${number(each)}`)
          .join(", ")}.`;
    clearTimeout(this.speaking);
    this.speaking = setTimeout(() => (this.live.textContent = said), 250);
  }

  drawHead() {
    this.title.textContent = this.weights.chosen.length > 1 ? "Strongest in these heads" : "Strongest in this head";
    this.subtitle.textContent = "Who looks at whom.";
    const { list } = this.strongest;
    this.sum.textContent = list ? "Click one to pin its query." : "The numbers are on their way.";
    this.list.fill(
      (list || []).map(({ query, key, weight, head }) => ({
        tokens: [
          { side: "query", index: query },
          { side: "key", index: key },
        ],
        weight,
        head,
        pin: true,
      })),
    );
  }

  // What a number is, as the head of a column.
  oneOf() {
    const { one } = quantityOf(this.state.values.what);
    return one[0].toUpperCase() + one.slice(1);
  }

  // Of a long text it is the only thing on the page that is long.
  tables() {
    const { on } = this.state.focus();
    if (!on) return [];
    const series = this.weights.series(on);
    const side = on.side === "query" ? "key" : "query";
    const where = this.several() ? `${series.length} heads` : this.where();
    const columns = this.several()
      ? series.map(({ head: of }) => `Layer ${of.layer}, head ${of.head}`)
      : [this.oneOf()];
    const number = (weights, index) =>
      this.isCompared(side, index) && this.weights.isThere(on, index) ? this.weights.format(weights[index]) : "–";
    const rows = this.state
      .units(side)
      .all.filter(({ first }) => this.state.isWritten(side, first))
      .map(({ first: index }) => [
        make("bdi", {}, this.name({ side, index })), // what a row is of, and so its header
        String(index),
        ...series.map(({ weights }) => number(weights, index)),
      ]);
    const header = [side === "key" ? "Key" : "Query", "Position", ...columns];
    return [makeTable(`${where}, ${on.side} ${on.index} (${this.name(on)})`, header, rows)];
  }
}

// The largest weights of some rows at some places, [{ index, weight, head }], largest first, then as they stand.
function strongestOf(series, places, count) {
  const best = [];
  const before = (a, b) => Math.abs(b.weight) - Math.abs(a.weight) || a.index - b.index || a.head.place - b.head.place;
  for (const { head, weights } of series) {
    for (const index of places) {
      const weight = weights[index];
      if (best.length === count && Math.abs(weight) < Math.abs(best[count - 1].weight)) continue;
      best.push({ index, weight, head });
      best.sort(before);
      if (best.length > count) best.pop();
    }
  }
  return best;
}

function ofUnit(series, index) {
  return series.map(({ head, weights }) => ({ index, weight: weights[index], head }));
}
