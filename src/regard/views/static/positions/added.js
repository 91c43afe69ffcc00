// What is added to the embedding at each position: the matrix, and how alike its rows are.

import { makeChoice, makeSlider, makeTable, makeTables } from "../base/controls.js";
import { make, makeNote } from "../base/dom.js";
import { formatNumber, largestSize } from "../neuron/figures.js";
import { PositionMap } from "./heatmap.js";
import { makePositionSection, PositionProfile } from "./parts.js";

export class AddedVectors {
  constructor(page, side) {
    this.source = page.source;
    this.state = page.state;
    this.side = side;
    this.at = { position: 0, dim: 0, other: 0 };
    this.cosine = true;
    const go = (patch) => this.go(patch);
    this.map = new PositionMap(page, {
      label: "Vector of each position",
      onPoint: (row, column) => this.point({ position: row, dim: column }),
      onChoose: (row, column) => go({ position: row, dim: column }),
    });
    this.alike = new PositionMap(page, {
      label: "Positions against positions",
      onPoint: (row, column) => this.point({ position: row, other: column }),
      onChoose: (row, column) => go({ position: row, other: column }),
    });
    this.sliders = {
      position: makeSlider("Position", (position) => go({ position })),
      dim: makeSlider("Dimension", (dim) => go({ dim })),
      other: makeSlider("Other position", (other) => go({ other })),
    };
    this.profile = new PositionProfile(page);
    this.curve = new PositionProfile(page);
    this.scale = make("p", { class: "note added-scale" });
    this.entry = make("p", { class: "position-number added-entry" });
    this.pair = make("p", { class: "position-number added-pair" });
    this.note = makeNote();
    this.measure = makeChoice({
      name: `measure-${side}`,
      legend: "Measure",
      options: [
        ["cosine", "Cosine"],
        ["product", "Dot product"],
      ],
      value: () => (this.cosine ? "cosine" : "product"),
      choose: (measure) => {
        this.cosine = measure === "cosine";
        this.draw();
      },
      classes: "measure",
    }).element;
    this.table = makeTables("Numbers of this position as a table", () => this.tables());
    const vectors = makePositionSection(
      "Vectors added to the embeddings",
      this.note,
      this.map.element,
      this.sliders.position.element,
      this.sliders.dim.element,
      this.entry,
      this.profile.canvas,
      this.scale,
    );
    const products = makePositionSection(
      "How alike two positions are",
      this.measure,
      this.alike.element,
      this.sliders.other.element,
      this.pair,
      this.curve.canvas,
      this.table.element,
    );
    this.element = make("div", { class: "position-pair" }, vectors, products);
  }

  // table: { count, dim, values }; names: the tokens that stand there: of the first places, where there are more.
  // stack: what the note begins with, where two stacks are shown.
  open({ count, dim, values }, names, stack) {
    this.count = count;
    this.dim = dim;
    this.values = values;
    this.total = names.length;
    this.names = Array.from({ length: count }, (_, place) => names[place] ?? "");
    this.stack = stack;
    if (!this.opened) this.at = { ...this.at, ...this.content() };
    this.opened = true;
    this.limit = largestSize(values);
    // One dimension is often many times the others: its colour may be full, so that theirs is not empty.
    const sizes = values.map(Math.abs).sort();
    this.full = sizes[Math.floor(0.99 * (sizes.length - 1))] || this.limit;
    this.lengths = Float64Array.from({ length: count }, (_, row) => Math.sqrt(this.dot(row, row)));
    this.draw();
  }

  // Two words to begin with: the one that the page begins with, and the longest other.
  content() {
    const length = (place) => this.names[place].match(/\p{L}/gu)?.length ?? 0;
    const special = this.source.tokens(this.state.values.kind, this.side).map((token) => token.special);
    const total = Math.min(this.count, this.total);
    const places = Array.from({ length: total }, (_, place) => place).filter((place) => !special[place]);
    const start = this.source.facts.start?.pin;
    const longest = (some) => some.reduce((best, place) => (length(place) > length(best) ? place : best), some[0] ?? 0);
    const position = places.includes(start) ? start : longest(places);
    return { position, other: longest(places.filter((place) => place !== position)) };
  }

  dot(one, other) {
    let sum = 0;
    for (let d = 0; d < this.dim; d += 1) sum += this.values[one * this.dim + d] * this.values[other * this.dim + d];
    return sum;
  }

  // A vector of zeros (padding has one in some models) is like none.
  like(one, other, cosine = this.cosine) {
    if (!cosine) return this.dot(one, other);
    const lengths = this.lengths[one] * this.lengths[other];
    return lengths > 0 ? this.dot(one, other) / lengths : 0;
  }

  draw() {
    const { count, dim, values, total } = this;
    const which = total > count ? `, the first of ${total}` : "";
    const where = count > total ? `each place; this text has the first ${total}` : "each place of this text";
    this.note.textContent = `${this.stack}${count} positions × ${dim} dimensions${which}: what the model adds at ${where}.`;
    this.map.draw(count, dim, (row, column) => values[row * dim + column], this.full, this.full < this.limit);
    const all = new Float64Array(count * count);
    for (let row = 0; row < count; row += 1)
      for (let column = 0; column <= row; column += 1)
        all[row * count + column] = all[column * count + row] = this.like(row, column);
    this.all = all;
    this.alike.draw(count, count, (row, column) => all[row * count + column], this.cosine ? 1 : largestSize(all));
    this.map.name(this.names);
    this.alike.name(this.names, true);
    this.show(this.at);
    this.table.draw();
  }

  go(patch) {
    this.at = { ...this.at, ...patch };
    this.show(this.at);
    this.table.draw();
  }

  // Under the pointer; back to what was chosen when it leaves.
  point(patch) {
    this.show(Object.values(patch).includes(null) ? this.at : { ...this.at, ...patch });
  }

  show({ position, dim, other }) {
    const { count, values } = this;
    const name = (place) => (place < this.total ? `${place} (${this.names[place]})` : String(place));
    this.map.mark(position, dim);
    this.alike.mark(position, other);
    this.sliders.position.update(position, count, name(position));
    this.sliders.dim.update(dim, this.dim);
    this.sliders.other.update(other, count, name(other));
    this.entry.textContent = `Position ${name(position)}, dimension ${dim}: ${formatNumber(values[position * this.dim + dim])}`;
    this.pair.textContent = `${this.cosine ? "Cosine" : "Dot product"} of positions ${position} and ${other}: ${formatNumber(this.like(position, other))}`;
    // By its own largest: beside the one large dimension of another position the bars of this one would be none.
    const vector = values.subarray(position * this.dim, (position + 1) * this.dim);
    const largest = largestSize(vector);
    this.profile.draw(vector, largest);
    this.scale.textContent = `The longest bar is ${formatNumber(largest)}, above or below zero.`;
    this.curve.draw(
      this.all.subarray(position * count, (position + 1) * count),
      this.cosine ? 1 : largestSize(this.all),
    );
  }

  tables() {
    const { position } = this.at;
    const rows = this.names.map((name, other) => [
      String(other),
      name,
      formatNumber(this.like(position, other, false)),
      formatNumber(this.like(position, other, true)),
    ]);
    const header = ["Position", "Token", "Dot product", "Cosine"];
    return [makeTable(`Position ${position} with every position`, header, rows)];
  }
}
