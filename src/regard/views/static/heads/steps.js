// A decoder's rows step by step, as they were written: one query at a time, and nothing that comes after it.

import { make } from "../base/dom.js";

const PACE = 800; // milliseconds a row

// The bar above the lines; of an encoder, whose rows are all there at once, there is none. update() when the state
// has changed; key(event) is whether a key was meant for it.
export function makeSteps({ state }) {
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const button = (label, said, act) => {
    const element = make("button", { type: "button", class: "button", "aria-label": said, title: said }, label);
    element.addEventListener("click", act);
    return element;
  };
  const order = () => state.shown().queries;
  const place = () => order().indexOf(state.values.row);
  const go = (to) => state.set({ row: order()[Math.max(0, Math.min(order().length - 1, to))], pin: null, hover: null });
  let playing = 0;
  const stop = () => {
    clearInterval(playing);
    playing = 0;
    update();
  };
  const turn = (to) => {
    stop();
    go(to);
  };
  const tick = () => {
    if (!playing || state.values.view !== "heads" || state.values.row === null || place() === order().length - 1)
      stop();
    else go(place() + 1);
  };
  const play = () => {
    if (playing) {
      stop();
      return;
    }
    if (state.values.row === null || place() === order().length - 1) go(0);
    playing = setInterval(tick, PACE);
    update();
  };

  const begin = button("Step by step", "Show the rows step by step, as they were written", () => {
    turn(0);
    range.focus();
  });
  const player = button("Play", "Play the rows", play);
  const range = make("input", { type: "range", min: "0", step: "1", "aria-label": "Row that is being written" });
  range.addEventListener("input", () => turn(Number(range.value)));
  const said = make("output", {});
  const all = button("All rows", "Show all rows at once", () => {
    stop();
    state.set({ row: null, hover: null });
    begin.focus();
  });
  const bar = make(
    "div",
    { class: "steps-bar" },
    player,
    button("‹", "Row before", () => turn(place() - 1)),
    range,
    button("›", "Next row", () => turn(place() + 1)),
    said,
    all,
  );
  const element = make("div", { class: "steps", role: "group", "aria-label": "Rows as they were written" }, begin, bar);

  function update() {
    const { kind, row } = state.values;
    if (playing && row === null) stop();
    element.hidden = kind === "encoder" || order().length === 0;
    begin.hidden = row !== null;
    bar.hidden = row === null;
    player.hidden = still.matches;
    player.textContent = playing ? "Pause" : "Play";
    player.setAttribute("aria-label", playing ? "Pause" : "Play the rows");
    if (row === null) return;
    const count = order().length;
    range.max = String(count - 1);
    range.value = String(place());
    const name = state.units("query").name(row);
    said.replaceChildren(`Row ${place() + 1} of ${count}: `, make("bdi", { dir: "auto" }, name));
    range.setAttribute("aria-valuetext", `row ${place() + 1} of ${count}, ${name}`);
  }

  const key = (event) => {
    const by = { "[": -1, "]": 1 }[event.key];
    // Many keyboards have brackets on AltGr, which counts as Ctrl and Alt.
    const browsers = event.metaKey || (event.ctrlKey && !event.altKey);
    if (!by || browsers || state.values.kind === "encoder") return;
    event.preventDefault();
    turn(state.values.row === null ? (by > 0 ? 0 : order().length - 1) : place() + by);
  };
  still.addEventListener("change", stop);
  return { element, update, key };
}
