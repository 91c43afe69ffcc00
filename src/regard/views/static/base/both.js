// Two runs side by side, of texts that share words: which word stands for which, how far words end apart, and which word and
// which head a page of both opens on.

import { allHeads } from "./held.js";
import { partnersOf } from "./partners.js";
import { RANKS, rankOf } from "./ranks.js";
import { isRead, sharesOf } from "./shares.js";
import { Units } from "./units.js";

const SCREEN = 48; // words whose rows are asked, of a long text

/** @typedef {Units["all"][number]} Unit @typedef {[Unit, Unit]} Pair a word in the one text and in the other */

export class Both {
  /**
   * @param {import("./types").Source[]} sources
   * @param {(one: [number, Unit], other: [number, Unit]) => number | null} cosine of two words' contextual embeddings, each of one text
   * @param {number | null} apart 1 - cosine of two different words of one text, on average
   * @param {[number | null, number | null][] | null} places of the tokens that the page names, in each text; null for those of the first
   */
  constructor(sources, cosine, apart, places = null) {
    this.cosine = cosine;
    this.apart = apart;
    this.places = places;
    this.kind = sources[0].kinds[0];
    this.pages = sources.map((source) => {
      const units = { query: unitsOf(source, "query"), key: unitsOf(source, "key") };
      return { source, state: { units: (side) => units[side] } };
    });
    this.texts = sources.map(({ facts }) => facts.sides[this.kind].text);
    this.words = this.pages.map(({ state }) => state.units("query").all.filter(({ special }) => !special));
    const [one, other] = this.words;
    const [names, others] = this.words.map((words) => words.map(({ text }) => text));
    /** @type {Pair[]} */
    this.pairs = partnersOf(names, others).map(([a, b]) => [one[a], other[b]]);
  }

  partner(side, first) {
    return this.pairs.find((pair) => pair[side].first === first)?.[1 - side];
  }

  /** What stands in the place of a word in the other text: its partner, or as many words after the pair before it. */
  inPlaceOf(side, first) {
    const [words, others] = [this.words[side], this.words[1 - side]];
    const at = words.findIndex((each) => each.first === first);
    const isShared = (place) => place < 0 || place >= words.length || this.partner(side, words[place].first);
    let [back, ahead] = [at, at];
    while (!isShared(back)) back -= 1;
    while (!isShared(ahead)) ahead += 1;
    const there = (place) =>
      place < 0 ? -1 : place >= words.length ? others.length : others.indexOf(this.partner(side, words[place].first));
    return ahead - back === there(ahead) - there(back) ? others[there(back) + at - back] : undefined;
  }

  /** The words of one text that the other has not. @param {number} side */
  changed(side) {
    return this.words[side].filter(({ first, text }) => isRead(text) && !this.partner(side, first));
  }

  /** A pair by a token that the page names. @param {number} token */
  pairAt(token) {
    const at = this.places ? (this.places[token] ?? []) : [token];
    return this.pairs.find((pair) =>
      pair.some(({ first, last }, i) => at[i] != null && first <= at[i] && at[i] <= last),
    );
  }

  tokenOf([one, other]) {
    const isAt = ([a, b]) => a === one.first || (a === null && b === other.first);
    return this.places ? this.places.findIndex(isAt) : one.first;
  }

  moved(pair) {
    const cosine = this.cosine([0, pair[0]], [1, pair[1]]);
    return cosine === null ? null : 1 - cosine;
  }

  /** The other words of a text, those nearest to one first. @param {number} side @param {Unit} unit */
  near(side, unit) {
    const others = this.words[side].filter(({ first, text }) => first !== unit.first && isRead(text));
    const found = others.map((each) => ({ ...each, cosine: this.cosine([side, unit], [side, each]) }));
    return found.filter(({ cosine }) => cosine !== null).sort((a, b) => b.cosine - a.cosine);
  }

  /**
   * What a page opens on: the word that moves most, of those that say most, and the head in which its own links of both texts
   * together are strongest: chosen by what it does, and not by how much that changes.
   * @param {{ about?: string, among?: string[] }} [ready] what it is about, and may look at, where that is known
   */
  start({ about, among } = {}) {
    const says = ([{ text }, other]) => (text === about ? RANKS.whole : Math.min(rankOf(other), RANKS.pieces));
    const most = Math.max(...this.pairs.map(says));
    const some = this.pairs.filter((each) => says(each) === most);
    const pair = some.reduce((best, each) => (this.moved(each) > this.moved(best) ? each : best));
    let best = { link: -1, layer: 0, head: 0 };
    for (const { layer, head } of allHeads(this.pages[0].source, this.kind)) {
      if (!this.pages.every(({ source }) => source.holds(this.kind, layer, head))) continue;
      const link = pair.reduce((sum, word, side) => sum + this.link(side, word, { layer, head }, among), 0);
      if (link > best.link) best = { link, layer, head };
    }
    return { kind: this.kind, layer: best.layer, head: best.head, pin: this.tokenOf(pair) };
  }

  // How strong the strongest link of a word is, and how much more than others give the same key, and at the same distance.
  link(side, unit, { layer, head }, among) {
    const { [side]: page } = this.pages;
    const words = this.words[side];
    const at = words.indexOf(unit);
    const from = Math.max(0, Math.min(at - SCREEN / 2, words.length - SCREEN));
    const some = words.slice(from, from + SCREEN);
    const rows = some.map(({ first }) => sharesOf(page, { kind: this.kind, layer, head }, first));
    const own = at - from;
    const says = (each) => (among ? among.includes(each.text) : rankOf(each) >= RANKS.pieces);
    const usual = (keyOf) => {
      const cells = rows.flatMap((row, i) => (i === own || !keyOf(i) ? [] : [row[keyOf(i).first]]));
      return cells.reduce((sum, each) => sum + each / cells.length, 0);
    };
    const links = some.map((key, j) => {
      if (key === unit || !says(key)) return 0;
      const share = rows[own][key.first];
      return (
        Math.sqrt(share) *
        (share -
          Math.max(
            usual(() => key),
            usual((i) => some[i + j - own]),
          ))
      );
    });
    return Math.max(...links);
  }
}

function unitsOf(source, side) {
  const [kind] = source.kinds;
  return new Units(source.tokens(kind, side), source.words(kind, side), true);
}

/** Both runs of a file of two texts that share words; undefined of others. @param {any} source */
export function bothOf(source) {
  const { compares, merged, facts } = source;
  const { between = "", near, apart, kinds } = (compares && facts.compared) ?? {};
  const sides = (compares ?? []).map((run) => Object.values(run.facts.sides).filter(Boolean));
  const isPlain = sides.every((all) => all.length === 1 && all[0].text && all[0].pair === null);
  const [kind, ...others] = Object.keys(kinds ?? {});
  if (between !== "texts" || !near || others.length > 0 || !isPlain) return undefined;
  if (!compares.every((run) => run.computed(kind))) return undefined;
  const word = ([side, { first }]) => compares[side].tokens(kind, "query")[first].word;
  const number = (one) => (one[0] === 0 ? 0 : sides[0][0].words.length) + word(one);
  const cosine = (one, other) => (word(one) === null || word(other) === null ? null : near[number(one)][number(other)]);
  const alone = (run) => source.tokens(kind, "query").map((_, at) => (run === 0 ? [at, null] : [null, at]));
  const places = merged ? merged[kind].query.places : alone(compares.indexOf(source));
  const both = new Both(compares, cosine, apart, places);
  return both.pairs.some(([{ text }]) => isRead(text)) ? both : undefined;
}
