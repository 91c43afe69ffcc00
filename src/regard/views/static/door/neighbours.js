// A word's neighbours in two texts: the words of each by their cosine to it, the same words joined, and where two different
// words stand on average.

import { drawn, readable } from "../base/dom.js";

const NEAREST = 5; // words of each text
const HIGH = 30; // pixels between two words
const LINE = 24; // at least
const PAD = 22;

/**
 * @param {import("../base/both.js").Both} both @param {import("../base/both.js").Pair} pair @param {number} width
 */
export function drawNeighbours(both, pair, width) {
  const all = pair.map((unit, side) => both.near(side, unit));
  const isNear = (side, first) => all[side].findIndex((each) => each.first === first) < NEAREST;
  const isShown = (each, side) => {
    const there = both.partner(side, each.first);
    return isNear(side, each.first) || (there && isNear(1 - side, there.first));
  };
  const shown = all.map((some, side) => some.filter((each) => isShown(each, side)));
  const usual = both.apart === null ? [] : [1 - both.apart];
  const cosines = [...shown.flat().map(({ cosine }) => cosine), ...usual];
  const [least, most] = [Math.min(...cosines), Math.max(...cosines)];
  const height = HIGH * Math.max(...shown.map(({ length }) => length)) + 2 * PAD;
  const y = (cosine) => PAD + ((most - cosine) / (most - least || 1)) * (height - 2 * PAD);
  const x = [0.36, 0.64].map((part) => Math.round(part * width));
  const places = shown.map((some) =>
    spread(
      some.map(({ cosine }) => y(cosine)),
      height - PAD,
    ),
  );
  const svg = drawn("svg", {
    viewBox: `0 0 ${width} ${height}`,
    width,
    height,
    class: "neighbours",
    role: "img",
    "aria-label": shown.map((some, side) => `Nearest in sentence ${side + 1}: ${listed(some)}`).join(". "),
  });
  for (const each of x) svg.append(drawn("path", { class: "axis", d: `M${each} ${PAD / 2}V${height - PAD / 2}` }));
  for (const each of usual) svg.append(drawn("path", { class: "usual", d: `M${x[0] - 12} ${y(each)}H${x[1] + 12}` }));
  for (const each of shown[0]) {
    const there = shown[1].find(({ first }) => first === both.partner(0, each.first)?.first);
    if (there)
      svg.append(drawn("path", { class: "joined", d: `M${x[0]} ${y(each.cosine)}L${x[1]} ${y(there.cosine)}` }));
  }
  shown.forEach((some, side) => {
    const out = side === 0 ? -1 : 1;
    some.forEach(({ text, first, cosine }, i) => {
      const name = both.partner(side, first) ? null : "changed";
      const [at, to] = [y(cosine), places[side][i]];
      const attributes = { x: x[side] + 26 * out, y: to + 5, class: name, "text-anchor": side === 0 ? "end" : "start" };
      svg.append(
        drawn("path", { class: "leads", d: `M${x[side] + 5 * out} ${at}L${x[side] + 22 * out} ${to}` }),
        drawn("circle", { cx: x[side], cy: at, r: 4, class: name }, drawn("title", {}, cosine.toFixed(2))),
        drawn("text", attributes, readable(text), drawn("title", {}, cosine.toFixed(2))),
      );
    });
  });
  return svg;
}

const listed = (some) => some.map(({ text, cosine }) => `${text} ${cosine.toFixed(2)}`).join(", ");

// Places in order, none nearer than a line to the one before, and none below the end.
function spread(places, end) {
  const down = [];
  for (const each of places) down.push(Math.max(each, (down.at(-1) ?? -Infinity) + LINE));
  for (let i = down.length - 1; i >= 0; i -= 1) down[i] = Math.min(down[i], (down[i + 1] ?? end + LINE) - LINE);
  return down;
}
