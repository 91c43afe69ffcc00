// Of a network that is trained, the bar over every view that goes through the traced steps.

import { make } from "./dom.js";
import { makePlayer } from "./player.js";

const PACE = 260; // milliseconds a step
const SETTLED = 200; // after which small pictures have come, for a film

export const stepsOf = (source) => source.facts.training.steps;

// "step 1,250"
export const stepSaid = (source, place) => `step ${stepsOf(source)[place].toLocaleString("en")}`;

// picture(): a sheet of the view that is on, or a promise of it.
export function makeTrainingBar(source, state, colours, host, picture) {
  const count = () => stepsOf(source).length;
  const said = (place) => {
    const loss = source.facts.training.losses[place];
    const step = place === 0 && stepsOf(source)[0] === 0 ? "untrained" : stepSaid(source, place);
    return loss === null ? step : `${step}, loss ${loss.toFixed(2)}`;
  };
  const player = makePlayer({
    label: "Step",
    slider: "Step of the training",
    pace: PACE,
    count,
    place: () => state.values.at,
    go: (at) => state.set({ at, hover: null }),
    said,
    film: {
      name: "training",
      each: PACE,
      sheet: async () => {
        await new Promise((done) => setTimeout(done, SETTLED));
        return picture();
      },
      colours,
    },
  });
  player.range.title = "Keys: , and . go a step back and forth, p plays";
  const { traced } = source.facts.training;
  const some =
    traced > count() ? [make("span", { class: "note" }, `${count()} of ${traced} traced steps, for room`)] : [];
  const element = make(
    "section",
    { class: "training-bar", "aria-label": "Training" },
    make("strong", {}, "Training"),
    player.element,
    ...some,
  );
  host.keys.addEventListener("keydown", (event) => {
    const typing = /** @type {Element} */ (event.target).matches?.("input[type=text], textarea, select");
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === ",") player.turn(state.values.at - 1);
    else if (event.key === ".") player.turn(state.values.at + 1);
    else if (event.key === "p") player.play();
  });
  state.follow(["at"], player.update);
  return element;
}
