// The paths of a word as a drawing: one scale for both axes, so that equal lengths are equal distances.

import { drawn } from "../base/dom.js";
import { widthOf } from "../base/save.js";
import { endNames } from "./names.js";
import { SIZE, Words } from "./words.js";

const MARGIN = { left: 46, top: 34, bottom: 60 };

// Where points lie in a drawing of this size, to one scale: (point) => [x, y], and how long a unit is.
export function fitted(points, width, height, { left, right, top, bottom }) {
  const end = (axis, least) => points.map((point) => point[axis]).reduce((a, b) => least(a, b));
  const bounds = [0, 1].map((axis) => [end(axis, Math.min), end(axis, Math.max)]);
  const room = [width - left - right, height - top - bottom];
  const spans = bounds.map(([least, most]) => most - least);
  const unit = Math.min(...spans.map((span, axis) => (span > 0 ? room[axis] / span : Infinity)));
  const scale = Number.isFinite(unit) ? unit : 1;
  const middle = bounds.map(([least, most]) => (least + most) / 2);
  const centre = [left + room[0] / 2, top + room[1] / 2];
  return { unit: scale, at: ([x, y]) => [centre[0] + (x - middle[0]) * scale, centre[1] - (y - middle[1]) * scale] };
}

// A round length of about a fifth of the width: 1, 2 or 5 times a power of ten.
function roundLength(most) {
  const power = 10 ** Math.floor(Math.log10(most));
  return [5, 2, 1].map((each) => each * power).find((each) => each <= most) || power;
}

// facts: the movement; projection: of the way that is on; step: the last one that is drawn in full.
export function drawPaths({ facts, projection, step, colours, width, height }) {
  const last = facts.steps.length - 1;
  const names = endNames(facts, projection.ends, Math.max(12, Math.min(26, width / 26)));
  const widest = Math.max(...names.map((name) => widthOf(name, SIZE, true)));
  const margins = { ...MARGIN, right: Math.min(widest + 34, width * 0.4) };
  const { at, unit } = fitted(projection.points.flat(), width, height, margins);
  const ways = projection.points.map((points) => points.map(at));
  const [ink, soft, card] = ["--ink", "--soft", "--card"].map((name) => colours.of(name));
  const svg = drawn("svg", {
    viewBox: `0 0 ${width} ${height}`,
    width,
    height,
    class: "paths",
    role: "img",
    "aria-label": described(facts, projection, step),
  });
  drawGaps(svg, ways, step, soft);
  ways.forEach((places, text) =>
    drawWay(
      svg,
      places,
      { step, card, ...lookOf(colours, text) },
      (i) => `Sentence ${text + 1}, ${names[text]}, ${stepName(facts, i)}`,
    ),
  );

  const words = new Words(svg, { width, height: height - 44 });
  ways.forEach((places) => words.keepClear(places, step));
  ways.forEach((places, text) => words.beside(places[last], names[text], { fill: ink, bold: true, needed: true }));
  pairsOf(ways, step).forEach(([a, b, from, to]) =>
    words.between(from, to, projection.true[step][a][b].toFixed(3), { fill: ink }),
  );
  // A step is named at one path, the one that is on first; the last is where the words stand.
  const others = facts.steps.map((_, i) => i).filter((i) => i !== step && i !== last);
  for (const i of [step, ...others])
    ways.some((places) => words.beside(places[i], facts.steps[i], { fill: i === step ? ink : soft, bold: i === step }));
  drawScale(svg, { projection, unit, width, height, soft });
  return svg;
}

const lookOf = (colours, text) => ({ colour: colours.sentence(text), dashes: colours.dashes(text).join(" ") || null });

// The sentences at a step two by two, [a, b, where one is, where the other]; of many the lines would hide the paths.
function pairsOf(ways, step) {
  if (ways.length > 3) return [];
  return ways.flatMap((one, a) => ways.slice(a + 1).map((other, i) => [a, a + 1 + i, one[step], other[step]]));
}

function drawGaps(svg, ways, step, soft) {
  for (const [, , [x, y], [toX, toY]] of pairsOf(ways, step))
    svg.append(drawn("path", { d: `M${x} ${y}L${toX} ${toY}`, stroke: soft, "stroke-dasharray": "2 3", fill: "none" }));
}

// A path with its points: up to the step that is on in full, then faint. said(i): what a point is.
function drawWay(svg, places, { step, colour, dashes, card }, said) {
  const line = (some) => some.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(2)} ${y.toFixed(2)}`).join("");
  const look = {
    fill: "none",
    stroke: colour,
    "stroke-width": 2,
    "stroke-linejoin": "round",
    "stroke-dasharray": dashes,
  };
  if (step < places.length - 1) svg.append(drawn("path", { ...look, d: line(places.slice(step)), opacity: 0.28 }));
  if (step > 0) svg.append(drawn("path", { ...look, d: line(places.slice(0, step + 1)) }));
  places.forEach(([x, y], i) => {
    const point = {
      cx: x,
      cy: y,
      r: i === step ? 7 : 4,
      fill: i === step ? colour : card,
      stroke: colour,
      "stroke-width": 2,
      opacity: i > step ? 0.4 : 1,
      class: "point",
      "data-step": i,
    };
    svg.append(drawn("circle", point, drawn("title", {}, said(i))));
  });
}

// How long a distance is drawn, and what the two directions are; in a narrow drawing in two lines.
function drawScale(svg, { projection, unit, width, height, soft }) {
  const percent = (part) => `${(100 * part).toFixed(1)} %`;
  const [across, up] = projection.share;
  const parts = projection.ends
    ? ["→ ↑ how the words end up apart:", `${percent(across + up)} of the variance`]
    : [
        `→ the common way ${percent(across)}`,
        `↑ ${projection.apart === null ? "across it" : "what sets them apart"} ${percent(up)}`,
      ];
  const whole = parts.join(projection.ends ? " " : "\u2003");
  const lines = widthOf(whole, 12) < width - 32 ? [whole] : parts;
  const text = (x, y, said) => drawn("text", { x, y, "font-size": SIZE, fill: soft, class: "halo" }, said);
  lines.forEach((line, i) => svg.append(text(16, height - 10 - 15 * (lines.length - 1 - i), line)));
  const length = roundLength((width * 0.22) / unit);
  const y = height - 15 - 15 * lines.length;
  svg.append(
    drawn("path", { d: `M16 ${y - 4}v4h${length * unit}v-4`, stroke: soft, fill: "none" }),
    text(24 + length * unit, y + 2, `distance ${Number(length.toPrecision(1))}`),
  );
}

// "the learned embedding", "layer 3".
export function stepName(facts, step) {
  const name = facts.steps[step];
  if (name === "learned") return "learned embedding";
  if (name === "position") return "with its position, as layer 0 reads it";
  return `embedding layer ${name}`;
}

function described(facts, projection, step) {
  const way = `The paths of ${facts.texts.length} sentences' words through ${facts.steps.length} steps, projected to two axes. Step ${step}, ${stepName(facts, step)}`;
  if (facts.texts.length !== 2) return `${way}. The table has the distances.`;
  return `${way}: distance between the two ${projection.true[step][0][1].toFixed(3)}.`;
}
