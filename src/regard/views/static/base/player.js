// A bar that goes through steps one by one: played, by a slider, or by hand.

import { makeButton, makeSlider } from "./controls.js";
import { make } from "./dom.js";
import { makeFilm } from "./film.js";

const PACE = 800; // milliseconds a step

// count(), place(): how many steps and which is on, -1 for none; go(place); said(place): a text, or parts of one; all():
// back to all of them, where there is such a state; film: { name, sheet(), colours } where the steps can be
// filmed, each for so many milliseconds; pace: milliseconds a step.
export function makePlayer({ label, slider = label, count, place, go, said, all = null, film = null, pace = PACE }) {
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const steps = `${label.toLowerCase()}s`;
  const button = (text, name, act) => makeButton(text, act, { "aria-label": name, title: name });
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
    playing = setInterval(tick, pace);
    update();
  };
  const player = button("Play", `Play the ${steps}`, play);
  const { range, output, update: slide } = makeSlider(slider, turn);
  const parts = [
    player,
    button("‹", `${label} before`, () => turn(place() - 1)),
    range,
    button("›", `Next ${label.toLowerCase()}`, () => turn(place() + 1)),
    output,
  ];
  const whole = button(`All ${steps}`, `Show all ${steps} at once`, () => {
    stop();
    all();
    update();
  });
  if (all) parts.push(whole);
  if (film) parts.push(makeFilm({ ...film, count, go }));
  const element = make("div", { class: "steps-bar" }, ...parts);
  function update() {
    player.hidden = still.matches;
    player.textContent = playing ? "Pause" : "Play";
    player.setAttribute("aria-label", playing ? "Pause" : `Play the ${steps}`);
    whole.hidden = place() < 0;
    slide(Math.max(0, place()), Math.max(1, count()), place() < 0 ? `All ${steps}` : said(place()));
  }
  return { element, range, update, stop, turn, play };
}
