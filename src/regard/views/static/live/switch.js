// The button that switches a head off, or on again.

import { makeButton } from "../base/controls.js";
import { make } from "../base/dom.js";

/**
 * @param {() => [number, number][]} off the heads that are off
 * @param {(layer: number, head: number) => void} switched
 * @param {string} [named] the class of the head's name, which where it stands beside it is for screen readers alone
 */
export function makeSwitch(off, switched, named = "sr-only") {
  const what = make("span", {}, "");
  const name = make("span", { class: named }, "");
  const element = makeButton([what, " ", name], () => at && switched(at.layer, at.head), { class: "button switch" });
  /** @type {{ layer: number, head: number } | null} */
  let at = null;

  /** @param {{ layer: number, head: number } | null} head of null: no one head is meant */
  function update(head) {
    at = head;
    element.hidden = head === null;
    if (!head) return;
    const isOff = off().some(([layer, of]) => layer === head.layer && of === head.head);
    what.textContent = isOff ? "Switch on" : "Switch off";
    name.textContent = `head ${head.layer}.${head.head}`;
    element.classList.toggle("on", isOff);
  }
  return { element, update };
}
