// Which earlier heads feed a head, as a small graph: a row for each layer, and a line from each head that feeds its keys or
// its queries.

import { drawn, make, makeNote } from "../base/dom.js";

const [WIDTH, LEFT, ROW, MOST] = [264, 22, 22, 200];
const SIDES = [
  ["key", "keys"],
  ["query", "queries"],
];

export function makeFeeds(source) {
  const element = make("figure", { class: "feeds", hidden: true });

  function graph({ layer, head }, { feeds, value: all }, heads) {
    const x = (number) => LEFT + ((number + 0.5) * (WIDTH - LEFT)) / heads;
    const height = Math.min((layer + 1) * ROW, MOST);
    const y = (number) => ((layer - number + 0.5) * height) / (layer + 1);
    const named = Math.ceil(((layer + 1) * 11) / height);
    const parts = [];
    for (let row = 0; row <= layer; row += 1) {
      if ((layer - row) % named === 0) parts.push(drawn("text", { x: 0, y: y(row) + 4 }, String(row)));
      const last = row === layer ? [head] : Array.from({ length: heads }, (_, each) => each);
      for (const each of last) parts.push(drawn("circle", { cx: x(each), cy: y(row), r: row === layer ? 4 : 1.5 }));
    }
    for (const [side] of SIDES)
      for (const [from, number, value] of feeds[side]) {
        const bend = (y(from) + y(layer)) / 2;
        const path = `M${x(number)},${y(from)} C${x(number)},${bend} ${x(head)},${bend} ${x(head)},${y(layer)}`;
        const width = 0.75 + (5 * Math.abs(value)) / Math.max(Math.abs(all), Math.abs(value));
        parts.push(drawn("path", { class: `feeds-${side}`, d: path, "stroke-width": width.toFixed(2) }));
        parts.push(drawn("circle", { class: `feeds-${side}`, cx: x(number), cy: y(from), r: 3 }));
      }
    return drawn("svg", { viewBox: `0 0 ${WIDTH} ${height}`, "aria-hidden": "true" }, ...parts);
  }

  const listed = (feeds) =>
    feeds.map(([layer, head, value]) => `head ${layer}.${head} ${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`);

  // Of the chosen head, not of each that the pointer crosses: a kernel would work them all out.
  function update(head, { kind, layer, head: chosen }) {
    const isChosen = head.layer === layer && head.head === chosen;
    const why = isChosen ? source.whyOf?.(kind, layer, chosen) : null;
    const sides = SIDES.filter(([side]) => why?.feeds[side].length > 0);
    element.hidden = sides.length === 0;
    if (element.hidden) return;
    const said = sides.map(([side, name]) =>
      make("p", { class: `feeds-said-${side}` }, `Its ${name} are fed by ${listed(why.feeds[side]).join(", ")}.`),
    );
    const of = `How much each raises the scores where it looks, beyond chance, over this text: they are ${why.value.toFixed(2)} above the mean.`;
    element.replaceChildren(graph(head, why, source.heads(kind, layer)), make("figcaption", {}, ...said, makeNote(of)));
  }
  return { element, update };
}
