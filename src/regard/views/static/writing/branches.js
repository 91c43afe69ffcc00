// The ways of a beam search as a tree: a column a step, in it those that stayed, the likeliest above.

import { makeScroll, makeTable, makeTables } from "../base/controls.js";
import { drawn, makeNote, makeSection, onClicks, readable } from "../base/dom.js";
import { excerpt, widthOf } from "../base/save.js";

const [SIZE, ROW, GAP, TOP] = [13, 28, 34, 26];
const SAID = { on: "", ended: "ended", dropped: "dropped" };

export function makeBranches({ source, colours }, go) {
  const { branches } = source.facts.writing;
  if (!branches) return null;
  // The search may go on after what won has ended.
  const last = Math.max(...branches.map(({ step }) => step));
  const columns = Array.from({ length: last + 1 }, (_, step) => branches.filter((each) => each.step === step));
  const most = Math.max(...columns.map(({ length }) => length));
  const scroll = makeScroll("The ways that were followed");
  onClicks(scroll, "[data-step]", ({ dataset }) => go(Number(dataset.step)));
  const table = makeTables("All ways as a table", () => [
    makeTable(
      "What was kept at each step, the likeliest first",
      ["Step", "Token", "After", "log p", "And then"],
      branches.map(({ parent, step, text, total, end, won }) => [
        String(step + 1),
        readable(text),
        parent < 0 ? "" : readable(branches[parent].text),
        total.toFixed(3),
        [SAID[end], won ? "won" : ""].filter(Boolean).join(", "),
      ]),
    ),
  ]);
  const element = makeSection(
    { class: "branches", "aria-label": "The beam" },
    "The ways that were followed",
    makeNote(
      "A column a step, the likeliest way above. The thick way won; ways that end in grey were dropped, a dot is an end.",
    ),
    scroll,
    table.element,
  );

  // Where each stands: columns are as wide as their widest word.
  const places = new Map();
  let x = 8;
  const bounds = columns.map((column) => {
    const wide = Math.max(16, ...column.map(({ text }) => widthOf(shown(text), SIZE, true)));
    column.forEach((each, i) => places.set(each, { x, wide, y: TOP + (i + 0.5) * ROW }));
    x += wide + GAP;
    return [x - wide - GAP, x];
  });
  const [width, height] = [x, TOP + most * ROW + 4];

  const draw = (place) => {
    const [ink, soft, rule, accent, hover] = ["--ink", "--soft", "--rule", "--accent", "--hover"].map((name) =>
      colours.of(name),
    );
    const [from, to] = bounds[place];
    const band = drawn("rect", { x: from - 8, y: 0, width: to - from - GAP + 16, height, rx: 6, fill: hover });
    const links = branches
      .filter(({ parent }) => parent >= 0)
      .sort((a, b) => Number(a.won) - Number(b.won))
      .map((each) => {
        const [a, b] = [places.get(branches[each.parent]), places.get(each)];
        const own = widthOf(shown(branches[each.parent].text), SIZE, true);
        const [left, right] = [a.x + own + 4, b.x - 5];
        const bend = Math.max(right - GAP / 2, left);
        return drawn("path", {
          d: `M${left} ${a.y} H${a.x + a.wide + 3} C${bend} ${a.y} ${bend} ${b.y} ${right} ${b.y}`,
          fill: "none",
          stroke: each.won ? accent : rule,
          "stroke-width": each.won ? 3 : 1.5,
        });
      });
    const words = branches.map((each) => {
      const { x: left, y } = places.get(each);
      const text = drawn(
        "text",
        {
          x: left,
          y: y + 4.5,
          "font-size": SIZE,
          "font-weight": each.won ? 650 : 400,
          fill: each.end === "dropped" ? soft : ink,
          "data-step": each.step,
          class: "branch",
        },
        drawn("title", {}, `${readable(each.text)}: log p ${each.total.toFixed(2)} ${SAID[each.end]}`),
        shown(each.text) + (each.end === "ended" ? " •" : ""),
      );
      return text;
    });
    const numbers = columns.map((_, step) =>
      drawn(
        "text",
        { x: bounds[step][0], y: 15, "font-size": 12, fill: soft, "data-step": step, class: "branch" },
        String(step + 1),
      ),
    );
    const svg = drawn(
      "svg",
      { width, height, viewBox: `0 0 ${width} ${height}`, class: "branch-tree", role: "img", "aria-label": said() },
      band,
      ...numbers,
      ...links,
      ...words,
    );
    scroll.replaceChildren(svg);
    const room = scroll.clientWidth;
    if (from < scroll.scrollLeft || to > scroll.scrollLeft + room) scroll.scrollLeft = from - room / 3;
    table.draw();
  };
  const said = () => {
    const dropped = branches.filter(({ end }) => end === "dropped").length;
    const ended = branches.filter(({ end }) => end === "ended").length;
    return `A tree of ${branches.length} words in ${columns.length} steps; ${ended} ways came to an end, ${dropped} were dropped.`;
  };
  return { element, table: table.element, draw };
}

const shown = (text) => excerpt(readable(text));
