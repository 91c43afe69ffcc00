// What a decoder says next, for the front door that writes: the likeliest tokens, and what the last word took from each token
// before it. Of a text that goes on, the model reads what is new alone.

import { likeliest, sampled, tempered } from "./arithmetic.js";

/**
 * @typedef {import("./tokenizer.js").Encoded} Encoded
 * @typedef {{ text: string, isText: boolean, probability: number, tempered: number }} Next
 *
 * @typedef {object} Write
 * @property {number} temperature that the likelier words are divided by; 0 for the likeliest alone
 * @property {number | null} drawn a number from 0 to 1, by which the next word is chosen and written; null for none
 *
 * @typedef {object} Written
 * @property {string} text with what was written
 * @property {Encoded} encoded
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

/**
 * @param {import("./model.js").LiveModel} model
 * @param {import("./tokenizer.js").LiveTokenizer} tokenizer
 * @param {Write & Pick<import("./worker.js").Asked, "text" | "off" | "weights" | "unseen">} asked
 * @returns {Generator<number, Written>}
 */
export function* writing(model, tokenizer, { text, off, weights, unseen, temperature, drawn }) {
  const began = performance.now();
  const { ends, positions } = model.description;
  let encoded = tokenizer.encode(text);
  let said = yield* model.next({ ids: encoded.ids, off, weights, unseen });
  /** @type {Written["chosen"]} */
  let chosen = null;
  let ended = "";
  if (drawn !== null) {
    /** @type {number[]} */
    const ids = [];
    // A character may have several tokens.
    for (let part = { text: "", isText: false }; !part.isText && !ended; ) {
      const best = likeliest(said.logits, 1)[0].id;
      const id = temperature > 0 ? sampled(said.logits, temperature, ids.length > 0 ? 0 : drawn) : best;
      if (ends.includes(id)) ended = "The model ends its text here.";
      else if (encoded.ids.length + ids.length >= positions - 1) ended = `This page reads at most ${positions} tokens.`;
      else if (ids.length === LONGEST) ended = "What comes next is no character: the model is at a loss.";
      if (ended) break;
      ids.push(id);
      part = tokenizer.readAll(ids);
      chosen = { text: part.text, isLikeliest: (chosen?.isLikeliest ?? true) && id === best };
      if (!part.isText) said = yield* model.next({ ids: [...encoded.ids, ...ids], off, weights, unseen });
    }
    if (chosen && !ended) {
      encoded = tokenizer.encode(text + chosen.text);
      said = yield* model.next({ ids: encoded.ids, off, weights, unseen });
    } else chosen = null;
  }
  const best = tempered(said.logits, temperature, likeliest(said.logits, BEST)).map(({ id, ...shares }) => ({
    ...(ends.includes(id) ? { text: END, isText: false } : tokenizer.read(id)),
    ...shares,
  }));
  return {
    text: text + (chosen?.text ?? ""),
    encoded,
    best,
    taken: [...said.taken],
    rests: said.rests,
    chosen,
    ended,
    milliseconds: performance.now() - began,
  };
}
