// The lines as a picture to be saved (base/save.js): tokens on show, heads on show, and of a pinned token its row or
// column alone.

import { quantityOf } from "../base/measures.js";
import { widthOf } from "../base/save.js";
import { arrived } from "../base/source.js";
import { lineLook, strongestLines } from "./lines.js";
import { largestOf } from "./weights.js";

const ROW = 22;
const SIZE = 13;
const BETWEEN = 220;
const MOST_LINES = 4000;
const FAINTEST = 0.002;

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
  const widest = (side, order) =>
    Math.min(260, Math.max(40, ...order.map((index) => widthOf(nameOf(side, index), SIZE))));
  const left = 16 + widest("query", shown.queries);
  const keyed = widest("key", shown.keys);
  const right = Math.max(left + 12 + BETWEEN, Math.ceil(widthOf(title, 14, true)) + 4 - keyed);
  const width = Math.ceil(right + 12 + keyed + 16);
  const top = heads.length > 1 ? 58 + 18 * Math.ceil(heads.length / 4) : 62;
  const rows = Math.max(shown.queries.length, shown.keys.length);
  const height = top + rows * ROW + 16;
  const [ink, soft] = [colours.of("--ink"), colours.of("--soft")];
  /** @type {any[]} */
  const shapes = [{ kind: "box", x: 0, y: 0, width, height, colour: colours.of("--card") }];
  const text = (x, y, said, options = {}) =>
    shapes.push({ kind: "text", x, y, text: said, size: SIZE, anchor: "start", colour: ink, ...options });
  text(16, 19, title, { size: 14, bold: true });
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
    text(x + 31, y - 4, name, { size: 11 });
  });
  text(left, top - 14, "query", { size: 10, anchor: "end", colour: colours.of("--query") });
  text(right + 12, top - 14, "key", { size: 10, colour: colours.of("--key") });
  const placeOf = (order) => new Map(order.map((index, i) => [index, top + (i + 0.5) * ROW]));
  const at = { query: placeOf(shown.queries), key: placeOf(shown.keys) };
  for (const head of heads) linesOf(head).forEach((line) => shapes.push(line));
  for (const side of ["query", "key"]) {
    for (const [index, y] of at[side]) {
      const pinned = on && on.side === side && index >= on.index && index <= (on.to ?? on.index);
      text(side === "query" ? left : right + 12, y, nameOf(side, index), {
        anchor: side === "query" ? "end" : "start",
        bold: pinned,
        colour: state.units(side).at(index).special ? soft : ink,
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
        from: [left + 6, at.query.get(query) + shift],
        to: [right + 6, at.key.get(key) + shift],
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
