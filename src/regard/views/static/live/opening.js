// What a page opens on when its text is another one: the link that is strongest and most its own. Python's form, which
// says how, is views/_start.py.

import { RANKS } from "../base/ranks.js";

const SCREEN = 48;
const MOST_WEIGHTS = 1 << 22;
const SHARED = 2 / 3;
// How much two words have to say, and how far apart they have to be: the first of these that leaves a link.
const WANTED = [
  [RANKS.whole, 2],
  [RANKS.pieces, 2],
  [RANKS.pieces, 1],
  [RANKS.function, 1],
  [RANKS.mark, 1],
  [RANKS.mark, 0],
  [RANKS.special, 0],
];
const BY_PLACE = ["previous", "next", "positional stride", "delimiter sink", "broadcast"];

/** @typedef {{ link: number, weight: number, start: Record<string, any> }} Found */

export class Opening {
  /**
   * @param {boolean} causal
   * @param {number} heads of all layers
   * @param {{ units: number[], ranks: number[], about?: number[], among?: number[] }} text the word of each token, and
   *   how much each word says; the words that the link is sought from, and to, where not any will do
   * @param {Found | null} [found] the best link of the heads before
   */
  constructor(causal, heads, { units, ranks, about = [], among = [] }, found = null) {
    this.found = found;
    this.causal = causal;
    this.tokens = units.length;
    this.ranks = ranks;
    this.firsts = ranks.map((_, unit) => units.indexOf(unit));
    this.ends = ranks.map((_, unit) => units.lastIndexOf(unit) + 1);
    const most = Math.min(SCREEN, Math.max(8, Math.floor(MOST_WEIGHTS / (heads * units.length))));
    /** @type {number[]} the words whose rows are asked, the words that count, and the pairs that may be a link */
    [this.asked, this.counted, this.links] = [[], [], []];
    for (const [least, apart] of WANTED) {
      this.counted = ranks.flatMap((rank, at) => (rank >= Math.min(least, RANKS.mark) ? [at] : []));
      this.asked = this.counted.slice(0, most);
      const says = (/** @type {number} */ unit) => ranks[unit] >= least;
      // In a decoder attention rests on the first word.
      const isTold = (/** @type {number} */ unit) => says(unit) && !(causal && unit === 0 && least > RANKS.function);
      const linked = (/** @type {(unit: number) => boolean} */ isFrom, /** @type {(unit: number) => boolean} */ isTo) =>
        this.asked.flatMap((query, row) =>
          this.asked.flatMap((key) =>
            isFrom(query) && isTo(key) && (causal ? query - key : Math.abs(query - key)) >= apart
              ? [row * ranks.length + key]
              : [],
          ),
        );
      const isAbout = (/** @type {number} */ query) => about.includes(query);
      const isSought = among.length > 0 ? (/** @type {number} */ key) => among.includes(key) : isTold;
      // However far from its word they are, if there are any.
      const hasOwn = this.asked.some(isAbout) && this.asked.some(isSought);
      this.links = hasOwn ? linked(isAbout, isSought) : linked(says, isTold);
      if (this.links.length > 0) break;
    }
    this.seen = ranks.map((_, key) => (causal ? this.asked.filter((query) => key <= query) : this.asked).length);
    this.rows = new Float64Array(this.asked.length * ranks.length);
  }

  /**
   * Looks for a better link in a head.
   * @param {number} layer @param {number} head
   * @param {Float64Array} weights row by row @param {import("./naming.js").Name[]} names what the head does
   */
  look(layer, head, weights, names) {
    const { asked, counted, links, rows, ranks } = this;
    this.read(weights);
    const own = 1 - Math.max(0, ...names.filter(({ name }) => BY_PLACE.includes(name)).map(({ effect }) => effect));
    let strongest = 0;
    for (const at of links) if (rows[at] > strongest) strongest = rows[at];
    if (this.found && Math.sqrt(strongest) * strongest * own < this.found.link) return; // no link of it can be
    const sums = new Float64Array(ranks.length);
    const favours = new Int32Array(ranks.length);
    for (let row = 0; row < rows.length; row += ranks.length) {
      let largest = 0;
      for (const key of counted) largest = Math.max(largest, rows[row + key]);
      for (const key of counted) {
        sums[key] += rows[row + key];
        if (rows[row + key] > 0 && rows[row + key] === largest) favours[key] += 1;
      }
    }
    for (const at of links) {
      const [query, key] = [asked[Math.floor(at / ranks.length)], at % ranks.length];
      const weight = rows[at];
      const link = Math.sqrt(weight) * (weight - sums[key] / this.seen[key]) * own;
      this.take(favours[key] > SHARED * asked.length ? Math.min(link, 0) : link, weight, { layer, head, query, key });
    }
  }

  /** @param {number} link @param {number} weight @param {{ layer: number, head: number, query: number, key: number }} of */
  take(link, weight, { layer, head, query, key }) {
    const { found, firsts, ends } = this;
    if (found && (link < found.link || (link === found.link && weight <= found.weight))) return;
    const isWhole = [query, key].every((unit) => ends[unit] - firsts[unit] === 1);
    const start = { kind: this.causal ? "decoder" : "encoder", layer, head, pin: firsts[query], key: firsts[key] };
    this.found = { link, weight, start: isWhole ? start : { ...start, units: "words" } };
  }

  // What each word that is asked gives to each word: the mean of its pieces' rows, added up over the pieces of each.
  /** @param {Float64Array} weights */
  read(weights) {
    const { tokens, firsts, ends, rows } = this;
    rows.fill(0);
    let to = 0;
    for (const unit of this.asked) {
      const pieces = ends[unit] - firsts[unit];
      for (let key = 0; key < firsts.length; key += 1, to += 1) {
        for (let query = firsts[unit]; query < ends[unit]; query += 1)
          for (let at = firsts[key]; at < ends[key]; at += 1) rows[to] += weights[query * tokens + at] / pieces;
      }
    }
  }
}
