// The front door of a decoder, which writes: the words that the model expects next, what they are read from, and how it
// goes on. One object for all sentences of a page; the door asks it what to show, and is told when that changes.

import { makeButton, makeSlider } from "../base/controls.js";
import { make, readable } from "../base/dom.js";
import { finePercent, shareIn, temperatureSaid, wholePercent, writtenSaid, wroteSaid } from "../base/said.js";
import { isRead } from "../base/shares.js";
import { GHOST, Sentence } from "../door/sentence.js";

/**
 * @typedef {import("./next.js").Written} Written
 * @typedef {{ text: string, word: number, first: number, share: number }} Source a word that the next one is read from
 */

const STEP = 0.1;
const STEPS = 20; // up to a temperature of 2
const USUAL = 7;
const OF_A_CHAT = 0; // where nobody chose one: an answer is to the point
const SOURCES = 12; // words that are listed
const MANY = 24; // words
// Blank lines alone, or a passage over and over: small models come to it where they always take the likeliest word.
const STUCK = /(?:[^\S\n]*\n){8}[^\S\n]*$|(.{20,}?)\1{3}$/su;
const LOOKED_AT = 800; // characters
const READY = [
  ["The capital of France is", "a fact"],
  ["When Mary and John went to the store, John gave a drink to", "a name"],
  ["Roses are red, violets are", "a rhyme"],
  ["Once upon a time, there was a little girl who lived in", "a story"],
];

