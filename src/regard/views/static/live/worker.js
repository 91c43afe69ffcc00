// The model of a live page at work, in a worker of its own: `serve(self)`. It is told
//
//   { open: { description, tokenizer, blocks, gpu } }    once; it answers { opened: "webgpu" | "wasm" | "js", fell } or
//                                                   { broken: why }; where the GPU fails later, { goesOn: "wasm", fell: why }
//   { number, text, pair, off, weights, unseen, second, word }    of which it answers the newest alone: { number, ...what }, see Answer,
//                                                   or { number, refused: why }
//   the same with why: [layer, head]               likewise; it answers { number, why }, see reasons.js
//   the same with near: token                      likewise; it answers { number, near }, see near.js
//   the same with write: { temperature, drawn }    likewise; it answers { number, written }, see next.js

import { besideOf } from "./beside.js";
import { fromBase64 } from "./blocks.js";
import { between, factsOf } from "./facts.js";
import { LiveModel } from "./model.js";
import { punctuation } from "./naming.js";
import { nearWords } from "./near.js";
import { readNext, Writing } from "./next.js";
import { ranked } from "./ranks.js";
import { pairsOf } from "./reasons.js";
import { makeTokenizer } from "./tokenizer.js";

/**
 * @typedef {object} Asked
 * @property {number} number
 * @property {string} text
 * @property {string | null} pair a second text beside it, which the model reads too
 * @property {[number, number][]} off
 * @property {import("./edits.js").Dragged[]} weights
 * @property {number[]} [unseen] tokens of a word that no other may look at
 * @property {string} second a text to compare with; "" for none
 * @property {import("./next.js").Write} [write] what comes next is asked alone
 * @property {number} [near] a token of a word in whose place others may stand: these are asked alone
 * @property {[number, number]} [why] a head, of which it is asked alone why it looks where it looks
 * @property {number | null} [word] a token of the word that is shown beside one of the second text; null for any
 *
 * @typedef {object} Answer
 * @property {Record<string, any>} facts
 * @property {Record<string, Uint8Array>} blocks
 * @property {import("./tokenizer.js").Encoded} encoded
 * @property {Float32Array} contextual
 * @property {{ at: number, best: { text: string, isText: boolean, probability: number }[] }[]} predicted
 * @property {number | { refused: string } | null} likeness with the second text
 * @property {ReturnType<typeof besideOf>} beside a word on its way, and that of the second text
 * @property {number} milliseconds
 */

const LONGEST = 200; // characters for each token that the model takes

/** A port: a worker's own, or an end of a channel. @param {{ postMessage: (message: any) => void, onmessage: any }} port */
export function serve(port) {
  /** @type {Session | null} */
  let session = null;
  /** @type {Asked | null} */
  let newest = null;
  let isBusy = false;
  let how = "";

  port.onmessage = async ({ data }) => {
    if (data.open) {
      try {
        session = await Session.open(data.open);
        how = session.model.nextWord.how;
        port.postMessage({ opened: how, fell: session.model.nextWord.fell });
      } catch (error) {
        port.postMessage({ broken: error.message });
      }
      return;
    }
    newest = data;
    if (!isBusy) work();
  };

  async function work() {
    isBusy = true;
    while (newest && session) {
      const asked = newest;
      newest = null;
      try {
        const answer = await session.answer(asked, () => newest !== null);
        if (how !== session.model.nextWord.how)
          port.postMessage({ goesOn: (how = session.model.nextWord.how), fell: session.model.nextWord.fell });
        if (answer) port.postMessage({ number: asked.number, ...answer });
      } catch (error) {
        port.postMessage({ number: asked.number, refused: error.message });
      }
    }
    isBusy = false;
  }
}

class Session {
  /**
   * @param {{ description: any, tokenizer: any, blocks: Record<string, string | Uint8Array>, gpu: string }} given in base64,
   *   or as bytes
   */
  static async open({ description, tokenizer, blocks, gpu }) {
    const read = (/** @type {string} */ name) => {
      const block = blocks[name] ?? "";
      const bytes = typeof block === "string" ? fromBase64(block) : block;
      delete blocks[name]; // as bytes it takes less
      return bytes;
    };
    return new Session(await LiveModel.open(description, read, { gpu }), makeTokenizer(tokenizer));
  }

  /** @param {LiveModel} model @param {import("./tokenizer.js").LiveTokenizer} tokenizer */
  constructor(model, tokenizer) {
    this.model = model;
    this.tokenizer = tokenizer;
    this.writing = new Writing(model, tokenizer);
    /** @type {{ name: string, read: import("./beside.js").Read | null }} */
    this.second = { name: "", read: null };
  }

