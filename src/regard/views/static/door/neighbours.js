// A word's neighbours in two texts: the words of each by their cosine to it, the same words joined, and where two different
// words stand on average.

import { drawn, readable } from "../base/dom.js";

const NEAREST = 5; // words of each text
const LINE = 24; // pixels between two words, at least

/**
 * @param {import("../base/both.js").Both} both @param {import("../base/both.js").Pair} pair @param {number} width
 */
export function drawNeighbours(both, pair, width) {
  const all = pair.map((unit, side) => both.near(side, unit));
  const isNear = (side, first) => all[side].findIndex((each) => each.first === first) < NEAREST;
  const isShown = ({ first }, side) => {
    const there = both.partner(side, first);
    return isNear(side, first) || (there && isNear(1 - side, there.first));
  };
  const shown = all.map((some, side) => some.filter((each) => isShown(each, side)));
  const usual = both.apart === null ? [] : [1 - both.apart];
  const cosines = [...shown.flat().map(({ cosine }) => cosine), ...usual];
  const [least, most] = [Math.min(...cosines), Math.max(...cosines)];
  const height = 1.25 * LINE * (1 + Math.max(...shown.map(({ length }) => length)));
  const y = (cosine) => LINE + ((most - cosine) / (most - least || 1)) * (height - 2 * LINE);
  const x = [0.36, 0.64].map((part) => Math.round(part * width));
  const listed = (some) => some.map(({ text, cosine }) => `${text} ${cosine.toFixed(2)}`).join(", ");
  const said = shown.map((some, side) => `Nearest in sentence ${side + 1}: ${listed(some)}`).join(". ");
  const svg = drawn("svg", {
    viewBox: `0 0 ${width} ${height}`,
    width,
    class: "neighbours",
    role: "img",
    "aria-label": said,
  });
  const path = (name, d) => svg.append(drawn("path", { class: name, d }));
  for (const each of x) path("axis", `M${each} ${LINE / 2}V${height - LINE / 2}`);
  for (const each of usual) path("usual", `M${x[0] - 12} ${y(each)}H${x[1] + 12}`);
  for (const { first, cosine } of shown[0]) {
    const there = shown[1].find((each) => each.first === both.partner(0, first)?.first);
    if (there) path("joined", `M${x[0]} ${y(cosine)}L${x[1]} ${y(there.cosine)}`);
  }
  shown.forEach((some, side) => {
    const [out, anchor] = side === 0 ? [-1, "end"] : [1, "start"];
    const places = spread(some.map(({ cosine }) => y(cosine)));
    some.forEach(({ text, first, cosine }, i) => {
      const name = both.partner(side, first) ? null : "changed";
      path("leads", `M${x[side] + 5 * out} ${y(cosine)}L${x[side] + 22 * out} ${places[i]}`);
      const at = { x: x[side] + 26 * out, y: places[i] + 5, class: name, "text-anchor": anchor };
      svg.append(drawn("circle", { cx: x[side], cy: y(cosine), r: 4, class: name }), drawn("text", at, readable(text)));
    });
  });
  return svg;
}

// Places in order, none nearer than a line to the one before: what is too near is spread around its middle.
function spread(places) {
  const down = places.map((_, i) => Math.max(...places.slice(0, i + 1).map((each, at) => each + (i - at) * LINE)));
  const up = places.map((_, i) => Math.min(...places.slice(i).map((each, at) => each - at * LINE)));
  return down.map((each, i) => (each + up[i]) / 2);
}
