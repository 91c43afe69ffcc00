// Which words' contextual embeddings are others than before.

import { partnersOf } from "../base/partners.js";
import { isRead } from "../base/shares.js";
import { between } from "./facts.js";

/** @typedef {{ text: string, tokens: number[], vector: Float32Array }} WordVector */

/**
 * One vector of each word, the sum of its pieces', which has the direction of their mean.
 * @param {import("./tokenizer.js").Encoded} encoded
 * @param {Float32Array} contextual
 * @returns {WordVector[]}
 */
export function wordVectors({ tokens, words }, contextual) {
  const dim = contextual.length / tokens.length;
  const found = words.map((text) => ({ text, tokens: /** @type {number[]} */ ([]), vector: new Float32Array(dim) }));
  tokens.forEach(({ word }, token) => {
    if (word === null) return;
    found[word].tokens.push(token);
    for (let i = 0; i < dim; i += 1) found[word].vector[i] += contextual[token * dim + i];
  });
  return found.filter((each) => each.tokens.length > 0);
}

/**
 * How far two different words of a text are apart: 1 - their mean cosine, over all texts; null where there are no two.
 * @param {WordVector[][]} texts
 */
export function apartOf(...texts) {
  const cosines = texts.flatMap((words) => {
    const some = words.filter(({ text }) => isRead(text)).map((each) => ({ ...each, name: each.text.toLowerCase() }));
    return some.flatMap((one, at) =>
      some
        .slice(at + 1)
        .filter(({ name }) => name !== one.name)
        .map(({ vector }) => between(one.vector, vector, 0, vector.length).cosine),
    );
  });
  return cosines.length === 0 ? null : 1 - cosines.reduce((sum, each) => sum + each, 0) / cosines.length;
}

/**
 * Where a token of one text stands in another, which is the same before and behind one place; null where it is gone, and
 * nothing stands in its place.
 * @param {number} token @param {string[]} one @param {string[]} other
 */
export function movedTo(token, one, other) {
  const most = Math.min(one.length, other.length);
  let before = 0;
  while (before < most && one[before] === other[before]) before += 1;
  let behind = 0;
  while (behind < most - before && one[one.length - 1 - behind] === other[other.length - 1 - behind]) behind += 1;
  if (token < before) return token;
  if (token >= one.length - behind) return token + other.length - one.length;
  return before + behind === other.length ? null : Math.min(token, other.length - behind - 1);
}

/**
 * The words that both have, in the order of both, with the cosine of their vectors.
 * @param {WordVector[]} one
 * @param {WordVector[]} other
 * @returns {{ pairs: { text: string, cosine: number }[], isFar: boolean }} isFar: too few words are in both
 */
export function movedBetween(one, other) {
  const names = [one, other].map((words) => words.map(({ text }) => text));
  const pairs = partnersOf(names[0], names[1]).map(([a, b]) => {
    const { cosine } = between(one[a].vector, other[b].vector, 0, one[a].vector.length);
    return { text: other[b].text, cosine };
  });
  return { pairs, isFar: pairs.length < Math.max(one.length, other.length) / 2 };
}
