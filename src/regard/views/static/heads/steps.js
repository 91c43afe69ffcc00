// A decoder's rows step by step, as they were written: one query at a time, and nothing that comes after it.

import { make } from "../base/dom.js";
import { makePlayer } from "../base/player.js";

// The bar above the lines; of an encoder, whose rows are all there at once, there is none. sheet(): the picture that is
// on show, for the film. update() when the state has changed; key(event) is whether a key was meant for it.
export function makeSteps({ state, colours }, sheet) {
  const order = () => state.shown().queries;
  const place = () => order().indexOf(state.values.row);
  const named = (at) => state.units("query").name(order()[at]);
  const player = makePlayer({
    label: "Row",
    slider: "Row that is being written",
    count: () => order().length,
    place,
    go: (to) => state.set({ row: order()[to], pin: null, hover: null }),
    said: (at) => ["Row ", `${at + 1} of ${order().length}: `, make("bdi", { dir: "auto" }, named(at))],
    all: () => {
      state.set({ row: null, hover: null });
      begin.focus();
    },
    film: { name: "rows", sheet, colours },
  });
  const said = "Show the rows step by step, as they were written";
  const begin = make("button", { type: "button", class: "button", "aria-label": said, title: said }, "Step by step");
  begin.addEventListener("click", () => {
    player.turn(0);
    player.range.focus();
  });
  const label = "Rows as they were written";
  const element = make("div", { class: "steps", role: "group", "aria-label": label }, begin, player.element);

  const update = () => {
    const { kind, row } = state.values;
    if (row === null) player.stop();
    element.hidden = kind === "encoder" || order().length === 0;
    begin.hidden = row !== null;
    player.element.hidden = row === null;
    player.update();
  };

  const key = (event) => {
    const by = { "[": -1, "]": 1 }[event.key];
    // Many keyboards have brackets on AltGr, which counts as Ctrl and Alt.
    const browsers = event.metaKey || (event.ctrlKey && !event.altKey);
    if (!by || browsers || state.values.kind === "encoder") return;
    event.preventDefault();
    player.turn(state.values.row === null ? (by > 0 ? 0 : order().length - 1) : place() + by);
  };
  return { element, update, key };
}
