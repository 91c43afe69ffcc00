// Projects pairs of ways as a live page does: `node beside_run.mjs STATIC FILE`, a list of pairs in FILE.

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, file] = process.argv.slice(2);
const { projected } = await import(pathToFileURL(`${folder}/live/beside.js`).href);
const pairs = JSON.parse(readFileSync(file, "utf8"));
console.log(JSON.stringify(pairs.map(([one, other]) => projected(one, other))));
