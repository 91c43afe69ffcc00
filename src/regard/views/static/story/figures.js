// What the steps are drawn with: vectors as bars, equations that hold as they are printed, tables.

import { makeTable } from "../base/controls.js";
import { drawn, make } from "../base/dom.js";
import { printedIn } from "../base/equations.js";
import { placeOfLargest } from "../neuron/chosen.js";
import { largestSize } from "../neuron/figures.js";

const MANY = 6; // lines, beyond which they are drawn lower

export const minus = (text) => text.replaceAll("-", "−");
// Vectors are held in 16 bits: what is further behind the point is not known.
export const decimals = (value, digits = 3) => minus((Number(value.toFixed(digits)) || 0).toFixed(digits));
export const digits = (value, count = 4) => minus(value.toPrecision(count));
export const percent = (share) => `${(100 * share).toFixed(1)} %`;

// Bars above the middle for numbers above 0, below it for those below; as wide as there is room. `largest` is a
// full bar.
export function strip(values, largest) {
  const svg = drawn("svg", {
    viewBox: `0 0 ${values.length} 2`,
    preserveAspectRatio: "none",
    class: "story-strip",
    "aria-hidden": "true",
  });
  for (const sign of [1, -1]) {
    const bars = Array.from(values, (value, i) => {
      const size = largest > 0 ? Math.min(1, (value * sign) / largest) : 0;
      return size > 0 ? `M${i + 0.12} 1h.76v${(-sign * Math.max(size, 0.02)).toFixed(3)}h-.76z` : "";
    });
    svg.append(drawn("path", { d: bars.join(""), class: sign > 0 ? "more" : "less" }));
  }
  return svg;
}

// Lines one below the other: [{ sign, name, values, note, kind, own }], all to one scale, but those with `own`.
// `equations`, [what it is, function of a dimension], are written below: of the dimension under the pointer; before
// that, of the one that is largest in the last line.
export function vectorLines(lines, equations = []) {
  const largest = largestSize(...lines.map(({ values, own }) => (own ? [] : values)));
  const rows = lines.map(({ sign = "", name, values, note = "", kind = "", own = false }, i) =>
    make(
      "li",
      { class: `story-line ${kind}`, "--line": i },
      make("span", { class: "story-sign", "aria-hidden": "true" }, sign),
      make("span", { class: "story-name" }, ...[name].flat()),
      make("span", { class: "story-bars" }, strip(values, own ? largestSize(values) : largest)),
      make("span", { class: "story-note" }, ...[note].flat()),
    ),
  );
  const list = make("ol", { class: `story-lines${lines.length > MANY ? " many" : ""}` }, ...rows);
  if (equations.length === 0) return list;
  const last = lines.findLast(({ own }) => !own).values;
  const said = equations.map(() => make("p", { class: "equation story-equation" }));
  const show = (dim) => {
    list.style.setProperty("--at", String((dim + 0.5) / last.length));
    equations.forEach(([what, equation], i) =>
      said[i].replaceChildren(make("span", { class: "story-dim" }, `Dimension ${dim}${what}:`), " ", equation(dim)),
    );
  };
  const point = (event) => {
    const bars = event.target.closest(".story-bars");
    if (!bars) return;
    const box = bars.getBoundingClientRect();
    const at = Math.floor(((event.clientX - box.left) / box.width) * last.length);
    show(Math.max(0, Math.min(last.length - 1, at)));
  };
  list.addEventListener("pointermove", point);
  list.addEventListener("pointerdown", point);
  list.classList.add("pointed");
  show(placeOfLargest(last));
  return make("div", {}, list, ...said);
}

// a + b + c = total: the terms with three decimals, or with four where the printed ones would not add up, and
// the total with as many, or fewer.
const PLACES = [
  [3, 3],
  [4, 4],
  [4, 3],
  [4, 2],
];
export function sumEquation(terms, total) {
  const added = (places) => terms.reduce((sum, term) => sum + Number(term.toFixed(places)), 0);
  const said = ([, to]) => decimals(total, to);
  const { way, equals } = printedIn(PLACES, said, ([of, to]) => decimals(added(of), to), PLACES[0]);
  const [of, to] = way;
  const written = terms.map((term, i) =>
    i === 0 ? decimals(term, of) : `${Number(term.toFixed(of)) < 0 ? "−" : "+"} ${decimals(Math.abs(term), of)}`,
  );
  return `${written.join(" ")} ${equals} ${decimals(total, to)}`;
}

// The result in as many digits, five at most, as whoever works it out from the printed numbers finds too.
export function agreed(result, fromPrinted) {
  const within = (value) => (count) => value.toPrecision(count);
  const { way, equals } = printedIn([5, 4, 3, 2], within(result), within(fromPrinted), 4);
  return { text: digits(result, way), value: Number(result.toPrecision(way)), equals };
}

// A vector a column, a dimension a row.
export function vectorTable(caption, columns) {
  const count = Math.max(...columns.map(([, values]) => values.length));
  return makeTable(
    caption,
    ["Dimension", ...columns.map(([name]) => name)],
    Array.from({ length: count }, (_, dim) => [
      String(dim),
      ...columns.map(([, values]) => (dim < values.length ? decimals(values[dim]) : "")),
    ]),
  );
}
