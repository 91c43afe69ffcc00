// Of two texts: their tokens one above the other, partners together; and how alike the words are that both have.

import { makeScroll, makeTable } from "../base/controls.js";
import { make, readable } from "../base/dom.js";
import { shownText } from "../base/units.js";
import { shade } from "./map.js";

const MOVED = 5; // words that are named

// A column for each token of either text; what has no partner is faded, dashed, and alone in its column.
export function makeAlignment(source, kind) {
  const list = make("ol", { class: "aligned", "aria-label": "Tokens of both texts" });
  const tokens = source.tokens(kind, "query");
  for (const token of tokens) {
    const { special, only, sink } = token;
    if (sink) continue;
    const shown = readable(shownText(token));
    const chip = (there) =>
      make(
        "span",
        { class: there ? "aligned-token" : "aligned-token gap", "aria-hidden": there ? null : "true" },
        ...(there ? [make("bdi", { dir: "auto" }, shown)] : []),
      );
    const said = only === undefined ? "in both" : `only in ${only + 1}`;
    list.append(
      make(
        "li",
        { class: `${only === undefined ? "" : "alone"}${special ? " special" : ""}`, title: said },
        chip(only !== 1),
        chip(only !== 0),
        make("span", { class: "sr-only" }, said),
      ),
    );
  }
  return list;
}

// The words by how far they have moved at the end, the farthest first; and which those are, in words.
export function makeLikeness({ words, places, layers, cosines }, colours) {
  const repeated = new Set(words.filter((word, i) => words.indexOf(word) !== i));
  const named = (i) => [
    make("bdi", { dir: "auto" }, readable(words[i])),
    ...(repeated.has(words[i]) ? [make("span", { class: "position" }, ` ${places[i]}`)] : []),
  ];
  const last = (i) => cosines[i].findLast((value) => value !== null) ?? 1;
  const order = words.map((_, i) => i).sort((a, b) => last(a) - last(b));
  const least = Math.min(1, ...cosines.flat().filter((value) => value !== null));
  const rows = order.map((i) => [
    make("span", {}, ...named(i)),
    ...cosines[i].map((value) => (value === null ? "–" : value.toFixed(3))),
  ]);
  const moved = order
    .slice(0, MOVED)
    .flatMap((i, place) => [place > 0 ? ", " : "", ...named(i), ` (${last(i).toFixed(3)})`]);
  const said = make("p", {}, "Most moved, by the last layer: ", ...moved, ".");
  const made = makeTable("Cosine of each word's two vectors, layer by layer", ["Word", ...layers], rows);
  made.className = "likeness";
  made.caption.className = "sr-only";
  const table = makeScroll("Likeness of words by layer", made);
  table.className = "difference-scroll";
  // In the colours of the theme, or of paper.
  const draw = () =>
    order.forEach((i, row) =>
      cosines[i].forEach((value, column) => {
        const cell = made.tBodies[0].rows[row].cells[column + 1];
        if (value !== null && least < 1) shade(cell, (1 - value) / (1 - least), colours);
      }),
    );
  draw();
  return { said, table, draw };
}
