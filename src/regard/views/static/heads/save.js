// The picture that is on show, as an SVG or PNG file: tokens on show, heads on show, and of a pinned token its row or
// column alone. Drawn once as a list of shapes, which become one or the other.

import { make, SVG } from "../base/dom.js";
import { quantityOf } from "../base/measures.js";
import { arrived } from "../base/source.js";
import { chosenHeads } from "./choice.js";
import { strongestLines } from "./lines.js";
import { largestOf } from "./weights.js";

const FONTS = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', 'Noto Sans', sans-serif";
const ROW = 22;
const SIZE = 13;
const BETWEEN = 220;
const MOST_LINES = 4000;
const FAINTEST = 0.002;
const MOST_PIXELS = 16000; // of a canvas, in height

// [{ kind: "text" | "line" | "box", ... }] with the size of the sheet.
function picture({ source, state, colours }, weights) {
  const { values } = state;
  const written = (side, order) => order.filter((index) => state.isWritten(side, index));
  const shown = { queries: written("query", state.shown().queries), keys: written("key", state.shown().keys) };
  // Of a pair each token says whose it is, by the letters of the page's choice.
  const of = (side, index) =>
    source.pair(values.kind) ? ([" (A)", " (B)"][state.units(side).at(index).sequence] ?? "") : "";
  const nameOf = (side, index) => state.units(side).name(index) + of(side, index);
  const heads = chosenHeads(values);
  const on = state.held();
  const pen = make("canvas").getContext("2d");
  pen.font = `${SIZE}px ${FONTS}`;
  const widest = (side, order) =>
    Math.min(260, Math.max(40, ...order.map((index) => pen.measureText(nameOf(side, index)).width)));
  const left = 16 + widest("query", shown.queries);
  const right = left + 12 + BETWEEN;
  const width = Math.ceil(right + 12 + widest("key", shown.keys) + 16);
  const top = heads.length > 1 ? 58 + 18 * Math.ceil(heads.length / 4) : 62;
  const rows = Math.max(shown.queries.length, shown.keys.length);
  const height = top + rows * ROW + 16;
  const [ink, soft] = [colours.of("--ink"), colours.of("--soft")];
  /** @type {any[]} */
  const shapes = [{ kind: "box", x: 0, y: 0, width, height, colour: colours.of("--card") }];
  const text = (x, y, said, options = {}) =>
    shapes.push({ kind: "text", x, y, text: said, size: SIZE, anchor: "start", colour: ink, ...options });
  const drawn = values.what === "weights" ? "" : `, ${quantityOf(values.what).label.toLowerCase()}`;
  const where = (heads.length > 1 ? `${heads.length} heads` : `layer ${values.layer}, head ${values.head}`) + drawn;
  text(16, 24, `${source.facts.model}: ${where}`, { size: 14, bold: true });
  heads.forEach(({ name, place }, i) => {
    if (heads.length < 2) return;
    const [x, y] = [16 + (i % 4) * ((width - 32) / 4), 42 + 18 * Math.floor(i / 4)];
    shapes.push({
      kind: "line",
      from: [x, y - 4],
      to: [x + 26, y - 4],
      colour: colours.series(place),
      dashes: colours.dashes(place),
      width: 2.5,
      opacity: 1,
    });
    text(x + 31, y, name, { size: 11 });
  });
  text(left, top - 10, "query", { size: 10, anchor: "end", colour: colours.of("--query") });
  text(right + 12, top - 10, "key", { size: 10, colour: colours.of("--key") });
  const placeOf = (order) => new Map(order.map((index, i) => [index, top + (i + 0.5) * ROW]));
  const at = { query: placeOf(shown.queries), key: placeOf(shown.keys) };
  for (const head of heads) lines(head).forEach((line) => shapes.push(line));
  for (const side of ["query", "key"]) {
    for (const [index, y] of at[side]) {
      const pinned = on && on.side === side && index >= on.index && index <= (on.to ?? on.index);
      text(side === "query" ? left : right + 12, y + 0.35 * SIZE, nameOf(side, index), {
        anchor: side === "query" ? "end" : "start",
        bold: pinned,
        colour: state.units(side).at(index).special ? soft : ink,
      });
    }
  }
  return { width, height, shapes, title: `${source.facts.model}: ${where}` };

  function look({ place }, weight, several) {
    const plain = weights.signed ? (weight < 0 ? "--less" : "--more") : on && on.side === "key" ? "--key" : "--query";
    const dashes = weights.signed ? (weight < 0 ? [6, 5] : []) : several ? colours.dashes(place) : [];
    return { colour: several ? colours.series(place) : colours.of(plain), dashes };
  }

  function lines(head) {
    const several = heads.length > 1;
    const shift = several ? (head.place - (heads.length - 1) / 2) * Math.min(3, 14 / heads.length) : 0;
    const found = []; // query, key, strength; the weight beside it
    const told = new Map();
    const add = (query, key, weight, largest) => {
      if (weight === 0 || weights.share(weight) < Math.max(FAINTEST, values.least)) return;
      found.push(query, key, weights.strength(weight, largest));
      told.set(`${query}.${key}`, weight);
    };
    if (on) {
      const series = weights.focused(head, on);
      const [side, order] = on.side === "query" ? ["key", shown.keys] : ["query", shown.queries];
      const largest = series ? largestOf(series, order) : 0;
      for (const index of series ? order : [])
        add(side === "key" ? on.index : index, side === "key" ? index : on.index, series[index], largest);
    } else {
      for (const query of shown.queries) {
        const row = weights.row(head, query);
        const largest = row ? largestOf(row, shown.keys) : 0;
        for (const key of row ? shown.keys : []) add(query, key, row[key], largest);
      }
    }
    const kept = strongestLines(found, Math.ceil(MOST_LINES / heads.length)).lines;
    const made = [];
    for (let i = 0; i < kept.length; i += 3) {
      const [query, key, strength] = kept.slice(i, i + 3);
      const weight = told.get(`${query}.${key}`);
      const said = `${nameOf("query", query)} → ${nameOf("key", key)}: ${weights.format(weight)}`;
      made.push({
        kind: "line",
        bent: true,
        from: [left + 6, at.query.get(query) + shift],
        to: [right + 6, at.key.get(key) + shift],
        ...look(head, weight, several),
        width: 0.6 + 3.4 * strength,
        opacity: 0.06 + 0.94 * strength ** 0.65,
        said: several ? `${head.name} ${said}` : said,
        strength,
      });
    }
    return made.sort((a, b) => a.strength - b.strength);
  }
}

