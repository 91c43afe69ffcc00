// The front door of a decoder, which writes: the words that the model expects next, what they are read from, and how it
// goes on. One object for all sentences of a page; the door asks it what to show, and is told when that changes.

import { makeButton, makeSlider } from "../base/controls.js";
import { make, readable } from "../base/dom.js";
import { temperatureSaid, wholePercent, writtenSaid, wroteSaid } from "../base/said.js";
import { isRead } from "../base/shares.js";
import { GHOST, Sentence } from "../door/sentence.js";

/**
 * @typedef {import("./next.js").Written} Written
 * @typedef {{ text: string, first: number, share: number }} Source a word that the next one is read from
 */

const STEP = 0.1;
const STEPS = 20; // up to a temperature of 2
const USUAL = 7;
const SOURCES = 12; // words that are listed
const READY = [
  ["The capital of France is", "a fact"],
  ["When Mary and John went to the store, John gave a drink to", "a name"],
  ["Roses are red, violets are", "a rhyme"],
  ["Once upon a time, there was a little girl who lived in", "a story"],
];

export class Writer {
  /**
   * @param {{ ask: (drawn: number | null) => void, take: (text: string) => void, stopped: () => void,
   *   isWhole: () => boolean }} told
   * @param {number} heads of the model
   */
  constructor(told, heads) {
    this.told = told;
    this.heads = heads;
    this.isWhole = told.isWhole; // whether all that the other views show is of this text
    /** @type {Written | null} */
    this.written = null;
    this.isGoing = false;
    this.tenths = USUAL;
    /** @type {number | null} */
    this.hidden = null; // the word that no other may look at, by its first token, where somebody chose it
    this.pointed = 0; // of the words that may come next, the one that stands in the sentence
    this.count = { words: 0, likeliest: 0 }; // that it wrote by itself, since somebody typed
    /** @type {() => void} */
    this.changed = () => {};
    this.bars = make("ol", { class: "writer-bars", "aria-label": "The likeliest next words" });
    this.go = makeButton("Go on", () => this.goOn(!this.isGoing), { class: "button writer-go" });
    this.slider = makeSlider("Temperature", (tenths) => this.heat(tenths));
    this.said = make("p", { class: "door-note", "aria-live": "polite" });
    const controls = make("div", { class: "writer-controls" }, this.go, this.slider.element);
    this.element = make("div", { class: "writer" }, this.bars, controls, this.said);
    this.slider.update(this.tenths, STEPS + 1, this.temperature.toFixed(1));
  }

  get temperature() {
    return this.tenths * STEP;
  }

  /** A number by which the next word is chosen. */
  get drawn() {
    return Math.random();
  }

  /** @param {number} tenths */
  heat(tenths) {
    this.tenths = tenths;
    this.slider.update(tenths, STEPS + 1, this.temperature.toFixed(1));
    if (!this.isGoing) this.told.ask(null);
  }

  /** @param {boolean} isGoing */
  goOn(isGoing) {
    this.isGoing = isGoing;
    this.go.textContent = isGoing ? "Stop" : "Go on";
    if (isGoing) this.told.ask(this.drawn);
    else this.told.stopped();
  }

  /** Somebody typed. */
  typed() {
    this.count = { words: 0, likeliest: 0 };
    if (this.isGoing) this.goOn(false);
  }

  /** @param {number} [at] */
  take(at = 0) {
    const best = this.written?.best[at];
    if (best?.isText) this.told.take(best.text);
  }

  /** @param {Written} written */
  show(written) {
    this.written = written;
    this.pointed = 0;
    this.hidden = null;
    const { best, chosen, ended } = written;
    if (chosen) {
      this.count.words += 1;
      this.count.likeliest += Number(chosen.isLikeliest);
    }
    this.bars.replaceChildren(...best.map((each, at) => make("li", {}, this.bar(each, at))));
    this.said.textContent = [ended, temperatureSaid(this.temperature, best[0]), wroteSaid(this.count)]
      .filter(Boolean)
      .join(" ");
    if (ended && this.isGoing) this.goOn(false);
    this.changed();
  }

  /** @param {import("./next.js").Next} next @param {number} at */
  bar({ text, isText, probability, tempered }, at) {
    // A bar that moves under the pointer is not pointed at.
    const point = (/** @type {PointerEvent} */ { movementX, movementY }) => (movementX || movementY) && this.point(at);
    const name = make("bdi", { dir: "auto" }, wordOf(text, this.written?.text ?? ""));
    const shares = { "--share": probability.toFixed(4), "--tempered": tempered.toFixed(4) };
    const attributes = {
      class: "writer-bar",
      disabled: !isText,
      pointermove: point,
      focus: () => this.point(at),
      ...shares,
    };
    const percent = `${(100 * probability).toFixed(probability < 0.0995 ? 1 : 0)} %`;
    const share = make("span", { class: "writer-share" }, percent);
    return makeButton([name, ROOM(), share], () => this.take(at), attributes);
  }

  /** @param {number} at of the words that may come next */
  point(at) {
    if (at === this.pointed) return;
    this.pointed = at;
    this.changed();
  }

