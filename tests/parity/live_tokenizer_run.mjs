// What the page's tokenizer makes of texts: `node live_tokenizer_run.mjs STATIC FOLDER` reads given.json, a list of
// { facts, texts: [text, pair][] }, and writes made.json: of each text its encoding, with tokens as
// lists of their values, or the words of its refusal. With { facts, ids } it is how each id is shown.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [scripts, folder] = process.argv.slice(2);
const { readable } = await import(pathToFileURL(join(scripts, "base", "dom.js")).href);
const { makeTokenizer } = await import(pathToFileURL(join(scripts, "live", "tokenizer.js")).href);
const { TextRefused } = await import(pathToFileURL(join(scripts, "live", "characters.js")).href);

/** @param {import("../../src/regard/views/static/live/tokenizer.js").LiveToken} token */
const valuesOf = ({ id, text, surface, bytes, special, unknown, sequence, word, span }) => [
  id,
  text,
  surface,
  bytes,
  special,
  unknown,
  sequence,
  word,
  span,
];

const made = JSON.parse(readFileSync(join(folder, "given.json"), "utf8")).map(({ facts, texts, ids }) => {
  const tokenizer = makeTokenizer(facts);
  if (ids) return ids.map((id) => readable(tokenizer.read(id).text));
  return texts.map(([text, pair]) => {
    try {
      const encoded = tokenizer.encode(text, pair);
      return { ...encoded, tokens: encoded.tokens.map(valuesOf) };
    } catch (error) {
      if (error instanceof TextRefused) return error.message;
      throw error;
    }
  });
});
writeFileSync(join(folder, "made.json"), JSON.stringify(made));
