// The difference view: which heads attend differently in two texts or in two models, and the way to each.

import { makeButton } from "../base/controls.js";
import { make, makeNote, makeSection } from "../base/dom.js";
import { KIND_NAMES } from "../base/header.js";
import { makeDivergenceMap } from "./map.js";
import { makeAlignment, makeLikeness } from "./tokens.js";

const HELP = [
  ["In the difference view, a click, Enter or Space on a head", "shows the differences of its weights"],
  ["Arrow keys, Home, End in its table", "another head"],
];

const fits = (source) => Boolean(source.facts.compared);

function open(page) {
  const { source, state, colours } = page;
  const { compared } = source.facts;
  const texts = compared.between === "texts";
  const openHead = ({ layer, head }) => state.set({ view: "heads", run: 0, layer, head, also: [], hover: null });
  const map = makeDivergenceMap(page, openHead);
  const said = makeNote();
  const partners = makeNote();
  const aligned = make("div", {});
  const strongest = make("ol", { class: "strongest-heads" });

  const title = texts
    ? "How differently each head attends in the two texts"
    : "How differently each head attends in the two models";
  const parts = [
    make(
      "section",
      { "aria-label": "Divergence of each head" },
      make("h2", { class: "where" }, title),
      said,
      make(
        "div",
        { class: "difference-map" },
        make("p", { class: "axes" }, make("span", {}, "Layer ↓"), make("span", {}, "Head →")),
        map.element,
      ),
    ),
  ];
  if (texts) parts.push(makeSection({ "aria-label": "Tokens of both texts" }, "What is compared", partners, aligned));
  const likeness = compared.likeness ? makeLikeness(compared.likeness, colours) : null;
  if (likeness) {
    parts.push(
      makeSection(
        { "aria-label": "Likeness of words" },
        "Likeness of the words that both have",
        makeNote(
          "The cosine of the word's two vectors at each embedding layer: 1 is the same direction. The stronger a cell's colour, the less alike.",
        ),
        likeness.said,
        likeness.table,
      ),
    );
  }
  const left = compared.leftOut.map(({ name, reason }) => makeNote(`Not here: ${name}, since ${reason}`));
  const element = make(
    "div",
    { class: "differing" },
    make("div", { class: "difference-main" }, ...parts, ...left),
    make(
      "aside",
      { class: "difference-side", "aria-label": "Heads that differ most" },
      make("h2", { class: "panel-title" }, "Most different heads"),
      strongest,
    ),
  );

  const rebuild = () => {
    const { kind } = state.values;
    const { divergence, compared: share, queries } = compared.kinds[kind];
    map.rebuild();
    const heads = divergence
      .flatMap((row, place) => row.map((value, head) => ({ layer: source.layers(kind)[place], head, value, place })))
      .filter(({ value }) => value !== null);
    const mean = heads.reduce((sum, { value }) => sum + value, 0) / heads.length;
    const where = source.kinds.length > 1 ? ` ${KIND_NAMES[kind]}.` : "";
    said.textContent = `Jensen-Shannon divergence of its rows in bits, the mean over ${queries.length} queries: 0 is alike, 1 has nothing in common; all heads together ${mean.toFixed(4)}.${where} The stronger a cell's colour, the more it differs. Click one to see where.`;
    strongest.replaceChildren(
      ...heads
        .sort((a, b) => b.value - a.value)
        .slice(0, 10)
        .map((head) => {
          const name = make("span", {}, `Layer ${head.layer}, head ${head.head}`);
          const number = make("span", { class: "top-number" }, head.value.toFixed(4));
          return make(
            "li",
            {},
            makeButton([name, number], () => openHead(head), { class: null }),
          );
        }),
    );
    if (!texts) return;
    const shares = share.flat().filter((value) => value !== null);
    const percent = (100 * shares.reduce((sum, value) => sum + value, 0)) / shares.length;
    partners.textContent = `${queries.length} tokens are in both, in order; ${percent.toFixed(1)} % of all attention lies on them. The others are put together as one, which can only lower a divergence.`;
    // Another run of the page has one text's tokens only.
    aligned.replaceChildren(...(source.merged ? [makeAlignment(source, kind)] : []));
  };
  const changed = (names) => {
    if (names.has("look")) paint();
    if (names.has("kind")) rebuild();
    else if (names.has("layer") || names.has("head")) map.mark();
  };
  const paint = () => {
    map.fill();
    likeness?.draw();
  };
  const print = (on) => () => {
    map.print(on);
    paint();
  };
  return { element, start: rebuild, changed, print };
}

export const VIEW = {
  name: "difference",
  label: "Difference",
  fits,
  guide: "Which heads attend differently, in bits: the stronger the colour, the more. Click one to see where.",
  help: HELP,
  open,
};
