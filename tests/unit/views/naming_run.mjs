// What a live page calls the heads of some texts: `node naming_run.mjs STATIC FILE`. FILE holds a list of
// { facts, causal, text, heads }; heads: the weights of each, row by row. Of each text the names of each head.

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, file] = process.argv.slice(2);
const { Naming } = await import(pathToFileURL(`${folder}/live/naming.js`).href);
const { saidOf } = await import(pathToFileURL(`${folder}/base/names.js`).href);
const told = ({ facts, causal, text, heads }) => {
  const naming = new Naming(facts, causal).of(text, heads.length);
  return heads.map((weights) =>
    naming.head(Float64Array.from(weights)).map((found) => ({ detail: "", ...found, said: saidOf(found) })),
  );
};
console.log(JSON.stringify(JSON.parse(readFileSync(file, "utf8")).map(told)));
