// The bar of a weight in the list beside the heads, whose end is a handle that drags it.

import { make } from "../base/dom.js";

/** @typedef {import("./edits.js").Dragged} Dragged */
/** @typedef {{ layer: number, head: number, query: number, key: number }} Place */

const THUMB = 8; // pixels, as in live.css

/**
 * Follows a pointer that went down on a slider. Not by the slider itself: while it is held, the list that it stands in
 * is drawn anew.
 * @param {PointerEvent} event
 * @param {(value: number) => void} told of each move
 */
function follow(event, told) {
  const { left, width } = /** @type {Element} */ (event.currentTarget).getBoundingClientRect();
  const gone = new AbortController();
  const only = (/** @type {(event: PointerEvent) => void} */ then) => (/** @type {PointerEvent} */ each) =>
    each.pointerId === event.pointerId && then(each);
  const listen = (/** @type {"pointermove" | "pointerup" | "pointercancel"} */ name, then) =>
    window.addEventListener(name, only(then), { signal: gone.signal });
  listen("pointermove", ({ clientX }) =>
    told(Math.min(1, Math.max(0, (clientX - left - THUMB / 2) / Math.max(1, width - THUMB)))),
  );
  listen("pointerup", () => gone.abort());
  listen("pointercancel", () => gone.abort());
}

/**
 * @param {{ weights: Dragged[] }} edits
 * @param {(weight: Dragged) => void} drag
 */
export function makeDrag(edits, drag) {
  const title = "Drag this weight: the others of the row make room";
  const range = make("input", { type: "range", class: "drag", title, min: "0", max: "1", step: "0.01" });
  /** @type {Place | null} */
  let place = null;
  range.addEventListener("pointerdown", (event) => {
    const held = place;
    if (!held || event.button !== 0) return;
    event.preventDefault();
    range.focus();
    follow(event, (value) => {
      range.value = String(value);
      drag({ ...held, value: Number(value.toFixed(2)) });
    });
  });
  range.addEventListener("input", () => place && drag({ ...place, value: Number(range.value) }));

  /** @param {Place | null} of null: this line is no weight of one row @param {number} weight @param {string} name */
  function update(of, weight, name) {
    place = of;
    range.hidden = of === null;
    if (!of) return;
    range.dataset.place = [of.layer, of.head, of.query, of.key].join(".");
    range.value = String(weight);
    range.style.setProperty("--at", `${100 * weight}%`);
    range.setAttribute("aria-label", `Drag the weight of ${name}`);
    const isDragged = edits.weights.some((each) => Object.entries(of).every(([part, value]) => each[part] === value));
    range.classList.toggle("dragged", isDragged);
  }
  return { element: range, update };
}
