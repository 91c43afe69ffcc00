// How differently each head attends, as a table of layers and heads: a number in each cell, and its strength behind it.

import { make } from "../base/dom.js";

const STRONGEST = 44; // per cent of the colour behind a number, so that it stays readable

// A number with a strength from 0 to 1 behind it.
export function shade(element, strength, colour) {
  element.style.backgroundColor = `color-mix(in srgb, var(${colour}) ${(STRONGEST * strength).toFixed(1)}%, transparent)`;
}

export class DivergenceMap {
  // open(head): what a click does.
  constructor({ source, state }, open) {
    this.source = source;
    this.state = state;
    this.open = open;
    this.caption = make("caption", { class: "sr-only" }, "Divergence of each head, in bits");
    this.table = make("table", {
      class: "divergences",
      role: "grid",
      "aria-label": "Layers and heads by how differently they attend",
    });
    this.element = make("div", { class: "difference-scroll" }, this.table);
    this.table.addEventListener("click", (event) => {
      const cell = event.target.closest("[data-head]");
      if (cell) open(this.headOf(cell));
    });
    this.table.addEventListener("keydown", (event) => this.onKey(event));
  }

  headOf({ dataset }) {
    return { layer: Number(dataset.layer), head: Number(dataset.head) };
  }

  rebuild() {
    const { kind } = this.state.values;
    const { divergence } = this.source.facts.compared.kinds[kind];
    const most = Math.max(...divergence.flat().filter((value) => value !== null)) || 1;
    const heads = Math.max(...divergence.map(({ length }) => length));
    const header = make(
      "tr",
      { role: "row" },
      make("th", { role: "columnheader" }, make("span", { class: "sr-only" }, "Layer")),
      ...Array.from({ length: heads }, (_, head) => make("th", { role: "columnheader", scope: "col" }, String(head))),
    );
    const rows = this.source.layers(kind).map((layer, place) => {
      const cells = divergence[place].map((value, head) => {
        if (value === null) return make("td", { role: "gridcell" });
        const held = this.source.holds(kind, layer, head);
        const said = `Layer ${layer}, head ${head}: ${value.toFixed(4)} bits${held ? "" : ", not in this file"}`;
        const cell = make(
          "td",
          {
            role: "gridcell",
            "aria-disabled": held ? null : "true",
            tabindex: "-1",
            "data-layer": String(layer),
            "data-head": String(head),
            "aria-label": said,
          },
          value.toFixed(3),
        );
        cell.title = said;
        shade(cell, value / most, "--query");
        if (value === most) cell.classList.add("most");
        return cell;
      });
      return make("tr", { role: "row" }, make("th", { role: "rowheader", scope: "row" }, String(layer)), ...cells);
    });
    this.table.replaceChildren(
      this.caption,
      make("thead", { role: "rowgroup" }, header),
      make("tbody", { role: "rowgroup" }, ...rows),
    );
    this.cells = [...this.table.querySelectorAll("[data-head]")];
    this.mark();
  }

  mark() {
    const { layer, head } = this.state.values;
    for (const cell of this.cells) {
      const here = Number(cell.dataset.layer) === layer && Number(cell.dataset.head) === head;
      cell.tabIndex = here ? 0 : -1;
      cell.setAttribute("aria-selected", String(here));
      if (here) this.current = cell;
    }
  }

  isHeld(cell) {
    const { layer, head } = this.headOf(cell);
    return this.source.holds(this.state.values.kind, layer, head);
  }

  onKey(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || !this.current) return; // the browser's own keys
    const row = this.current.parentElement;
    const place = [...row.children].indexOf(this.current);
    const inRow = [...row.querySelectorAll("[data-head]")].filter((cell) => this.isHeld(cell));
    // Past what is not in the file.
    const beside = (to, next) => {
      const cell = to?.children[place];
      if (!cell?.dataset.head) return this.current;
      return this.isHeld(cell) ? cell : beside(to[next], next);
    };
    const to = {
      ArrowRight: () => inRow[inRow.indexOf(this.current) + 1],
      ArrowLeft: () => inRow[inRow.indexOf(this.current) - 1],
      ArrowDown: () => beside(row.nextElementSibling, "nextElementSibling"),
      ArrowUp: () => beside(row.previousElementSibling, "previousElementSibling"),
      Home: () => inRow[0],
      End: () => inRow[inRow.length - 1],
    }[event.key];
    if (event.key === "Enter" || event.key === " ") this.open(this.headOf(this.current));
    else if (to) {
      const cell = to() || this.current;
      this.state.set(this.headOf(cell));
      this.mark();
      cell.focus();
    } else return;
    event.preventDefault();
  }
}
