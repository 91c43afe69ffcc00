// Runs models of live pages on some requests: `node live_run.mjs STATIC FOLDER`, given.json in FOLDER, and the blocks of each
// model in the folder that it names.

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, given] = process.argv.slice(2);
const { LiveModel } = await import(pathToFileURL(`${folder}/live/model.js`).href);
const { pairsOf } = await import(pathToFileURL(`${folder}/live/reasons.js`).href);
const { factsOf } = await import(pathToFileURL(`${folder}/live/facts.js`).href);
const finished = (steps) => {
  for (;;) {
    const { done, value } = steps.next();
    if (done) return { ...value, logits: [...value.logits], taken: [...value.taken] };
  }
};
const answers = [];
for (const { blocks, description, requests, wasm } of JSON.parse(readFileSync(`${given}/given.json`, "utf8"))) {
  const read = (name) => new Uint8Array(readFileSync(`${given}/${blocks}/${name}`));
  try {
    const model = await LiveModel.open(description, read, { wasm });
    // One model for all requests, as on a page: what it keeps of the last one must not show in the next.
    const runs = requests.map((request) => {
      try {
        if (request.next) return finished(model.next(request));
        if (request.greedy) {
          const ids = [...request.ids];
          while (ids.length < request.ids.length + request.greedy) {
            const { logits } = finished(model.next({ ids }));
            ids.push(logits.indexOf(Math.max(...logits)));
          }
          return ids.slice(request.ids.length);
        }
        const run = model.run(request);
        if (request.why) {
          const began = performance.now();
          const why = pairsOf(model, ...request.why);
          return { why, milliseconds: performance.now() - began };
        }
        return request.encoded ? factsOf(description, request.encoded, run) : run;
      } catch (error) {
        return { error: error.message };
      }
    });
    answers.push({ how: model.nextWord.how, runs });
  } catch (error) {
    answers.push({ error: error.message });
  }
}
const plain = (_, value) =>
  value instanceof Uint8Array
    ? Buffer.from(value).toString("base64")
    : ArrayBuffer.isView(value)
      ? [...value]
      : value;
console.log(JSON.stringify(answers, plain));
