// One head beside the wall, as a map and with all its numbers: the one under the pointer, or else the chosen one. And the
// numbers of all heads as a table.

import { makeButton, makeTable, makeTables } from "../base/controls.js";
import { make, onceAFrame } from "../base/dom.js";
import { nameOf, withEffect } from "../base/names.js";
import { makeFeeds } from "./feeds.js";
import { DetailMap } from "./map.js";
import { formatStatistic } from "./statistics.js";

const STANDING = 3; // numbers that stand above the others

export class Detail {
  constructor(page, { statistics, open }) {
    this.source = page.source;
    this.state = page.state;
    this.statistics = statistics;
    this.pointed = null;
    this.request = onceAFrame(() => this.draw());
    this.title = make("h2", { class: "panel-title" });
    this.map = new DetailMap(page, () => this.head());
    this.feeds = makeFeeds(page.source);
    this.standing = make("dl", { class: "detail-numbers detail-standing" });
    this.numbers = make("dl", { class: "detail-numbers" });
    const button = makeButton("Open this head", () => open(this.head()));
    this.off = page.source.makeSwitch?.(); // a live page's
    this.element = make(
      "section",
      { class: "detail", "aria-label": "One head" },
      this.title,
      this.map.stage,
      this.map.line,
      this.map.note,
      this.standing,
      this.feeds.element,
      ...(this.off ? [make("div", { class: "live-line" }, button, this.off.element)] : [button]),
      make("details", { class: "detail-every" }, make("summary", {}, "All numbers of this head"), this.numbers),
    );
  }

  point(head) {
    if (this.pointed === head) return;
    this.pointed = head;
    this.request();
  }

  head() {
    const { layer, head } = this.state.values;
    return this.pointed || { layer, head };
  }

  // Another kind has other statistics.
  rebuild() {
    this.rows = this.statistics().offered.map(({ name, label, unit, says }) => {
      const value = make("dd", {}, "");
      const term = make("dt", { title: says }, unit ? `${label}, ${unit}` : label);
      return { name, term, value, text: value.firstChild };
    });
    this.usual = new Map(this.rows.map(({ name }) => [name, this.statistics().usual(name)]));
    this.numbers.replaceChildren(...this.rows.flatMap(({ term, value }) => [term, value]));
    this.pointed = null;
    this.map.layout();
    this.request();
  }

  // The numbers in which this head is least like the others.
  drawStanding(head) {
    const found = this.rows
      .map(({ name, term }) => {
        const { mean, spread } = this.usual.get(name);
        const value = this.statistics().of(head, name);
        return { label: term.textContent, value, mean, apart: value === null ? -1 : Math.abs(value - mean) / spread };
      })
      .filter(({ apart }) => apart >= 0)
      .sort((a, b) => b.apart - a.apart)
      .slice(0, STANDING);
    this.standing.replaceChildren(
      ...found.flatMap(({ label, value, mean }) => [
        make("dt", {}, label),
        make("dd", {}, formatStatistic(value, 4), make("small", {}, `all heads ${formatStatistic(mean, 4)}`)),
      ]),
    );
  }

  draw() {
    const head = this.head();
    const does = withEffect(nameOf(this.source, { ...this.state.values, effect: 0 }, head));
    this.title.textContent = `Layer ${head.layer}, head ${head.head}${does ? `: ${does}` : ""}`;
    this.off?.update(head);
    const { stat } = this.state.values;
    for (const { name, term, value, text } of this.rows) {
      text.data = formatStatistic(this.statistics().of(head, name), 4);
      for (const element of [term, value]) element.classList.toggle("chosen", name === stat);
    }
    this.drawStanding(head);
    this.feeds.update(head, this.state.values);
    this.map.show();
  }
}

// order(): the heads as they stand on the wall.
export function makeNumbers(statistics, order) {
  return makeTables("All numbers as a table", () => {
    const { offered } = statistics();
    const titles = ["Head", ...offered.map(({ label, unit }) => (unit ? `${label}, ${unit}` : label))];
    const rows = order().map((head) => [
      `${head.layer}.${head.head}`,
      ...offered.map(({ name }) => formatStatistic(statistics().of(head, name), 4)),
    ]);
    return [makeTable("Means over all queries", titles, rows)];
  });
}
