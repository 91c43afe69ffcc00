// What a live page asks beside its text, when nothing else is asked: the run without a head or a word, another text, what wrote a
// word. What was made of an answer is kept until the page is put together anew.

import { Both } from "../base/both.js";
import { sharesOf } from "../base/shares.js";
import { FileSource } from "../base/source.js";
import { between } from "./facts.js";
import { apartOf, wordVectors } from "./moved.js";

// live: the page's facts of the model; now(): what the page is about, { last, isAsked, texts, edits, source }, `last` being the
// newest answer; told: { ask(asked), wholeOf(facts), readBoth(both, second) }, see main.js.
export function makeAsides(kind, live, now, told) {
  let made = new Map(); // by name
  let waits = null; // who is told of the next answer, where that is not the page

  // What was made of an answer; null until it is there, or { error }.
  function aside(request, make) {
    const { last, isAsked, texts, edits } = now();
    const name = JSON.stringify(request);
    const kept = made;
    if (last === null || isAsked || waits || kept.has(name)) return kept.get(name) ?? null;
    waits = (answer) => {
      kept.set(name, answer.refused ? { error: answer.refused } : make(answer));
      for (const listener of now().source.listeners) listener();
    };
    const [text, pair = null] = texts;
    told.ask({ text, pair, ...edits, second: "", ...request });
    return null;
  }

  // The run without one head more, or with a word unseen.
  function check(_kind, { layer, head, unseen }) {
    const { last, edits } = now();
    const { contextual, encoded } = last ?? {};
    const isOf = ({ word }) => word !== null && word === encoded.tokens[unseen].word;
    const tokens = () => encoded.ids.map((_, at) => at).filter((at) => at === unseen || isOf(encoded.tokens[at]));
    if (!encoded) return null;
    return aside(unseen === undefined ? { off: [...edits.off, [layer, head]] } : { unseen: tokens() }, (answer) => {
      const dim = contextual.length / encoded.ids.length;
      const cosine = (token) => between(contextual, answer.contextual, token * dim, dim).cosine;
      const [before, after] = [last, answer].map(({ predicted }) => live.head === "next" && predicted?.[0]?.best);
      const next = before && after ? { next: { before, after } } : {};
      return { cosine: encoded.ids.map((_, token) => cosine(token)), apart: apartOf(last.words), ...next };
    });
  }

  // The text beside another, which the model reads too.
  function bothWith(second) {
    return aside({ text: second, pair: null, weights: [] }, (answer) => {
      const { last, source } = now();
      const there = new FileSource(told.wholeOf(answer.facts), (name) => answer.blocks[name]);
      const words = [last.words, wordVectors(answer.encoded, answer.contextual)];
      const vector = ([side, { first }]) => words[side].find(({ tokens }) => tokens.includes(first))?.vector;
      const cosine = (...some) => {
        const [one, other] = some.map(vector);
        return one && other ? between(one, other, 0, one.length).cosine : null;
      };
      const both = new Both([source, there], cosine, apartOf(...words));
      if (both.pairs.length === 0) return { error: "These texts have no word in common." };
      told.readBoth(both, second);
      return both;
    });
  }

  // Words in the place of another, and what a head gives to those that are asked for.
  function insteadOf(head, from, to, asked) {
    const { last, texts } = now();
    const wordOf = (token) => last.encoded.tokens[token].word;
    if ([from, to].some((token) => wordOf(token) === null)) return undefined;
    const words = aside({ near: to }, ({ near }) => near);
    if (!Array.isArray(words)) return words === null ? null : undefined;
    const [start, end] = last.encoded.wordSpans[wordOf(to)];
    const shareOf = (word) => {
      const both = bothWith(texts[0].slice(0, start) + word + texts[0].slice(end));
      if (!(both instanceof Both)) return null;
      const tokens = both.pages[1].source.tokens(kind, "query");
      const placed = (token) => tokens.findIndex(({ word: at }) => at === wordOf(token)); // there are as many words
      return sharesOf(both.pages[1], head, placed(from))?.[placed(to)] ?? null;
    };
    return words.map((word) => ({ text: word, share: asked.includes(word) ? shareOf(word) : null }));
  }

  // What wrote the words that a head looks at; null of edits of which that is not known.
  function whyOf(_kind, layer, head) {
    const found = aside({ why: [layer, head] }, ({ why }) => why && { ...why, feeds: { query: [], key: [] } });
    return found?.error ? null : found;
  }

  // A word beside itself in the sentence in which it ends furthest from here, for the end of the story.
  function beside(first) {
    const { encoded } = now().last;
    const { word } = encoded.tokens[first];
    if (word === null) return undefined;
    const name = encoded.words[word];
    const sentences = live.sentences[name.toLowerCase()] ?? [live.sentences["*"][0].replace("*", name)];
    const found = sentences.map((second) => aside({ second, word: first }, (answer) => answer.beside ?? {}));
    if (found.includes(null)) return null;
    return found.filter(({ far }) => far).sort((one, other) => other.far.at(-1) - one.far.at(-1))[0];
  }

  // Who waits for the newest answer, and nobody from now on.
  function take() {
    const one = waits;
    waits = null;
    return one;
  }

  const forget = () => (made = new Map());
  return { check, bothWith, insteadOf, whyOf, beside, take, forget };
}
