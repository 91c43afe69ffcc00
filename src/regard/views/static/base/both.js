// Two runs side by side, of texts that share words: which word stands for which, how far words end apart, and which word and
// which head a page of both opens on.

import { allHeads } from "./held.js";
import { partnersOf } from "./partners.js";
import { RANKS, rankOf } from "./ranks.js";
import { rowOf } from "./said.js";
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
      const of = (side) => new Units(source.tokens(this.kind, side), source.words(this.kind, side), true);
      const units = { query: of("query"), key: of("key") };
      return { source, state: { units: (side) => units[side] } };
    });
    this.words = this.pages.map(({ state }) => state.units("query").all.filter(({ special }) => !special));
    const [names, others] = this.words.map((words) => words.map(({ text }) => text));
    /** @type {Pair[]} */
    this.pairs = partnersOf(names, others).map(([a, b]) => [this.words[0][a], this.words[1][b]]);
  }

  /** The heads of which both have rows. */
  get heads() {
    const isHeld = ({ layer, head }) => this.pages.every(({ source }) => source.holds(this.kind, layer, head));
    return allHeads(this.pages[0].source, this.kind).filter(isHeld);
  }

  /** A word's row in each text, see rowOf. @param {Pair} pair */
  rows(pair, { layer, head }) {
    return this.pages.map((page, side) => rowOf(page, { kind: this.kind, layer, head }, pair[side].first));
  }

  partner(side, first) {
    return this.pairs.find((pair) => pair[side].first === first)?.[1 - side];
  }

  /** What stands in the place of a word in the other text: its partner, or as many words after the pair before it. */
  inPlaceOf(side, first) {
    const [words, others] = [this.words[side], this.words[1 - side]];
    const before = this.pairs.findLast((pair) => pair[side].first <= first);
    const after = this.pairs.find((pair) => pair[side].first >= first);
    const [from, there] = before ? [words.indexOf(before[side]), others.indexOf(before[1 - side])] : [-1, -1];
    const [to, end] = after
      ? [words.indexOf(after[side]), others.indexOf(after[1 - side])]
      : [words.length, others.length];
    const at = words.findIndex((each) => each.first === first);
    return to - from === end - there ? others[there + at - from] : undefined;
  }

  /** The words of one text that the other has not. @param {number} side */
  changed(side) {
    return this.words[side].filter(({ first, text }) => isRead(text) && !this.partner(side, first));
  }

  /** A pair by a token that the page names. @param {number} token */
  pairAt(token) {
    const at = this.places ? (this.places[token] ?? []) : [token];
    const isAt = ({ first, last }, i) => at[i] != null && first <= at[i] && at[i] <= last;
    return this.pairs.find((pair) => pair.some(isAt));
  }

  tokenOf([one, other]) {
    const isAt = ([a, b]) => a === one.first || (a === null && b === other.first);
    return this.places ? this.places.findIndex(isAt) : one.first;
  }

  /** How far a word ends from itself. @param {Pair} pair */
  moved(pair) {
    return 1 - (this.cosine([0, pair[0]], [1, pair[1]]) ?? 1);
  }

  /** The other words of a text, those nearest to one first. @param {number} side @param {Unit} unit */
  near(side, unit) {
    const others = this.words[side].filter(({ first, text }) => first !== unit.first && isRead(text));
    const found = others.map((each) => ({ ...each, cosine: this.cosine([side, unit], [side, each]) }));
    return found.filter(({ cosine }) => cosine !== null).sort((a, b) => b.cosine - a.cosine);
  }

  /**
   * What a page opens on: the word that moves most, of those that say most, and the head in which its own links of both texts
   * together are strongest, one of those of which there is something to say: chosen by what it does, and not by how much that
   * changes.
   * @param {{ about?: string, among?: string[] }} [ready] what it is about, and may look at, where that is known
   */
  start({ about, among } = {}) {
    const says = ([{ text }, other]) => (text === about ? RANKS.whole : Math.min(rankOf(other), RANKS.pieces));
    const most = Math.max(...this.pairs.map(says));
    const some = this.pairs.filter((each) => says(each) === most);
    const pair = some.reduce((best, each) => (this.moved(each) > this.moved(best) ? each : best));
    const link = (head) => pair.reduce((sum, word, side) => sum + this.link(side, word, head, among), 0);
    const isSaid = (head) => this.rows(pair, head).some(({ claims }) => claims.some(({ of }) => of === "word"));
    const linked = this.heads.map((head) => ({ ...head, link: link(head) + Number(isSaid(head)) }));
    const { layer, head } = linked.reduce((best, each) => (each.link > best.link ? each : best));
    return { kind: this.kind, layer, head, pin: this.tokenOf(pair) };
  }

  // How strong the strongest link of a word is, and how much more than others give the same key, and at the same distance.
  link(side, unit, { layer, head }, among) {
    const at = this.words[side].indexOf(unit);
    const from = Math.max(0, at - SCREEN / 2);
    const [some, own] = [this.words[side].slice(from, from + SCREEN), at - from];
    const rows = some.map(({ first }) => sharesOf(this.pages[side], { kind: this.kind, layer, head }, first));
    const usual = (keyOf) => {
      const cells = rows.flatMap((row, i) => (i === own || !keyOf(i) ? [] : [row[keyOf(i).first]]));
      return cells.reduce((sum, each) => sum + each / cells.length, 0);
    };
    const links = some.map((key, j) => {
      if (key === unit || !(among ? among.includes(key.text) : rankOf(key) >= RANKS.pieces)) return 0;
      const share = rows[own][key.first];
      const ofKey = usual(() => key);
      const ofPlace = usual((i) => some[i + j - own]);
      return Math.sqrt(share) * (share - Math.max(ofKey, ofPlace));
    });
    return Math.max(...links);
  }
}

/** Both runs of a file of two texts that share words; undefined of others. @param {any} source */
export function bothOf(source) {
  const { compares, merged, facts } = source;
  const { near, apart } = (compares && facts.compared) ?? {};
  if (!near) return undefined;
  const [kind] = source.kinds;
  const word = ([side, { first }]) => compares[side].tokens(kind, "query")[first].word ?? Number.NaN;
  const number = (one) => (one[0] === 0 ? 0 : compares[0].words(kind, "query").length) + word(one);
  const alone = (run) => source.tokens(kind, "query").map((_, at) => (run === 0 ? [at, null] : [null, at]));
  const places = merged ? merged[kind].query.places : alone(compares.indexOf(source));
  return new Both(compares, (one, other) => near[number(one)]?.[number(other)] ?? null, apart, places);
}