// XML cannot hold these, and a lone surrogate is no character.
const clean = (text) => text.toWellFormed().replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd");

function svgText({ width, height, shapes, title }) {
  const make = (tag, attributes, ...children) => {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes))
      if (value !== null) element.setAttribute(name, String(value));
    element.append(...children);
    return element;
  };
  const named = (said) => (said ? [make("title", {}, clean(said))] : []);
  const round = (value) => Number(value.toFixed(3));
  const root = make(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "font-family": FONTS },
    ...named(title),
  );
  for (const shape of shapes) {
    if (shape.kind === "box")
      root.append(
        make("rect", { x: shape.x, y: shape.y, width: shape.width, height: shape.height, fill: shape.colour }),
      );
    else if (shape.kind === "text") {
      root.append(
        make(
          "text",
          {
            x: round(shape.x),
            y: round(shape.y),
            "font-size": shape.size,
            fill: shape.colour,
            "text-anchor": shape.anchor,
            "font-weight": shape.bold ? 600 : null,
          },
          clean(shape.text),
        ),
      );
    } else {
      const [[x, y], [toX, toY], middle] = [
        shape.from.map(round),
        shape.to.map(round),
        round((shape.from[0] + shape.to[0]) / 2),
      ];
      const d = shape.bent ? `M${x} ${y}C${middle} ${y} ${middle} ${toY} ${toX} ${toY}` : `M${x} ${y}L${toX} ${toY}`;
      root.append(
        make(
          "path",
          {
            d,
            fill: "none",
            stroke: shape.colour,
            "stroke-width": round(shape.width),
            "stroke-opacity": round(shape.opacity),
            "stroke-dasharray": shape.dashes.join(" ") || null,
          },
          ...named(shape.said),
        ),
      );
    }
  }
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(root)}\n`;
}

function drawCanvas({ width, height, shapes }) {
  const ratio = Math.min(2, MOST_PIXELS / height);
  const canvas = make("canvas", { width: Math.round(width * ratio), height: Math.round(height * ratio) });
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  for (const shape of shapes) {
    pen.globalAlpha = shape.opacity ?? 1;
    pen.fillStyle = pen.strokeStyle = shape.colour;
    if (shape.kind === "box") pen.fillRect(shape.x, shape.y, shape.width, shape.height);
    else if (shape.kind === "text") {
      pen.font = `${shape.bold ? "600 " : ""}${shape.size}px ${FONTS}`;
      pen.textAlign = shape.anchor === "end" ? "right" : "left";
      pen.fillText(shape.text, shape.x, shape.y);
    } else {
      const [[x, y], [toX, toY]] = [shape.from, shape.to];
      pen.lineWidth = shape.width;
      pen.setLineDash(shape.dashes);
      pen.beginPath();
      pen.moveTo(x, y);
      if (shape.bent) pen.bezierCurveTo((x + toX) / 2, y, (x + toX) / 2, toY, toX, toY);
      else pen.lineTo(toX, toY);
      pen.stroke();
    }
  }
  return canvas;
}

function download(blob, name) {
  const address = URL.createObjectURL(blob);
  const link = make("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 20000);
}

// Two buttons. What they save is what is on show, in the theme that is on.
export function makeSave(page, weights) {
  const nameOf = (ending) => {
    const { values } = page.state;
    return chosenHeads(values).length > 1 ? `heads.${ending}` : `layer-${values.layer}-head-${values.head}.${ending}`;
  };
  // A picture that lacks a row would be a wrong one: all of them are asked for first, and then waited for.
  const { source } = page;
  const whole = () => {
    const pin = page.state.held();
    const rows = chosenHeads(page.state.values).flatMap((head) =>
      pin ? [weights.focused(head, pin)] : page.state.shown().queries.map((query) => weights.row(head, query)),
    );
    return rows.every(Boolean) || null;
  };
  const button = (label, said, act) => {
    const element = make("button", { type: "button", class: "button", "aria-label": said, title: said }, label);
    element.addEventListener("click", () => arrived(source, whole).then(act));
    return element;
  };
  return make(
    "span",
    { class: "saves" },
    button("SVG", "Save the picture as SVG", () =>
      download(new Blob([svgText(picture(page, weights))], { type: "image/svg+xml" }), nameOf("svg")),
    ),
    button("PNG", "Save the picture as PNG", () =>
      drawCanvas(picture(page, weights)).toBlob((blob) => blob && download(blob, nameOf("png")), "image/png"),
    ),
  );
}
