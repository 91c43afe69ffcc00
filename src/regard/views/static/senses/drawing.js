// The map of the uses: one scale for both axes, so that equal lengths are equal distances.

import { drawn } from "../base/dom.js";
import { fitted } from "../movement/drawing.js";
import { markOf } from "./marks.js";

const MARGIN = { left: 22, right: 22, top: 22, bottom: 48 };
const RADIUS = 5;

// facts: the senses; sense: the group that is on, "" for all; use: the line that is read, null for none.
export function drawMap({ facts, sense, use, colours, width, height }) {
  const { at } = fitted(facts.points, width, height, MARGIN);
  const svg = drawn("svg", {
    viewBox: `0 0 ${width} ${height}`,
    width,
    height,
    class: "sense-uses",
    role: "img",
    "aria-label": `A map of ${facts.points.length} uses of ${facts.word} in ${facts.groups.length} groups. The list of lines has the same uses.`,
  });
  const marks = new Map(facts.groups.map((group) => [group.sense, markOf(facts.groups, group.sense, colours)]));
  const draw = (i) => {
    const { sense: own, left, node, right } = facts.lines[i];
    const { d, colour, hollow } = marks.get(own);
    const [x, y] = at(facts.points[i]);
    const chosen = i === use;
    const mark = drawn(
      "path",
      {
        d,
        transform: `translate(${x.toFixed(2)} ${y.toFixed(2)}) scale(${chosen ? RADIUS + 3 : RADIUS})`,
        fill: hollow ? "none" : colour,
        stroke: chosen ? colours.of("--ink") : hollow ? colour : colours.of("--card"),
        "stroke-width": chosen ? 2.5 : hollow ? 1.5 : 1,
        "vector-effect": "non-scaling-stroke",
        opacity: sense && own !== sense && !chosen ? 0.15 : 1,
        class: "sense-use",
        "data-use": i,
      },
      drawn("title", {}, `${own}: …${left.slice(-40)}${node}${right.slice(0, 40)}…`),
    );
    svg.append(mark);
  };
  facts.points.forEach((_, i) => i !== use && draw(i));
  if (use !== null) draw(use);
  const said = `The two directions of most variance: ${(100 * facts.share).toFixed(0)} % of it`;
  const note = { x: MARGIN.left, y: height - 10, "font-size": 12, fill: colours.of("--soft") };
  svg.append(drawn("text", note, said));
  return svg;
}
