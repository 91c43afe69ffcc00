// The picker: a thumbnail of every head; one of them is chosen, or several.

import { make } from "../base/dom.js";
import { HeadGrid } from "../base/grid.js";
import { nameOf, withEffect } from "../base/names.js";
import { chosenHeads, toggleHead, toggleLayer } from "./choice.js";

export function makePicker(page) {
  const { source, state, colours } = page;
  // Which head that is and what it does, below them: the one under the pointer, or else the one under the cursor.
  const said = make("p", { class: "picker-said", "aria-hidden": "true" });
  const say = (cell = null) => {
    const { kind, layer, head } = { ...state.values, ...cell };
    const does = withEffect(nameOf(source, state.values, { layer, head }));
    const missing = source.holds(kind, layer, head) ? "" : ", not in this file";
    said.textContent = `Layer ${layer}, head ${head}${does ? `: ${does}` : ""}${missing}`;
  };
  state.follow(["kind", "layer", "head", "effect"], () => say());
  const open = ({ layer, head }, event) => {
    const adding = event.shiftKey || event.ctrlKey || event.metaKey || state.values.adding;
    if (adding) toggleHead(state, layer, head);
    else state.set({ layer, head, also: [] });
  };
  // Kept where the cursor goes on; a second time lets go.
  const keep = ({ layer, head }) => {
    const { also } = state.values;
    const kept = also.some((each) => each.layer === layer && each.head === head);
    if (kept) toggleHead(state, layer, head);
    else state.set({ also: [...also, { layer, head }] });
  };
  const grid = new HeadGrid(page, {
    name: "picker-heads",
    label: "Choose a layer and a head",
    several: true,
    least: 8,
    most: 82,
    gap: 2,
    gutter: 21,
    header: true,
    fill: ({ element, name, does, missing }) => {
      const said = `${name}${does ? `, ${does}` : ""}${missing}`;
      element.setAttribute("aria-label", said);
    },
    point: say,
    // Nearest layers first.
    queue: (cells) => {
      const apart = ({ layer }) => Math.abs(layer - state.values.layer);
      return cells.sort((a, b) => apart(a) - apart(b));
    },
    chosen: () => chosenHeads(state.values),
    choose: (element, i) => {
      element.style.setProperty("--ring", colours.series(i));
      if (chosenHeads(state.values).length > 1) element.dataset.letter = colours.letter(i);
    },
    open,
    layer: (layer) => toggleLayer(state, layer),
    key: (cell, key) => {
      if (key === " ") keep(cell);
      else if (key === "a") toggleLayer(state, cell.layer);
      else return false;
      grid.current.element.focus();
      return true;
    },
  });
  grid.rebuild();
  return { grid, said };
}
