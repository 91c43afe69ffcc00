// A bar that goes through steps one by one: played, by a slider, or by hand.

import { make } from "../base/dom.js";
import { makeFilm } from "../base/film.js";

const PACE = 800; // milliseconds a step

// count(), place(): how many steps and which is on, -1 for none; go(place); said(place): parts of text; all(): back to all
// of them; film: { name, sheet(), colours } where the steps can be filmed.
export function makePlayer({ label, slider = label, count, place, go, said, all, film = null }) {
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const button = (text, name, act) => {
    const element = make("button", { type: "button", class: "button", "aria-label": name, title: name }, text);
    element.addEventListener("click", act);
    return element;
  };
  let playing = 0;
  const stop = () => {
    if (!playing) return;
    clearInterval(playing);
    playing = 0;
    update();
  };
  const turn = (to) => {
    stop();
    go(Math.max(0, Math.min(count() - 1, to)));
    update();
  };
  const tick = () => {
    if (!playing || still.matches || !element.checkVisibility() || place() < 0 || place() >= count() - 1) stop();
    else go(place() + 1);
    update();
  };
  const play = () => {
    if (playing) {
      stop();
      return;
    }
    if (place() < 0 || place() >= count() - 1) go(0);
    playing = setInterval(tick, PACE);
    update();
  };
  const player = button("Play", `Play the ${label.toLowerCase()}s`, play);
  const range = make("input", { type: "range", min: "0", step: "1", "aria-label": slider });
  range.addEventListener("input", () => turn(Number(range.value)));
  const output = make("output", {});
  const whole = button(`All ${label.toLowerCase()}s`, `Show all ${label.toLowerCase()}s at once`, () => {
    stop();
    all();
    update();
  });
  const parts = [
    player,
    button("‹", `${label} before`, () => turn(place() - 1)),
    range,
    button("›", `Next ${label.toLowerCase()}`, () => turn(place() + 1)),
    output,
    whole,
  ];
  if (film) parts.push(makeFilm({ ...film, count, go }));
  const element = make("div", { class: "steps-bar" }, ...parts);
  function update() {
    player.hidden = still.matches;
    player.textContent = playing ? "Pause" : "Play";
    player.setAttribute("aria-label", playing ? "Pause" : `Play the ${label.toLowerCase()}s`);
    whole.hidden = place() < 0;
    range.max = String(Math.max(0, count() - 1));
    range.value = String(Math.max(0, place()));
    output.replaceChildren(...(place() < 0 ? [] : said(place())));
    range.setAttribute("aria-valuetext", output.textContent || "all");
  }
  return { element, range, update, stop, turn };
}
