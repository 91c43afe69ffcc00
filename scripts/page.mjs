// Bundles and minifies the page: `npm run page` (see package.json) writes src/regard/views/static/built.
//
// page.js, or usual.js where its views are enough, and page.css are inlined into every page; widget.js, one ES
// module, and widget.css make the notebook's. live.js and served.js are of live pages, whose model is in the page or on
// a server; usages.js searches a server's concordance.

import { readFile } from "node:fs/promises";
import { build } from "esbuild";

const STATIC = "src/regard/views/static";

// A style sheet that imports palette.json has its colours as variables: of the light, the dark and the paper.
const variables = (colours) =>
  Object.entries(colours)
    .filter(([, value]) => typeof value === "string")
    .map(([name, value]) => `--${name}: ${value};`)
    .join(" ");
function colours({ light, dark, print }) {
  const [day, night] = ["light", "dark"].map((name) => `--theme: ${name}; color-scheme: ${name};`);
  const of = (theme) => `.regard[data-theme="${theme}"], body[data-theme="${theme}"]`;
  return `
    .regard, body { ${variables(light)} ${day} }
    ${of("dark")} { ${variables(dark)} ${night} }
    @media (prefers-color-scheme: dark) { ${of("auto")} { ${variables(dark)} ${night} } }
    .regard.printing[data-theme] { ${variables({ ...light, ...print })} ${day} }`;
}
const palette = {
  name: "palette",
  setup(bundler) {
    bundler.onResolve({ filter: /palette\.json$/ }, ({ kind }) =>
      kind === "import-rule" ? { path: `${STATIC}/palette.json`, namespace: "palette" } : undefined,
    );
    bundler.onLoad({ filter: /./, namespace: "palette" }, async ({ path }) => ({
      contents: colours(JSON.parse(await readFile(path, "utf8"))),
      loader: "css",
    }));
  },
};

const common = {
  plugins: [palette],
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
  entry("loader.js", "loader.js", { format: "iife" }),
  entry("main.js", "page.js", { format: "iife" }),
  entry("usual_main.js", "usual.js", { format: "iife" }),
  entry("style.css", "page.css"),
  entry("live/main.js", "live.js", { format: "iife" }),
  entry("live/served_main.js", "served.js", { format: "iife" }),
  entry("live/start.js", "live-worker.js", { format: "iife" }),
  entry("live/style.css", "live.css"),
  entry("usages/main.js", "usages.js", { format: "iife" }),
  entry("usages/style.css", "usages.css"),
  entry("notebook/main.js", "widget.js", { format: "esm" }),
  entry("notebook/style.css", "widget.css"),
]);
