// The line at the foot of a widget: what Python is doing, how far it is, and what went wrong.

import { make } from "../base/dom.js";
import { inWords } from "./work.js";

// status(): { text, failed, share, left, action: { label, run } } or null. Returns { element, update }.
export function makeStrip(status) {
  // The number changes four times a second: it is seen, and the bar tells it to who asks.
  const text = make("span", { role: "status" });
  const bar = make("progress", { max: "1", "aria-label": "Worked out" });
  const number = make("span", { class: "strip-number", "aria-hidden": "true" });
  const button = make("button", { type: "button", class: "button" });
  const element = make("div", { class: "strip" }, text, bar, number, button);
  let action = null;
  button.addEventListener("click", () => action?.run());

  function update() {
    const found = status();
    element.hidden = !found;
    if (!found) {
      text.textContent = "";
      return;
    }
    const { share, left } = found;
    action = found.action || null;
    if (text.textContent !== found.text) text.textContent = found.text;
    element.classList.toggle("failed", Boolean(found.failed));
    bar.hidden = number.hidden = share === undefined;
    if (share !== undefined) {
      bar.value = share;
      number.textContent = `${Math.floor(100 * share)} %${left === null || left === undefined ? "" : `, about ${inWords(left)} left`}`;
    }
    button.hidden = !action;
    if (action && button.textContent !== action.label) button.textContent = action.label;
  }
  update();
  return { element, update };
}
