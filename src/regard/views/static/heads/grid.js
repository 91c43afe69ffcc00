// The picker: a thumbnail of every head; one of them is chosen, or several.

import { HeadGrid } from "../base/grid.js";
import { chosenHeads, toggleHead, toggleLayer } from "./choice.js";

export function makePicker(page) {
  const { state, colours } = page;
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
      element.title = said;
    },
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
  return grid;
}
