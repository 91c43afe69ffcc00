// The wall: a thumbnail of every layer and head with a number under it, by layers or in the order of that number.

import { make } from "../base/dom.js";
import { HeadGrid } from "../base/grid.js";
import { hasNames, inShort } from "../base/names.js";
import { formatStatistic } from "./statistics.js";

// statistics(): the HeadStatistics of the kind; point, open, drawn: see base/grid.js.
export function makeWall(page, { statistics, point, open, drawn }) {
  const { source, state } = page;
  const named = source.kinds.some((kind) => hasNames(source, kind)) && source.facts.names.patterns.length > 0;
  // The heads in their order; those without a number come last.
  const lines = (cells) => {
    const { stat, by } = state.values;
    if (by === "place") return null;
    const sign = by === "most" ? -1 : 1;
    const value = (cell) => statistics().of(cell, stat) ?? sign * Number.MAX_VALUE;
    return [["", cells.slice().sort((a, b) => sign * (value(a) - value(b)))]];
  };
  const fill = (cell) => {
    const { element, layer, head, held, name, missing } = cell;
    if (!cell.number) {
      const number = make("span", { class: "wall-number" }, "");
      const names = make("span", { class: "wall-name" }, `${layer}.${head}`);
      cell.shown = make("span", { class: "wall-does" });
      element.append(
        make("span", { class: "wall-picture" }),
        make("span", { class: "wall-caption" }, names, number),
        ...(named ? [cell.shown] : []),
      );
      cell.number = number.firstChild;
    }
    const { stat } = state.values;
    const { label } = statistics().offered.find((each) => each.name === stat);
    const value = statistics().of(cell, stat);
    cell.shown.textContent = cell.named ? inShort(cell.named) : "";
    element.title = held ? cell.does : "Not in this file";
    cell.number.data = formatStatistic(value, value >= 100 ? 1 : 3);
    const does = cell.does ? `, ${cell.does}` : "";
    element.setAttribute(
      "aria-label",
      `${name}${does}, ${label} ${value === null ? "none" : cell.number.data}${missing}`,
    );
  };
  return new HeadGrid(page, {
    name: "wall",
    label: "All layers and heads",
    least: 56,
    most: 120,
    below: named ? 39 : 23,
    fill,
    lines,
    point,
    open,
    drawn,
  });
}
