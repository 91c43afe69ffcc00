// How differently each head attends, as a grid of layers and heads: a number in each cell, and its strength behind it.

import { HeadGrid } from "../base/grid.js";
import { inkOn, mixed } from "../base/shade.js";

const NARROW = 40; // pixels: less has room for two digits

// A number on a colour whose strength is from 0 to 1.
export function shade(element, strength, colours) {
  const colour = mixed(colours.of("--card"), colours.of("--accent"), strength);
  Object.assign(element.style, { backgroundColor: colour, color: inkOn(colour) });
}

// open(head): what a click does.
export function makeDivergenceMap({ source, state, colours }, open) {
  const divergences = () => source.facts.compared.kinds[state.values.kind].divergence;
  const fill = (cell, { side }) => {
    const { element, layer, head, name, missing } = cell;
    const value = divergences()[source.layers(state.values.kind).indexOf(layer)][head];
    cell.none = value === null;
    element.classList.toggle("none", cell.none);
    const said = cell.none ? `${name}: none` : `${name}: ${value.toFixed(4)} bits${missing}`;
    element.setAttribute("aria-label", said);
    element.title = said;
    element.textContent = cell.none ? "" : side < NARROW ? value.toFixed(2).replace(/^0/, "") : value.toFixed(3);
    if (cell.none) return;
    const most =
      Math.max(
        ...divergences()
          .flat()
          .filter((each) => each !== null),
      ) || 1;
    shade(element, value / most, colours);
    element.classList.toggle("most", value === most);
  };
  return new HeadGrid(
    { source, state, colours },
    {
      name: "divergences",
      label: "Layers and heads by how differently they attend",
      least: 24,
      most: 60,
      high: 32,
      gap: 2,
      gutter: 24,
      pictures: false,
      header: true,
      fill,
      open: (cell) => !cell.none && open(cell),
    },
  );
}
