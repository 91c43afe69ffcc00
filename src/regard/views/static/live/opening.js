// What a page opens on when its text is another one: the link that is strongest and most its own. Python's form, which
// says how, is views/_start.py.

import { Units } from "../base/units.js";
import LISTS from "../function_words.json";
import { softmax } from "./arithmetic.js";

const SCREEN = 48;
const MOST_WEIGHTS = 1 << 22;
const SHARED = 2 / 3;
const [WHOLE, PIECES, FUNCTION, MARK, SPECIAL] = [4, 3, 2, 1, 0];
const WANTED = [`${WHOLE}2`, `${PIECES}2`, `${PIECES}1`, `${FUNCTION}1`, `${MARK}1`, `${MARK}0`, `${SPECIAL}0`];
const BY_PLACE = ["previous", "next", "positional stride", "delimiter sink", "broadcast"];
const FUNCTION_WORDS = new Set(Object.values(LISTS).flatMap((list) => list.split(" ")));

/**
 * @param {import("./model.js").Description} description
 * @param {import("./tokenizer.js").Encoded} encoded
 * @param {import("./model.js").LayerRun[]} layers
 */
export function findStart({ causal, layers: scales }, { tokens, words }, layers) {
  const units = new Units(tokens, words, true).all;
  const ranks = units.map(rankOf);
  const heads = layers.flatMap((run, layer) => Array.from({ length: run.heads }, (_, head) => ({ run, layer, head })));
  const most = Math.min(SCREEN, Math.max(8, Math.floor(MOST_WEIGHTS / (heads.length * tokens.length))));
  const kind = causal ? "decoder" : "encoder";
  let found = { link: -Infinity, weight: 0, start: null };
  for (const [least, apart] of WANTED.map((each) => [...each].map(Number))) {
    const counted = units.flatMap((_, at) => (ranks[at] >= Math.min(least, MARK) ? [at] : []));
    const asked = counted.slice(0, most);
    const isLink = (query, key) =>
      Math.min(ranks[query], ranks[key]) >= least && Math.abs(query - key) >= apart && key <= asked[asked.length - 1];
    for (const { run, layer, head } of heads) {
      const rows = asked.map((at) => rowOf(run, head, scales[layer].scale, causal, units[at], units));
      const named = run.names[head].filter(({ name }) => BY_PLACE.includes(name)).map(({ effect }) => effect);
      const largest = rows.map((row) => Math.max(...counted.map((key) => row[key])));
      for (const key of counted) {
        const { first, last } = units[key];
        const seen = rows.filter((_, at) => !causal || key <= asked[at]).map((row) => row[key]);
        const mean = seen.reduce((sum, weight) => sum + weight, 0) / Math.max(1, seen.length);
        const favours = rows.filter((row, at) => row[key] > 0 && row[key] === largest[at]);
        asked.forEach((query, row) => {
          const weight = rows[row][key];
          const own = Math.sqrt(weight) * (weight - mean) * (1 - Math.max(0, ...named));
          const link = favours.length > SHARED * rows.length ? Math.min(own, 0) : own;
          const isBest = link > found.link || (link === found.link && weight > found.weight);
          if (!isBest || !isLink(query, key)) return;
          const cut = last > first || units[query].last > units[query].first ? { units: "words" } : {};
          found = { link, weight, start: { kind, layer, head, pin: units[query].first, key: first, ...cut } };
        });
      }
    }
    if (found.start) break;
  }
  return found.start;
}

function rankOf({ text, special, unknown, first, last }) {
  if (special) return SPECIAL;
  if (unknown || !/[\p{L}\p{N}]/u.test(text)) return MARK;
  if (FUNCTION_WORDS.has(text.trim().toLowerCase())) return FUNCTION;
  return first === last ? WHOLE : PIECES;
}

// What a word gives to each word: the mean of its pieces' rows, added up over the pieces of each.
function rowOf({ q, k, dim, heads }, head, scale, causal, { first, last }, units) {
  const tokens = q.length / heads / dim;
  const row = new Float64Array(tokens);
  const out = new Float64Array(units.length);
  for (let query = first; query <= last; query += 1) {
    const seen = causal ? query + 1 : tokens;
    const at = (head * tokens + query) * dim;
    row.fill(0, seen);
    for (let key = 0; key < seen; key += 1) {
      let sum = 0;
      for (let i = 0, of = (head * tokens + key) * dim; i < dim; i += 1) sum += q[at + i] * k[of + i];
      row[key] = sum * scale;
    }
    softmax(row, seen);
    units.forEach((each, place) => {
      for (let key = each.first; key <= each.last; key += 1) out[place] += row[key] / (last - first + 1);
    });
  }
  return out;
}
