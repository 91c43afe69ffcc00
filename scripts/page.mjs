// Bundles and minifies the page: `npm run page` (see package.json) writes src/regard/views/static/built.
//
// page.js and page.css are inlined into every page; widget.js, one ES module, and widget.css make the notebook's.

import { build } from "esbuild";

const STATIC = "src/regard/views/static";
const common = {
  bundle: true,
  minify: true,
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
  target: ["chrome111", "firefox113", "safari16.4"],
};
const entry = (source, name, more) =>
  build({ ...common, entryPoints: [`${STATIC}/${source}`], outfile: `${STATIC}/built/${name}`, ...more });

await Promise.all([
  entry("main.js", "page.js", { format: "iife" }),
  entry("style.css", "page.css"),
  entry("notebook/main.js", "widget.js", { format: "esm" }),
  entry("notebook/style.css", "widget.css"),
]);
