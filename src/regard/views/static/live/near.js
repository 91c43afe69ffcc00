// Which words may stand in the place of one: see tracing/pages/_instead.py, whose form in Python this follows.

import { isRead } from "../base/shares.js";
import { between } from "./facts.js";

const NEAR = 2; // words that are like it
const READ = 400; // of the nearest tokens, in which they are looked for
const STEM = 3; // letters: words that begin with the same are forms of one
const BLANK = "␣";
const NAME = /^\p{L}{3,}$/u;

/**
 * @param {import("./model.js").LiveModel} model
 * @param {import("./tokenizer.js").LiveTokenizer} tokenizer
 * @param {import("./tokenizer.js").Encoded} encoded
 * @param {number} token of the word
 * @returns {string[]}
 */
export function nearWords({ work, description }, tokenizer, { ids, tokens, words }, token) {
  const { dim, vocabulary } = description;
  work.take(1);
  const row = (/** @type {number} */ id) => work.row("embeddings.tokens.weight", id);
  const { word } = tokens[token];
  const idsOf = (/** @type {number | null} */ of) => ids.filter((_, at) => tokens[at].word === of);
  const mean = new Float32Array(dim);
  for (const id of idsOf(word)) row(id).forEach((value, i) => (mean[i] += value));
  const cosines = Float32Array.from({ length: vocabulary }, (_, id) => between(mean, row(id), 0, dim).cosine);
  const order = Array.from(cosines, (_, id) => id).sort((a, b) => cosines[b] - cosines[a] || a - b);
  const shown = order.slice(0, READ).map((id) => tokenizer.read(id).text.replace(/^ /, BLANK));
  const begins = shown.some((each) => each.startsWith(BLANK)) ? BLANK : ""; // where a piece begins a word
  const isAlike = (/** @type {string} */ one, /** @type {string} */ other) => stem(one) === stem(other);
  const name = words[word ?? 0];
  /** @type {string[]} */
  const found = [];
  for (const each of shown) {
    const one = each.slice(begins.length);
    const isWord = each.startsWith(begins) && NAME.test(one);
    if (isWord && found.length < NEAR && ![name, ...found].some((other) => isAlike(one, other))) found.push(one);
  }
  const alike = (/** @type {number} */ of) => {
    const some = idsOf(of);
    return some.reduce((sum, id) => sum + cosines[id] / some.length, 0);
  };
  const others = words
    .map((_, at) => at)
    .filter(
      (at) =>
        isRead(words[at]) &&
        [...words[at]].length > STEM &&
        ![name, ...found].some((each) => isAlike(words[at], each)) &&
        idsOf(at).length > 0,
    );
  if (others.length > 0) found.push(words[others.reduce((best, at) => (alike(at) < alike(best) ? at : best))]);
  return found;
}

const stem = (/** @type {string} */ text) => [...text.toLowerCase()].slice(0, STEM).join("");