export class Writer {
  /**
   * @param {{ ask: (drawn: number | null) => void, take: (text: string) => void, stopped: () => void,
   *   isWhole: () => boolean, text: () => string, write: (text: string) => void, focus: () => void }} told
   * @param {number} heads of the model
   * @param {{ begin: string, answer: string, again: string } | null} chat what stands around questions and answers
   */
  constructor(told, heads, chat) {
    this.chat = chat;
    this.told = told;
    this.heads = heads;
    this.runs = ""; // how the model runs, where there is something to be said of it
    this.isWhole = told.isWhole; // whether all that the other views show is of this text
    /** @type {Written | null} */
    this.written = null;
    this.isGoing = false;
    this.tenths = USUAL;
    /** @type {number | null} */
    this.hidden = null; // the word that no other may look at, where somebody chose it
    this.pointed = 0; // of the words that may come next, the one that stands in the sentence
    this.count = { words: 0, likeliest: 0 }; // that it wrote by itself, since somebody typed
    /** @type {() => void} */
    this.changed = () => {};
    this.bars = make("ol", { class: "writer-bars", "aria-label": "The likeliest next words" });
    this.go = makeButton("Go on", () => this.goOn(!this.isGoing), { class: "button writer-go" });
    this.slider = makeSlider("Temperature", (tenths) => this.heat(tenths));
    this.said = make("p", { class: "door-note", "aria-live": "polite" });
    this.ask = makeButton("Ask it as a chat", () => this.asked(), { hidden: true });
    const controls = make("div", { class: "writer-controls" }, this.go, this.ask, this.slider.element);
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

  /** Whether a word was on its way when somebody stopped: it is not written. @param {Written} written */
  isLate({ chosen }) {
    return Boolean(chosen) && !this.isGoing;
  }

  /** Whether it goes on with the next word; what only repeats itself ends. @param {Written} written */
  goesOn(written) {
    if (this.isGoing && written.chosen && STUCK.test(written.text.slice(-LOOKED_AT)))
      written.ended ||= "It has stopped, for it only repeats itself.";
    return this.isGoing && !written.ended;
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
    this.offerChat();
    if (ended && this.isGoing) this.goOn(false);
    // An answer has ended: the next question follows.
    if (ended && this.turn === "answer") {
      this.told.write(written.text.replace(/\n\s*\n\s*$/u, "") + /** @type {any} */ (this.chat).again);
      if (this.go.matches(":focus")) this.told.focus();
    }
    this.changed();
  }

  /** Whose turn it is in a chat, which is one text with marks around what each says: "" where it is none. */
  get turn() {
    const { chat } = this;
    const text = this.told.text(); // what was typed last may not be read yet
    if (!chat || !text.startsWith(chat.begin)) return "";
    return text.lastIndexOf(chat.answer) > text.lastIndexOf(chat.again) ? "answer" : "question";
  }

  offerChat() {
    this.ask.hidden = !this.chat || this.turn === "answer";
    this.ask.textContent = this.turn ? "Ask" : "Ask it as a chat";
  }

  /** What is typed is over: a question, or else the likeliest word is taken. */
  enter() {
    if (this.turn === "question") this.asked();
    else this.take();
  }

  /** The question has been typed: the model answers. */
  asked() {
    const { begin, answer, again } = /** @type {NonNullable<Writer["chat"]>} */ (this.chat);
    const text = this.told.text();
    if (text.endsWith(again)) return; // of no words
    if (this.tenths === USUAL) this.heat(OF_A_CHAT);
    if (this.ask.matches(":focus")) this.go.focus({ preventScroll: true }); // the other is hidden now
    this.told.write((this.turn ? "" : begin) + text.trimEnd() + answer);
    this.goOn(true);
  }

  /** @param {import("./next.js").Next} next @param {number} at */
  bar({ text, isText, probability, tempered }, at) {
    // A bar that moves under the pointer is not pointed at.
    const point = (/** @type {PointerEvent} */ { movementX, movementY }) => (movementX || movementY) && this.point(at);
    const shares = { "--share": probability.toFixed(4), "--tempered": tempered.toFixed(4) };
    const attributes = {
      class: "writer-bar",
      disabled: !isText,
      pointermove: point,
      focus: () => this.point(at),
      ...shares,
    };
    const parts = partsOf(asWord(text, this.written?.text ?? ""), finePercent(probability));
    return makeButton(parts, () => this.take(at), attributes);
  }

  /** @param {number} at of the words that may come next */
  point(at) {
    if (at === this.pointed) return;
    this.pointed = at;
    this.changed();
  }

  /** The words before the last one, with what the next word is read from; the first token rests, and is left out. @returns {Source[]} */
  sources() {
    const { words, wordOf, taken } = /** @type {Written} */ (this.written);
    const last = wordOf.length - 1;
    const found = words.flatMap((text, word) => {
      const sum = taken.reduce((all, each, at) => all + (wordOf[at] === word && at > 0 && at < last ? each : 0), 0);
      return sum > 0 ? [{ text, word, first: wordOf.indexOf(word), share: sum }] : [];
    });
    const total = found.reduce((sum, { share }) => sum + share, 0);
    return found.map((each) => ({ ...each, share: each.share / total }));
  }

  /** The sentence, with the next word at its end and arcs to what it is read from. */
  sentence() {
    const { wordSpans, wordOf, best, text } = /** @type {Written} */ (this.written);
    /** @type {(string | { text: string, first: number })[]} */
    const parts = [];
    let end = 0;
    wordSpans.forEach(([from, to], word) => {
      const first = wordOf.indexOf(word);
      if (first < 0) return;
      parts.push(text.slice(end, from), { text: text.slice(from, to), first });
      end = to;
    });
    const next = best[this.pointed].text;
    parts.push(text.slice(end) + (/^\s*/.exec(next)?.[0] ?? "").replace(/\n/g, " "));
    parts.push({ text: next.trim() || readable(next), first: GHOST });
    const sentence = new Sentence([parts.filter((part) => part !== "")], { "aria-hidden": "true" });
    const shares = Object.fromEntries([...sentence.words.keys()].map((first) => [first, 0]));
    const sources = this.sources();
    // In a long text, those of more than an even share.
    const least = sources.length > MANY ? 2 / sources.length : 0;
    for (const { first, share } of sources) shares[first] = share < least ? 0 : share;
    sentence.words.get(GHOST)?.classList.add("ghost");
    sentence.show(GHOST, shares);
    return sentence;
  }

  /** What comes next, and from what it is read, as a sentence of said.js. */
  remark() {
    const { best, text } = /** @type {Written} */ (this.written);
    const next = best[this.pointed];
    return writtenSaid({ ...next, text: asWord(next.text, text) }, this.pointed, this.sources());
  }

  /** The word that comes next, and the word at which it is read. */
  readAt() {
    const { words, wordSpans, wordOf, best, text } = /** @type {Written} */ (this.written);
    const word = wordOf[wordOf.length - 1];
    const place = word < 0 ? text.slice(wordSpans[Math.max(...wordOf)]?.[1] ?? 0) : words[word];
    return { next: asWord(best[this.pointed].text, text), place: `“${readable(place)}”`, heads: this.heads };
  }

  /** What is left out. */
  note() {
    const { wordOf, rests, best } = /** @type {Written} */ (this.written);
    const part = best.find(({ text, isText }) => !isText && /^ *<0x/.test(text))?.text.trim();
    const isAtRest = rests >= 1 / wordOf.length; // more than an even share
    const rest = isAtRest
      ? `${wholePercent(rests)} of all attention rests on the first word, as in most models that write: it is left out here.`
      : "The first word, on which most models rest, is left out here.";
    return [
      "Type; Enter takes the first word, a click any.",
      ...(part ? [`${part} is a part of a letter that has no token of its own: “Go on” writes all of it.`] : []),
      ...(best.some(({ text }) => text === " ") ? ["␣ is a blank."] : []),
      ...(wordOf.length < 3 ? [] : [rest]),
      this.runs,
    ]
      .join(" ")
      .trim();
  }

  /** Of each word what the next one takes from it, the largest first. */
  why() {
    const sources = this.sources().sort((one, other) => other.share - one.share);
    return make(
      "ol",
      { class: "writer-bars writer-sources" },
      ...sources
        .slice(0, SOURCES)
        .map(({ text, share }) => barOf(readable(text), { "--share": share.toFixed(4) }, wholePercent(share))),
    );
  }

  /** The word that is left out: the one that is read most, or that somebody chose. */
  get most() {
    const sources = this.sources().sort((one, other) => other.share - one.share);
    return sources.find(({ word }) => word === this.hidden) ?? sources.find(({ text }) => isRead(text)) ?? sources[0];
  }

  /** @param {number} word */
  hide(word) {
    this.hidden = word;
    this.changed();
  }

  /**
   * What comes next with a word and without it, a bar for each.
   * @param {Record<"before" | "after", { text: string, probability: number }[]>} next
   */
  beside({ before, after }) {
    const [was, is] = [before, after].map((list) => new Map(list.map(({ text, probability }) => [text, probability])));
    const names = [...new Set([...before.slice(0, 5), ...after.slice(0, 5)].map(({ text }) => text))];
    return make(
      "ol",
      { class: "writer-bars writer-beside" },
      ...names.map((text) => {
        const [one, other] = [was, is].map((list) => /** @type {number} */ (list.get(text)));
        const shares = { "--share": (one ?? 0).toFixed(4), "--without": (other ?? 0).toFixed(4) };
        const said = [before, after].map((list) => shareIn(list, text, finePercent, "≤ "));
        return barOf(asWord(text, ""), shares, said.join(" → "));
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

/** A word, its bar, and what is said of it. @param {string} name @param {string} said */
const partsOf = (name, said) => [
  make("bdi", { dir: "auto" }, name),
  make("span", { class: "writer-room" }),
  make("span", { class: "writer-share" }, said),
];

/** The same in a list. @param {string} name @param {Record<string, string>} shares @param {string} said */
const barOf = (name, shares, said) =>
  make("li", {}, make("span", { class: "writer-bar", ...shares }, ...partsOf(name, said)));

// In scripts without blanks every word goes on with the last.
const PART = /^(?![\p{sc=Han}\p{sc=Hira}\p{sc=Kana}\p{sc=Thai}\p{sc=Laoo}\p{sc=Khmr}\p{sc=Mymr}])[\p{L}\p{N}]/u;

/** A token as a word that comes next: of one that goes on with the last word, that is said. @param {string} token @param {string} text */
function asWord(token, text) {
  const word = token.replace(/^ (?=\S)/, "");
  const isPart = word === token && /[\p{L}\p{N}]$/u.test(text) && PART.test(word);
  return (isPart ? "…" : "") + readable(word);
}
