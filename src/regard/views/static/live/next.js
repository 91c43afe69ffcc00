// What a decoder says next, for the front door that writes: the likeliest tokens, and what the last word took from each token
// before it. Of a text that goes on, the model reads what is new alone.

import { likeliest, sampled, tempered } from "./arithmetic.js";

/**
 * @typedef {{ text: string, isText: boolean, probability: number, tempered: number }} Next
 *
 * @typedef {object} Write
 * @property {number} temperature that the likelier words are divided by; 0 for the likeliest alone
 * @property {number | null} drawn a number from 0 to 1, by which the next word is chosen and written; null for none
 *
 * @typedef {object} Written
 * @property {string} text with what was written
 * @property {string[]} words of the text
 * @property {import("./words.js").Span[]} wordSpans where each stands, in UTF-16 units
 * @property {number[]} wordOf the word of each token that was read, -1 for none
 * @property {Next[]} best the likeliest tokens; one that cannot be typed, such as the end of the text, is no text
 * @property {number[]} taken of each token, how long what all heads take from it is
 * @property {number} rests the share of attention on the first token, the mean of all heads
 * @property {{ text: string, isLikeliest: boolean } | null} chosen
 * @property {string} ended why it does not go on; "" where it does
 * @property {number} milliseconds
 */

const BEST = 5;
const LONGEST = 8; // tokens of one character
const END = "(the end)";

export class Writing {
  /** @param {import("./model.js").LiveModel} model @param {import("./tokenizer.js").LiveTokenizer} tokenizer */
  constructor(model, tokenizer) {
    this.model = model;
    this.tokenizer = tokenizer;
    // What the model wrote goes on with its own tokens: of the same text, the tokenizer may give others.
    /** @type {{ text: string, ids: number[], spans: ([number, number] | null)[] }} */
    this.own = { text: "", ids: [], spans: [] };
  }

  /**
   * @param {Write & Pick<import("./worker.js").Asked, "text" | "off" | "weights" | "unseen">} asked
   * @returns {Generator<number | Promise<void>, Written>}
   */
  *steps({ text, off, weights, unseen, temperature, drawn }) {
    const began = performance.now();
    const { model, tokenizer } = this;
    let encoded = tokenizer.encode(text);
    if (this.own.text !== text) this.own = { text, ids: encoded.ids, spans: spansOf(encoded) };
    const next = (/** @type {number[]} */ ids) => model.next({ ids, off, weights, unseen });
    let said = yield* next(this.own.ids);
    /** @type {Written["chosen"]} */
    let chosen = null;
    let ended = "";
    if (drawn !== null) {
      const { ends, positions } = model.description;
      /** @type {number[]} */
      const ids = [];
      let place = drawn;
      // A character may have several tokens.
      for (let part = { text: "", isText: false }; !part.isText && !ended; ) {
        const best = likeliest(said.logits, 1)[0].id;
        const { id, inside } = temperature > 0 ? sampled(said.logits, temperature, place) : { id: best, inside: 0 };
        place = inside;
        if (ends.includes(id)) ended = "The model ends its text here.";
        else if (this.own.ids.length + ids.length >= positions - 1)
          ended = `This page reads at most ${positions} tokens.`;
        else if (ids.length === LONGEST) ended = "What comes next is no character: the model is at a loss.";
        if (ended) break;
        ids.push(id);
        part = tokenizer.readAll(ids);
        chosen = { text: part.text, isLikeliest: (chosen?.isLikeliest ?? true) && id === best };
        said = yield* next([...this.own.ids, ...ids]);
      }
      if (ended) said = yield* next(this.own.ids);
      chosen = ended ? null : chosen;
      if (chosen) {
        const all = text + chosen.text;
        encoded = tokenizer.encode(all);
        const spans = ids.map(() => /** @type {[number, number]} */ ([text.length, all.length]));
        this.own = { text: all, ids: [...this.own.ids, ...ids], spans: [...this.own.spans, ...spans] };
      }
    }
    const best = tempered(said.logits, temperature, likeliest(said.logits, BEST)).map(({ id, ...shares }) => ({
      ...readNext(model, tokenizer, id),
      ...shares,
    }));
    const { words, wordSpans } = encoded;
    return {
      text: this.own.text,
      words,
      wordSpans,
      wordOf: this.own.spans.map((span) => wordAt(span, wordSpans)),
      best,
      taken: [...said.taken],
      rests: said.rests,
      chosen,
      ended,
      milliseconds: performance.now() - began,
    };
  }
}

/**
 * What stands for a token that comes next.
 * @param {Pick<import("./model.js").LiveModel, "description">} model
 * @param {import("./tokenizer.js").LiveTokenizer} tokenizer @param {number} id
 */
export const readNext = ({ description: { head, ends } }, tokenizer, id) =>
  head === "next" && ends.includes(id) ? { text: END, isText: false } : tokenizer.read(id);

/** A special token that the text spells out is no word. @param {import("./tokenizer.js").Encoded} encoded */
const spansOf = ({ tokens }) => tokens.map(({ span, special }) => (special ? null : span));

/** The word that has part of a span; -1 for none. @param {[number, number] | null} span @param {[number, number][]} words */
function wordAt(span, words) {
  return span ? words.findIndex(([from, to]) => from < span[1] && to > span[0]) : -1;
}
