// The paths of a word as a drawing: one scale for both axes, so that equal lengths are equal distances.

import { readable, SVG } from "../base/dom.js";

function drawn(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const MARGIN = { left: 46, right: 74, top: 34, bottom: 60 };

// Where points lie in a drawing of this size: (point) => [x, y], and how long a unit is.
function fitted(points, width, height) {
  const all = points.flat();
  const bounds = [0, 1].map((axis) => [Math.min(...all.map((p) => p[axis])), Math.max(...all.map((p) => p[axis]))]);
  const room = [width - MARGIN.left - MARGIN.right, height - MARGIN.top - MARGIN.bottom];
  const spans = bounds.map(([least, most]) => most - least);
  const unit = Math.min(...spans.map((span, axis) => (span > 0 ? room[axis] / span : Infinity)));
  const scale = Number.isFinite(unit) ? unit : 1;
  const middle = bounds.map(([least, most]) => (least + most) / 2);
  const centre = [MARGIN.left + room[0] / 2, MARGIN.top + room[1] / 2];
  return { unit: scale, at: ([x, y]) => [centre[0] + (x - middle[0]) * scale, centre[1] - (y - middle[1]) * scale] };
}

// A round length of about a fifth of the width: 1, 2 or 5 times a power of ten.
function roundLength(most) {
  const power = 10 ** Math.floor(Math.log10(most));
  return [5, 2, 1].map((each) => each * power).find((each) => each <= most) || power;
}

// facts: the movement; projection: of the way that is on; step: the last one that is drawn in full.
export function drawPaths({ facts, projection, step, colours, width, height }) {
  const { at, unit } = fitted(projection.points, width, height);
  const ink = colours.of("--ink");
  const soft = colours.of("--soft");
  const card = colours.of("--card");
  const svg = drawn("svg", {
    viewBox: `0 0 ${width} ${height}`,
    width,
    height,
    class: "paths",
    role: "img",
    "aria-label": described(facts, projection, step),
  });
  const taken = []; // where words and points stand already
  const apart = (box) => (other) =>
    box.x + box.w < other.x || other.x + other.w < box.x || box.y + box.h < other.y || other.y + other.h < box.y;
  const word = (x, y, text, options = {}) => {
    const size = options.size || 11;
    const box = {
      x: options.anchor === "middle" ? x - text.length * size * 0.29 : x,
      y: y - size,
      w: text.length * size * 0.58,
      h: size + 2,
    };
    if (!taken.every(apart(box)) && !options.always) return;
    taken.push(box);
    svg.append(
      drawn(
        "text",
        {
          x,
          y,
          "font-size": size,
          fill: options.fill || soft,
          "text-anchor": options.anchor || null,
          "font-weight": options.bold ? 650 : null,
          class: "halo",
        },
        text,
      ),
    );
  };

  const length = roundLength((width * 0.22) / unit);
  const [barX, barY] = [16, height - 30];
  svg.append(drawn("path", { d: `M${barX} ${barY - 4}v4h${length * unit}v-4`, stroke: soft, fill: "none" }));
  word(barX + length * unit + 8, barY + 2, `distance ${Number(length.toPrecision(1))}`, { always: true });
  const percent = (part) => `${(100 * part).toFixed(1)} %`;
  svg.append(
    drawn(
      "text",
      { x: 16, y: height - 10, "font-size": 12, fill: soft },
      projection.ends
        ? `→ ↑ how the words end up apart, ${percent(projection.share[0] + projection.share[1])} of the variance`
        : `→ the common way ${percent(projection.share[0])}\u2003↑ ${projection.apart === null ? "across it" : "what sets them apart"} ${percent(projection.share[1])}`,
    ),
  );

  const last = facts.steps.length - 1;
  const count = facts.texts.length;
  // What lies between the sentences at this step; of many sentences it would hide the paths.
  if (count <= 3) {
    for (let a = 0; a < count; a += 1) {
      for (let b = a + 1; b < count; b += 1) {
        const [[x, y], [toX, toY]] = [at(projection.points[a][step]), at(projection.points[b][step])];
        svg.append(
          drawn("path", { d: `M${x} ${y}L${toX} ${toY}`, stroke: soft, "stroke-dasharray": "2 3", fill: "none" }),
        );
        if (Math.hypot(toX - x, toY - y) > 30)
          word((x + toX) / 2, (y + toY) / 2 - 4, projection.true[step][a][b].toFixed(3), {
            anchor: "middle",
            fill: ink,
          });
      }
    }
  }
  for (let text = 0; text < count; text += 1) {
    const colour = colours.sentence(text);
    const places = projection.points[text].map(at);
    const line = (from, to) =>
      places
        .slice(from, to + 1)
        .map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(2)} ${y.toFixed(2)}`)
        .join("");
    const look = {
      fill: "none",
      stroke: colour,
      "stroke-width": 2,
      "stroke-linejoin": "round",
      "stroke-dasharray": colours.dashes(text).join(" ") || null,
    };
    if (step < last) svg.append(drawn("path", { ...look, d: line(step, last), opacity: 0.28 }));
    if (step > 0) svg.append(drawn("path", { ...look, d: line(0, step) }));
    places.forEach(([x, y], i) => {
      const point = drawn(
        "circle",
        {
          cx: x,
          cy: y,
          r: i === step ? 10 : 4,
          fill: i === step ? colour : card,
          stroke: colour,
          "stroke-width": 2,
          opacity: i > step ? 0.4 : 1,
          class: "point",
          "data-step": i,
          "data-text": text,
        },
        drawn("title", {}, `Sentence ${text + 1}, ${readable(facts.words[text])}, ${stepName(facts, i)}`),
      );
      svg.append(point);
      if (i === step)
        svg.append(
          drawn(
            "text",
            {
              x,
              y: y + 4,
              "font-size": 12,
              "font-weight": 700,
              fill: card,
              "text-anchor": "middle",
              "pointer-events": "none",
            },
            String(text + 1),
          ),
        );
    });
  }
  const ways = projection.points.map((points) => points.map(at));
  const traces = ways.flatMap(dotted);
  ways.forEach((places) => places.forEach(([x, y], i) => taken.push(around(x, y, i === step ? 11 : 5))));
  // The step that is on comes first. A step at which the sentences are in one place is named once.
  const named = [];
  const order = facts.steps.map((_, i) => i).sort((a, b) => Number(b === step) - Number(a === step) || a - b);
  for (const i of order) {
    for (const [text, places] of ways.entries()) {
      if (text > 0 && i !== step && !(projection.ends && i === last)) continue; // the steps of one path are enough
      const [x, y] = places[i];
      const name = projection.ends && i === last ? readable(facts.words[text]) : facts.steps[i]; // of different words
      if (named.some((other) => other.i === i && Math.hypot(other.x - x, other.y - y) < 12)) continue;
      const boxes = beside(x, y, i === step ? 14 : 7, 11 * 0.6 * name.length);
      const fits = boxes.filter(
        (box) =>
          box.x > 4 && box.x + box.w < width - 4 && box.y > 4 && box.y + box.h < height - 44 && taken.every(apart(box)),
      );
      const box = fits.find((each) => traces.every(apart(each))) || fits[0] || (i === step ? boxes[0] : null);
      if (!box) continue;
      named.push({ i, x, y });
      word(box.x, box.y + 11, name, { fill: i === step ? ink : soft, bold: i === step, always: true });
    }
  }
  return svg;
}

const around = (x, y, far) => ({ x: x - far, y: y - far, w: 2 * far, h: 2 * far });

// A path as small boxes, which words keep clear of.
function dotted(places) {
  return places.slice(1).flatMap(([toX, toY], i) => {
    const [x, y] = places[i];
    const count = Math.ceil(Math.hypot(toX - x, toY - y) / 6);
    return Array.from({ length: count }, (_, j) => around(x + ((toX - x) * j) / count, y + ((toY - y) * j) / count, 1));
  });
}

// Where a word of this length may stand beside a point, the best place first.
function beside(x, y, far, w) {
  const rows = [y - 18, y - 6, y + 5, y + 12, y - 26];
  const columns = [x + far, x - far - w, x - w / 2];
  return rows.flatMap((top) => columns.map((left) => ({ x: left, y: top, w, h: 13 })));
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