  /**
   * @param {Asked} asked
   * @param {() => boolean} isStale
   * @returns {Promise<Answer | { written: import("./next.js").Written } | { why: import("./reasons.js").Why | null } | { near: string[] } | null>} null where a newer question has come
   */
  async answer(asked, isStale) {
    if (asked.write) {
      const written = await finished(this.writing.steps({ ...asked, ...asked.write }), isStale);
      return written && { written };
    }
    const began = performance.now();
    const { description } = this.model;
    // A pasted novel is not cut up first.
    if (asked.text.length > LONGEST * description.positions) {
      const [length, most] = [asked.text.length, description.positions];
      throw new RangeError(`The text has ${length} characters; this model takes at most ${most} tokens: shorten it.`);
    }
    const encoded = this.tokenizer.encode(asked.text, asked.pair);
    if (asked.near !== undefined) return { near: nearWords(this.model, this.tokenizer, encoded, asked.near) };
    const second = this.readSecond(asked);
    const steps = this.model.steps({
      ids: encoded.ids,
      types: encoded.types,
      special: encoded.tokens.map(({ special }) => special),
      marks: punctuation(encoded),
      ...ranked(encoded),
      off: asked.off,
      weights: asked.weights,
      unseen: asked.unseen,
      predict: this.expects(encoded.ids),
    });
    const run = await finished(steps, isStale);
    if (!run) return null;
    if (asked.why) return { why: pairsOf(this.model, ...asked.why) };
    const contextual = run.hidden[run.hidden.length - 1];
    const predicted = run.predicted.map(({ at, best }) => ({
      at,
      best: best.map(({ id, probability }) => ({ ...readNext(this.model, this.tokenizer, id), probability })),
    }));
    const { facts, blocks } = factsOf(description, encoded, run);
    return {
      facts: { ...facts, start: run.layers[run.layers.length - 1].opening?.start ?? null },
      blocks,
      encoded,
      contextual,
      predicted,
      ...this.compared(second, { encoded, run }, asked.word ?? null),
      milliseconds: performance.now() - began,
    };
  }

  /** Where the head is asked: after the last token, or at each [MASK]. @param {number[]} ids */
  expects(ids) {
    const { head, mask } = this.model.description;
    if (head === "next") return [ids.length - 1];
    return head === "masked" ? ids.flatMap((id, at) => (id === mask ? [at] : [])) : [];
  }

  /**
   * The second text, with the same heads off.
   * @param {Asked} asked
   * @returns {import("./beside.js").Read | { refused: string } | null}
   */
  readSecond({ second, off }) {
    if (second.trim() === "") return null;
    const name = JSON.stringify([second, off]);
    if (this.second.name !== name) {
      try {
        const encoded = this.tokenizer.encode(second);
        this.second = { name, read: { encoded, run: this.model.run({ ...encoded, off }) } };
      } catch (error) {
        return { refused: error.message };
      }
    }
    return this.second.read;
  }

  /** @param {ReturnType<Session["readSecond"]>} second @param {import("./beside.js").Read} read @param {number | null} word */
  compared(second, read, word) {
    if (second === null) return { likeness: null, beside: null };
    if ("refused" in second) return { likeness: second, beside: null };
    const { dim, pooling } = this.model.description;
    const [one, other] = [read, second].map(({ run }) => this.pool(run.hidden[run.hidden.length - 1]));
    return {
      likeness: pooling ? between(one, other, 0, dim).cosine : null,
      beside: besideOf(read, second, word),
    };
  }

  /** One vector of a text's, as its checkpoint wants it made. @param {Float32Array} rows */
  pool(rows) {
    const { dim, pooling } = this.model.description;
    const tokens = rows.length / dim;
    if (pooling === "cls") return rows.slice(0, dim);
    if (pooling === "last") return rows.slice(-dim);
    const mean = new Float32Array(dim);
    for (let at = 0; at < rows.length; at += 1) mean[at % dim] += rows[at] / tokens;
    return mean;
  }
}

/**
 * What some steps come to; null where a newer question has come.
 * @template T @param {Generator<number | Promise<void>, T>} steps @param {() => boolean} isStale @returns {Promise<T | null>}
 */
async function finished(steps, isStale) {
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
    await value;
    await aMoment();
    if (isStale()) return null;
  }
}

/** Until what has been asked meanwhile has come. @returns {Promise<void>} */
function aMoment() {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}