  /** The words before the last one, with what the next word is read from; the first token rests, and is left out. @returns {Source[]} */
  sources() {
    const { encoded, taken } = /** @type {Written} */ (this.written);
    const last = encoded.ids.length - 1;
    const found = encoded.words.flatMap((text, word) => {
      const tokens = encoded.tokens.flatMap((each, at) => (each.word === word ? [at] : []));
      const sum = tokens.reduce((total, at) => total + (at === 0 || at === last ? 0 : taken[at]), 0);
      return tokens.length > 0 && sum > 0 ? [{ text, first: tokens[0], share: sum }] : [];
    });
    const total = found.reduce((sum, { share }) => sum + share, 0);
    return found.map((each) => ({ ...each, share: each.share / total }));
  }

  /** The sentence, with the next word at its end and arcs to what it is read from. */
  sentence() {
    const { encoded, best, text } = /** @type {Written} */ (this.written);
    /** @type {(string | { text: string, first: number })[]} */
    const parts = [];
    let end = 0;
    encoded.wordSpans.forEach(([from, to], word) => {
      const first = encoded.tokens.findIndex((each) => each.word === word);
      if (first < 0) return;
      parts.push(text.slice(end, from), { text: text.slice(from, to), first });
      end = to;
    });
    const next = best[this.pointed].text;
    parts.push(text.slice(end) + (/^\s*/.exec(next)?.[0] ?? "").replace(/\n/g, " "));
    parts.push({ text: next.trim() || readable(next), first: GHOST });
    const sentence = new Sentence([parts.filter((part) => part !== "")], { "aria-hidden": "true" });
    const shares = Object.fromEntries([...sentence.words.keys()].map((first) => [first, 0]));
    for (const { first, share } of this.sources()) shares[first] = share;
    sentence.words.get(GHOST)?.classList.add("ghost");
    sentence.show(GHOST, shares);
    return sentence;
  }

  /** What comes next, and from what it is read, as a sentence of said.js. */
  remark() {
    const { best, text } = /** @type {Written} */ (this.written);
    const next = best[this.pointed];
    return writtenSaid({ ...next, text: wordOf(next.text, text) }, this.pointed, this.sources());
  }

  /** The word that comes next, and the word at which it is read. */
  readAt() {
    const { encoded, best, text } = /** @type {Written} */ (this.written);
    const last = encoded.tokens[encoded.tokens.length - 1];
    const place = last.word === null ? last.surface : encoded.words[last.word];
    return { next: wordOf(best[this.pointed].text, text), place: `“${readable(place)}”`, heads: this.heads };
  }

  /** What is left out. */
  note() {
    const { encoded, rests } = /** @type {Written} */ (this.written);
    const how = "Type; Enter takes the first word, a click any.";
    if (encoded.ids.length < 3) return how;
    return `${how} ${wholePercent(rests)} of all attention rests on the first word, as in most models that write: it is left out here.`;
  }

  /** Of each word what the next one takes from it, the largest first. */
  why() {
    const sources = this.sources().sort((one, other) => other.share - one.share);
    return make(
      "ol",
      { class: "writer-bars writer-sources" },
      ...sources.slice(0, SOURCES).map(({ text, share }) => {
        const name = make("bdi", { dir: "auto" }, readable(text));
        const bar = { class: "writer-bar", "--share": share.toFixed(4), "--tempered": share.toFixed(4) };
        return make(
          "li",
          {},
          make("span", bar, name, ROOM(), make("span", { class: "writer-share" }, wholePercent(share))),
        );
      }),
    );
  }

  /** The word that is left out: the one that is read most, or that somebody chose. */
  get most() {
    const sources = this.sources().sort((one, other) => other.share - one.share);
    return sources.find(({ first }) => first === this.hidden) ?? sources.find(({ text }) => isRead(text)) ?? sources[0];
  }

  /** @param {number} first token of a word */
  hide(first) {
    this.hidden = first;
    this.changed();
  }

  /**
   * What comes next with a word and without it, a bar for each; of a token that is not among the likeliest, nothing is known.
   * @param {Record<"before" | "after", { text: string, probability: number }[]>} next
   */
  beside({ before, after }) {
    const [was, is] = [before, after].map((list) => new Map(list.map(({ text, probability }) => [text, probability])));
    const names = [...new Set([...before.slice(0, 5), ...after.slice(0, 5)].map(({ text }) => text))];
    const share = (/** @type {number} */ of) => (of === undefined ? "few" : wholePercent(of));
    return make(
      "ol",
      { class: "writer-bars writer-beside" },
      ...names.map((text) => {
        const [one, other] = [was, is].map((list) => /** @type {number} */ (list.get(text)));
        const shares = { class: "writer-bar", "--share": (one ?? 0).toFixed(4), "--without": (other ?? 0).toFixed(4) };
        const said = make("span", { class: "writer-share" }, `${share(one)} → ${share(other)}`);
        return make("li", {}, make("span", shares, make("bdi", { dir: "auto" }, wordOf(text, "")), ROOM(), said));
      }),
    );
  }

  /** Texts to go on with, as buttons. @param {(text: string) => void} write */
  ready(write) {
    const buttons = READY.map(([text, label]) =>
      makeButton(label, () => write(text), { title: text, class: "live-chip" }),
    );
    return make("div", { class: "writer-ready", role: "group", "aria-label": "Ready texts" }, ...buttons);
  }
}

const ROOM = () => make("span", { class: "writer-room" });

/** A token as a word that comes next: of one that goes on with the last word, that is said. @param {string} token @param {string} text */
function wordOf(token, text) {
  const word = token.replace(/^ (?=\S)/, "");
  const isPart = word === token && /[\p{L}\p{N}]$/u.test(text) && /^[\p{L}\p{N}]/u.test(word);
  return (isPart ? "…" : "") + readable(word);
}
