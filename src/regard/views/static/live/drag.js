// The handle that drags a weight, at the end of its bar in the list beside the heads.

import { make } from "../base/dom.js";

/** @typedef {import("./edits.js").Dragged} Dragged */
/** @typedef {{ layer: number, head: number, query: number, key: number }} Place */

/**
 * @param {{ weights: Dragged[] }} edits
 * @param {(weight: Dragged, isHeld: boolean) => void} drag
 */
export function makeDrag(edits, drag) {
  const title = "Drag this weight: the others of the row make room";
  const range = make("input", { type: "range", class: "drag", title, min: "0", max: "1", step: "0.01" });
  /** @type {Place | null} */
  let place = null;
  let isHeld = false;
  const told = () => place && drag({ ...place, value: Number(range.value) }, isHeld);
  range.addEventListener("pointerdown", () => (isHeld = true));
  range.addEventListener("input", told);
  range.addEventListener("change", () => {
    isHeld = false;
    told();
  });

  /** @param {Place | null} of null: this line is no weight of one row @param {number} weight @param {string} name */
  function update(of, weight, name) {
    place = of;
    range.hidden = of === null;
    if (isHeld || !of) return;
    range.dataset.place = [of.layer, of.head, of.query, of.key].join(".");
    range.value = String(weight);
    range.setAttribute("aria-label", `Drag the weight of ${name}`);
    const isDragged = edits.weights.some((each) => Object.entries(of).every(([part, value]) => each[part] === value));
    range.classList.toggle("dragged", isDragged);
  }
  return { element: range, update };
}
