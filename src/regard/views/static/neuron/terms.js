import { make } from "../base/dom.js";
import { largestPlaces } from "./chosen.js";
import { decimals, formatNumber, times } from "./figures.js";

const TERMS = 5; // that are written out

// A sum of products as a table: the largest summands and the chosen one, the others in one line.
//
// heads: of the columns; terms: all summands; rows(places): of some of them [name, factors, product, chosen?].
export function makeTerms({ heads, terms, rows, chosen, total }) {
  const { places } = largestPlaces(terms, TERMS);
  const listed = chosen < 0 || places.includes(chosen) ? places : [...places.slice(0, TERMS - 1), chosen];
  const others = terms.reduce((total, value, i) => (listed.includes(i) ? total : total + value), 0);
  const largest = Math.max(...terms.map(Math.abs));
  const lines = rows(listed);
  // The products hold the sum, and the factors each product, as printed.
  const add = (...values) => values.reduce((a, b) => a + b, 0);
  const { way: deep } = decimals([[[...lines.map(([, , product]) => product), others], total]], add);
  const { way: more } = decimals(
    lines.map(([, factors, product]) => [factors, product]),
    times,
    deep,
  );
  const body = lines.map(([name, factors, product, on]) => {
    const size = largest > 0 ? Math.abs(product) / largest : 0;
    const bar = make("span", { class: product < 0 ? "term-bar negative" : "term-bar", "--size": size });
    return make(
      "tr",
      { class: on ? "on" : null },
      make("th", { scope: "row" }, name),
      ...factors.map((factor) => make("td", {}, formatNumber(factor, more))),
      make("td", {}, formatNumber(product, deep)),
      make("td", { class: "term-cell" }, bar),
    );
  });
  const left = terms.length - listed.length;
  if (left > 0)
    body.push(
      make(
        "tr",
        { class: "others" },
        make("th", { scope: "row", colspan: heads.length - 1 }, `${left} other${left === 1 ? "" : "s"} together`),
        make("td", {}, formatNumber(others, deep)),
        make("td", {}),
      ),
    );
  return make(
    "table",
    { class: "terms" },
    make("thead", {}, make("tr", {}, ...heads.map((text) => make("th", { scope: "col" }, text)), make("td", {}))),
    make("tbody", {}, ...body),
  );
}
