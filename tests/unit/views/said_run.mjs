// What the page says of rows and of moves: `node said_run.mjs STATIC FILE`. FILE holds { texts, moves, nexts, words }; of each text, for
// each head the remark of each word, what its row does, and whether most words look at the same; of moves, and of what a decoder goes on with, what is said; of
// lists of words, [text, vector], how far they are apart; boths, [one text, another, a word of both], what each head does with it in
// the two; `more` has names of other makers of sentences, with what they are given.

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, file] = process.argv.slice(2);
const { Units } = await import(pathToFileURL(`${folder}/base/units.js`).href);
const said = await import(pathToFileURL(`${folder}/base/said.js`).href);
const { movedSaid, nextSaid, othersSaid, remark, rowOf, sharedBy } = said;
const { Both } = await import(pathToFileURL(`${folder}/base/both.js`).href);
const { apartOf } = await import(pathToFileURL(`${folder}/live/moved.js`).href);
const { texts, moves, nexts, words: lists, boths, more } = JSON.parse(readFileSync(file, "utf8"));
const joined = (parts) => [parts].flat().map((part) => (typeof part === "string" ? part : part.text)).join("");

const shownOf = (rows) => rows.filter(({ does }) => does === "looks").length;

function told({ kind, tokens, words, layers }) {
  const units = new Units(tokens, words, true);
  const row = (_, layer, head, query) => Float64Array.from(layers[layer][head][query]);
  const source = { layers: () => [...layers.keys()], heads: (_, layer) => layers[layer].length, row };
  const page = { source, state: { units: () => units } };
  const from = units.all.filter(({ special }) => !special).map(({ first }) => first);
  return layers.map((heads, layer) =>
    heads.map((_, head) => {
      const rows = from.map((first) => rowOf(page, { kind, layer, head }, first));
      return {
        others: othersSaid(rows, shownOf(rows)),
        said: rows.map((each, at) => joined(remark(page, { kind, layer, head }, from[at], each))),
        does: rows.map(({ does }) => does),
        shared: rows.map((each) => sharedBy(page, { kind, layer, head }, each)),
      };
    }),
  );
}

function toldOfBoth(one, other, word) {
  const sources = [one, other].map(({ kind, tokens, words, layers }) => ({
    facts: { sides: { [kind]: { text: words.join(" ") } } },
    kinds: [kind],
    tokens: () => tokens,
    words: () => words,
    layers: () => [...layers.keys()],
    heads: (_, layer) => layers[layer].length,
    row: (_, layer, head, query) => Float64Array.from(layers[layer][head][query]),
  }));
  const both = new Both(sources, () => 0.5, 0.5);
  const pair = both.pairs.find(([{ text }]) => text === word);
  return one.layers.map((heads, layer) =>
    heads.map((_, head) => {
      const rows = both.pages.map((page, side) => rowOf(page, { kind: one.kind, layer, head }, pair[side].first));
      return joined(said.bothSaid(both, pair, rows));
    }),
  );
}

const apart = (list) => apartOf(list.map(([text, vector]) => ({ text, tokens: [], vector: Float32Array.from(vector) })));
console.log(
  JSON.stringify({
    texts: texts.map(told),
    moves: moves.map((each) => joined(movedSaid(...each))),
    nexts: nexts.map((each) => joined(nextSaid(each))),
    apart: lists.map(apart),
    boths: boths.map((each) => toldOfBoth(...each)),
    more: more.map(([name, ...given]) => joined(said[name](...given))),
  }),
);
