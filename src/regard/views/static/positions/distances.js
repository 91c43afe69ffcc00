// What depends on the distance of key and query: a bias of the scores, and the angles by which q and k are turned.

import { makeSlider, makeTable, makeTables } from "../base/controls.js";
import { make, makeNote } from "../base/dom.js";
import { formatNumber, largestSize } from "../neuron/figures.js";
import { PositionMap } from "./heatmap.js";
import { makePositionSection, PositionProfile } from "./parts.js";

export class BiasByDistance {
  constructor(page) {
    this.source = page.source;
    this.state = page.state;
    this.distance = 0;
    const choose = (head, column) => {
      this.distance = column + this.first;
      if (head < this.source.heads(this.state.values.kind, this.state.values.layer)) this.state.set({ head });
      this.show(head, this.distance);
    };
    this.map = new PositionMap(page, {
      label: "Bias of each head by distance",
      onPoint: (head, column) => this.show(head ?? this.head(), column === null ? this.distance : column + this.first),
      onChoose: choose,
    });
    this.sliders = {
      head: makeSlider("Head", (head) => this.state.set({ head })),
      distance: makeSlider("Distance, key minus query", (distance) => choose(this.head(), distance - this.first)),
    };
    this.entry = make("p", { class: "position-number bias-entry" });
    this.note = makeNote();
    this.profile = new PositionProfile(page);
    this.table = makeTables("Bias of every distance as a table", () => this.tables());
    this.element = makePositionSection(
      "Added to the scores, by distance",
      this.note,
      this.map.element,
      this.sliders.head.element,
      this.sliders.distance.element,
      this.entry,
      this.profile.canvas,
      this.table.element,
    );
  }

  // A bias that all heads share has one row.
  head() {
    return this.bias.heads > 1 ? this.state.values.head : 0;
  }

  open(bias) {
    this.bias = bias;
    this.first = 1 - bias.queries;
    this.count = bias.queries + bias.keys - 1;
    this.distance = Math.max(this.first, Math.min(bias.keys - 1, this.distance));
    this.limit = largestSize(bias.values);
    this.note.textContent = `Layer ${this.state.values.layer}. Negative distances are keys before the query, positive ones keys after it.${bias.heads > 1 ? "" : " All heads share it."}`;
    this.map.draw(bias.heads, this.count, (head, column) => bias.values[head * this.count + column], this.limit);
    this.show(this.head(), this.distance);
    this.table.draw();
  }

  show(head, distance) {
    const { bias, count, first } = this;
    const column = distance - first;
    this.map.mark(head, column);
    this.sliders.head.update(head, bias.heads);
    this.sliders.distance.update(distance, count, undefined, first);
    this.entry.textContent = `Head ${head}, distance ${distance}: ${formatNumber(bias.values[head * count + column])}`;
    this.profile.draw(bias.values.subarray(head * count, (head + 1) * count), this.limit);
  }

  tables() {
    const heads = Array.from({ length: this.bias.heads }, (_, head) => head);
    const rows = Array.from({ length: this.count }, (_, column) => [
      String(column + this.first),
      ...heads.map((head) => formatNumber(this.bias.values[head * this.count + column])),
    ]);
    return [makeTable(`Layer ${this.state.values.layer}`, ["Distance", ...heads.map((head) => `Head ${head}`)], rows)];
  }
}

export class RotaryAngles {
  constructor(page) {
    this.source = page.source;
    this.state = page.state;
    this.at = { pair: 0, distance: 1 };
    const go = (patch) => {
      this.at = { ...this.at, ...patch };
      this.show(this.at);
      this.table.draw();
    };
    this.map = new PositionMap(page, {
      label: "Cosine of the angle of each pair by distance",
      onPoint: (pair, distance) => this.show(pair === null ? this.at : { pair, distance }),
      onChoose: (pair, distance) => go({ pair, distance }),
    });
    this.sliders = {
      pair: makeSlider("Pair", (pair) => go({ pair })),
      distance: makeSlider("Distance", (distance) => go({ distance })),
    };
    this.entry = make("p", { class: "position-number rotary-entry" });
    this.mean = make("p", { class: "position-number rotary-mean" });
    this.note = makeNote();
    this.profile = new PositionProfile(page);
    this.table = makeTables("Angles at this distance as a table", () => this.tables());
    this.element = makePositionSection(
      "Turned by distance: rotary positions",
      this.note,
      this.map.element,
      this.sliders.pair.element,
      this.sliders.distance.element,
      this.entry,
      this.mean,
      this.profile.canvas,
      this.table.element,
    );
  }

  open({ frequencies, layout, amplitude }, length, layer) {
    this.frequencies = frequencies;
    this.layout = layout;
    this.length = length;
    const pairs = frequencies.length;
    this.at = { pair: Math.min(this.at.pair, pairs - 1), distance: Math.min(this.at.distance, length - 1) };
    const scaled = Math.abs(amplitude - 1) > 1e-9 ? ` q and k are multiplied by ${formatNumber(amplitude)} too.` : "";
    this.note.textContent = `Layer ${layer}: q and k are turned in ${pairs} pairs of entries, pair i by position × frequency i, so that their product depends on the distance. The image shows cosines: green is 1, not turned; purple is −1, turned half round.${scaled}`;
    this.map.draw(pairs, length, (pair, distance) => Math.cos(distance * frequencies[pair]), 1);
    this.means = Float64Array.from(
      { length },
      (_, distance) => frequencies.reduce((sum, each) => sum + Math.cos(distance * each), 0) / pairs,
    );
    this.show(this.at);
    this.table.draw();
  }

  entries(pair) {
    return this.layout === "half" ? [pair, pair + this.frequencies.length] : [2 * pair, 2 * pair + 1];
  }

  show({ pair, distance }) {
    const angle = distance * this.frequencies[pair];
    const [one, other] = this.entries(pair);
    this.map.mark(pair, distance);
    this.sliders.pair.update(pair, this.frequencies.length);
    this.sliders.distance.update(distance, this.length);
    this.entry.textContent = `Pair ${pair} (entries ${one} and ${other}), distance ${distance}: angle ${formatNumber(angle)} radians, cosine ${formatNumber(Math.cos(angle))}`;
    this.mean.textContent = `Mean cosine of all pairs at distance ${distance}: ${formatNumber(this.means[distance])}`;
    this.profile.draw(this.means, 1);
  }

  tables() {
    const { distance } = this.at;
    const rows = Array.from(this.frequencies, (frequency, pair) => [
      String(pair),
      this.entries(pair).join(", "),
      formatNumber(frequency),
      formatNumber(distance * frequency),
      formatNumber(Math.cos(distance * frequency)),
    ]);
    return [makeTable(`Distance ${distance}`, ["Pair", "Entries", "Frequency", "Angle", "Cosine"], rows)];
  }
}
