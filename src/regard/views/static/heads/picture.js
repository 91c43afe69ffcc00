// The lines as a picture to be saved (base/save.js): tokens on show, heads on show, and of a pinned token its row or
// column alone.

import { quantityOf } from "../base/measures.js";
import { BESIDE, excerpt, heading, MARGIN, nameWidth, saidWidth, titleWidth } from "../base/save.js";
import { arrived } from "../base/source.js";
import DRAWING from "../drawing.json";
import { lineLook, strongestLines } from "./lines.js";
import { largestOf } from "./weights.js";

// views/_picture.py draws the same picture by the same rules.
const { row: ROW, size: SIZE, between: BETWEEN, top: TOP } = DRAWING.lines;
const AXIS = DRAWING.axis;
const FAINTEST = DRAWING.line.least;
const MOST_LINES = 4000;

function lines({ source, state, colours }, weights) {
  const { values } = state;
  const written = (side, order) => order.filter((index) => state.isWritten(side, index));
  const shown = { queries: written("query", state.shown().queries), keys: written("key", state.shown().keys) };
  // Of a pair each token says whose it is, by the letters of the page's choice.
  const of = (side, index) =>
    source.pair(values.kind) ? ([" (A)", " (B)"][state.units(side).at(index).sequence] ?? "") : "";
  const nameOf = (side, index) => state.units(side).name(index) + of(side, index);
  const { heads } = weights;
  const on = state.held();
  const drawn = values.what === "weights" ? "" : `, ${quantityOf(values.what).label.toLowerCase()}`;
  const where = `${weights.named()}${drawn}`;
  const title = `${source.facts.model}: ${where}`;
  const names = (side, order) => nameWidth(order.map((index) => nameOf(side, index)));
  const x = MARGIN + BESIDE + names("query", shown.queries);
  const keyed = names("key", shown.keys);
  const toX = Math.max(x + BETWEEN, titleWidth(title) - keyed - BESIDE - MARGIN);
  const floor = Math.max(values.least, FAINTEST);
  const full = values.largest === "own" ? "each row's largest" : weights.format(weights.fullest());
  const said = `A line for every ${quantityOf(values.what).one} from ${weights.short(floor * weights.full)} up; in full, ${full}.`;
  const width = Math.ceil(Math.max(toX + BESIDE + keyed + MARGIN, saidWidth(said)));
  const top = TOP + (heads.length > 1 ? 18 * Math.ceil(heads.length / 4) : 0);
  const rows = Math.max(shown.queries.length, shown.keys.length);
  const height = top + rows * ROW + MARGIN;
  const ink = colours.of("--ink");
  /** @type {any[]} */
  const shapes = [{ kind: "box", x: 0, y: 0, width, height, colour: colours.of("--card") }];
  const text = (x, y, said, options = {}) =>
    shapes.push({ kind: "text", x, y, text: said, size: SIZE, anchor: "start", colour: ink, ...options });
  shapes.push(...heading(title, said, colours));
  heads.forEach(({ name, place }, i) => {
    if (heads.length < 2) return;
    const [left, y] = [MARGIN + (i % 4) * ((width - 2 * MARGIN) / 4), 50 + 18 * Math.floor(i / 4)];
    shapes.push({
      kind: "line",
      from: [left, y],
      to: [left + 26, y],
      colour: colours.series(place),
      dashes: colours.dashes(place),
      width: 2.5,
      opacity: 1,
    });
    text(left + 31, y, name, { size: 11 });
  });
  text(x - BESIDE, top - AXIS.above, "query", { size: AXIS.size, anchor: "end", colour: colours.of("--query") });
  text(toX + BESIDE, top - AXIS.above, "key", { size: AXIS.size, colour: colours.of("--key") });
  const placeOf = (order) => new Map(order.map((index, i) => [index, top + (i + 0.5) * ROW]));
  const at = { query: placeOf(shown.queries), key: placeOf(shown.keys) };
  for (const head of heads) linesOf(head).forEach((line) => shapes.push(line));
  for (const side of ["query", "key"]) {
    for (const [index, y] of at[side]) {
      const pinned = on && on.side === side && index >= on.index && index <= (on.to ?? on.index);
      text(side === "query" ? x - BESIDE : toX + BESIDE, y, excerpt(nameOf(side, index)), {
        anchor: side === "query" ? "end" : "start",
        bold: pinned,
      });
    }
  }
  const name = weights.chosen.length > 1 ? "heads" : `layer-${values.layer}-head-${values.head}`;
  return { width, height, shapes, title, name };

  function look({ place }, weight, several) {
    const plain = weights.signed ? (weight < 0 ? "--less" : "--more") : on && on.side === "key" ? "--key" : "--query";
    const dashes = weights.signed ? (weight < 0 ? [6, 5] : []) : several ? colours.dashes(place) : [];
    return { colour: several ? colours.series(place) : colours.of(plain), dashes };
  }

  function linesOf(head) {
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
        from: [x, at.query.get(query) + shift],
        to: [toX, at.key.get(key) + shift],
        ...look(head, weight, several),
        ...lineLook(strength),
        said: several ? `${head.name} ${said}` : said,
        strength,
      });
    }
    return made.sort((a, b) => a.strength - b.strength);
  }
}

// A picture that lacks a row would be a wrong one: all of them are asked for first, and then waited for.
export async function linesSheet(page, weights) {
  const { source, state } = page;
  const whole = () => {
    const pin = state.held();
    const rows = weights.heads.flatMap((head) =>
      pin ? [weights.focused(head, pin)] : state.shown().queries.map((query) => weights.row(head, query)),
    );
    return rows.every(Boolean) || null;
  };
  await arrived(source, whole);
  return lines(page, weights);
}
