// The training view: every head as it emerges, with a number of it over the steps; when heads got their names; the loss;
// and the words on their way.

import { makeButton, makeSelect } from "../base/controls.js";
import { make, makeNote, makeSection, onClicks, whenWider } from "../base/dom.js";
import { HeadGrid } from "../base/grid.js";
import { inShort, nameOf, whole, withEffect } from "../base/names.js";
import { oneOf } from "../base/state.js";
import { stepSaid } from "../base/training_bar.js";
import { formatStatistic } from "../model/statistics.js";
import STATISTICS from "../statistics.json";
import { makeChart, makeSpark } from "./curves.js";
import { Emergence } from "./emergence.js";
import { makeWords } from "./words.js";

const SPARK = 36; // pixels
const CAPTION = 40;

const HELP = [
  [", and .", "the traced step before, and the next one; P plays the training, in every view"],
  ["Click on a curve's step", "goes there"],
  ["Click, Enter or Space on a head", "shows its curve; once more opens it"],
];

function open(page) {
  const { source, state } = page;
  const emergence = new Emergence(page);
  const offered = () => STATISTICS.filter(({ name }) => source.statistics(state.values.kind)?.[name]);
  const stat = () => offered().find(({ name }) => name === state.values.curve) ?? offered()[0];
  const idOf = ({ layer, head }) => `${layer}.${head}`;
  const isOn = ({ layer, head }) => layer === state.values.layer && head === state.values.head;
  const openHead = ({ layer, head }) =>
    state.set({ view: "heads", layer, head, also: [], hover: null, largest: "one" });

  const choose = makeSelect("Curves show", (curve) => state.set({ curve }));
  const says = makeNote();

  const loss = makeChart({
    source,
    state,
    label: "The loss over the steps",
    height: 110,
    curves: () => [{ values: losses(), of: "loss", said: "Loss", on: true }],
    range: () => [Math.min(...present(losses())), Math.max(...present(losses()))],
    marks: () => emergence.events().map(({ head, named }) => ({ place: named.place, said: told(head, named) })),
  });
  const told = (head, { name }) => `${idOf(head)} ${inShort(name)}`;
  const present = (values) => values.filter((value) => value !== null);
  const losses = () => source.facts.training.losses;

  const fill = (cell, grid) => {
    const { name } = stat();
    const made = `${name}.${grid.side}.${state.values.effect}`;
    if (cell.made !== made) {
      cell.made = made;
      const [least, most] = emergence.range(name);
      const { place = null } = emergence.named(cell) ?? {};
      cell.values = emergence.values(cell, name);
      cell.spark = makeSpark({ values: cell.values, least, most, width: grid.side, height: SPARK, since: place });
      cell.number = make("span", { class: "wall-number" }, "");
      cell.shown = make("span", { class: "wall-does" }, "");
      cell.element.replaceChildren(
        make("span", { class: "wall-picture" }),
        make("span", { class: "wall-caption" }, make("span", { class: "wall-name" }, idOf(cell)), cell.number),
        cell.shown,
        cell.spark.element,
      );
    }
    const { at } = state.values;
    cell.spark.turn(at);
    cell.shown.textContent = cell.named ? inShort(cell.named) : "";
    cell.number.textContent = formatStatistic(cell.values[at], 2);
    cell.element.title = cell.does;
    const value = formatStatistic(cell.values[at], 3);
    cell.element.setAttribute(
      "aria-label",
      `${cell.name}${cell.does ? `, ${cell.does}` : ""}, ${stat().label} ${value}`,
    );
  };
  const grid = new HeadGrid(page, {
    name: "wall emerging",
    label: "All layers and heads at this step",
    least: 64,
    most: 150,
    below: CAPTION + SPARK,
    gap: 10,
    fill,
    open: (cell) => (isOn(cell) ? openHead(cell) : state.set({ layer: cell.layer, head: cell.head })),
  });

  const title = make("h2", { class: "panel-title" });
  const history = make("p", { class: "training-history" });
  const unit = makeNote();
  const curve = makeChart({
    source,
    state,
    label: "This head and the others over the steps",
    height: 170,
    curves: () =>
      emergence.heads().map((head) => ({
        values: emergence.values(head, stat().name),
        of: idOf(head),
        said: `Head ${idOf(head)}`,
        on: isOn(head),
      })),
    range: () => emergence.range(stat().name),
    choose: (of) => {
      const [layer, head] = of.split(".").map(Number);
      state.set({ layer, head, also: [] });
    },
  });
  const opener = makeButton("Open this head", () => openHead(state.values));
  const events = make("ol", { class: "training-events" });
  onClicks(events, "[data-at]", ({ dataset: { at, layer, head } }) =>
    state.set({ at: Number(at), layer: Number(layer), head: Number(head), also: [], hover: null }),
  );
  const none = makeNote("");
  const words = makeWords(page);

  const drawEvents = () => {
    const found = emergence.events();
    const { said, patterns = [] } = source.facts.names ?? {};
    const why = patterns.length > 0 ? "" : ` ${said ?? ""}`;
    none.textContent = found.length > 0 ? "" : `At the end no head follows a pattern that has a name.${why}`;
    events.replaceChildren(
      ...found.map(({ head, named }) =>
        make(
          "li",
          {},
          make(
            "button",
            {
              type: "button",
              "data-at": String(named.place),
              "data-layer": String(head.layer),
              "data-head": String(head.head),
            },
            make("span", { class: "training-when" }, stepSaid(source, named.place)),
            make("span", {}, told(head, named)),
          ),
        ),
      ),
    );
  };
  const markEvents = () => {
    for (const button of events.querySelectorAll("button")) {
      const { at, layer, head } = button.dataset;
      button.classList.toggle("to-come", Number(at) > state.values.at);
      button.setAttribute("aria-pressed", String(isOn({ layer: Number(layer), head: Number(head) })));
    }
  };
  const drawHead = () => {
    const { kind } = state.values;
    const now = withEffect(nameOf(source, { kind, effect: 0 }, state.values));
    const named = emergence.named(state.values);
    title.textContent = `Layer ${state.values.layer}, head ${state.values.head}${now ? `: ${now}` : ""}`;
    const { patterns = [] } = source.facts.names ?? {};
    const meaning = named && patterns.find(({ name }) => name === named.name.name)?.says;
    history.textContent = named
      ? `${whole(named.name)} ${named.place === 0 ? "from the first step on" : `since ${stepSaid(source, named.place)}`}. ${meaning ?? ""}`
      : "At the end it has no name.";
    unit.textContent = `${stat().label}${stat().unit ? `, ${stat().unit}` : ""}, over the steps; the other heads are pale.`;
    curve.draw();
  };
  const turn = () => {
    loss.draw();
    markEvents();
    drawHead();
    words.turn();
  };
  const show = () => {
    choose.update(
      state.values.kind,
      () => offered().map(({ name, label, unit: of }) => [name, of ? `${label} (${of})` : label]),
      stat().name,
    );
    says.textContent = `The line under each head is its ${stat().label.toLowerCase()} over the steps: ${stat().says}. ▴ is where it gets the name that it keeps.`;
  };

  const lossPart = makeSection({ class: "training-loss", "aria-label": "Loss" }, "Loss", loss.element);
  lossPart.hidden = present(losses()).length === 0;
  const element = make(
    "div",
    { class: "training-view" },
    make(
      "section",
      { class: "training-main", "aria-label": "All heads" },
      make("div", { class: "controls" }, choose.element),
      says,
      grid.element,
      words.element,
    ),
    make(
      "aside",
      { class: "training-side" },
      make(
        "section",
        { class: "training-head", "aria-label": "One head" },
        title,
        history,
        unit,
        curve.element,
        opener,
      ),
      makeSection({ "aria-label": "Names" }, "When heads got their names", none, events),
      lossPart,
    ),
  );

  const drawAll = () => {
    show();
    drawEvents();
    grid.rebuild();
    words.draw();
    turn();
  };
  const start = () => {
    drawAll();
    whenWider(element, turn, state.gone);
  };
  const changed = (names) => {
    const has = (...wanted) => wanted.some((name) => names.has(name));
    if (has("at")) {
      grid.rebuild();
      turn();
    } else if (has("kind")) drawAll();
    if (has("curve", "effect")) {
      show();
      grid.fill();
      drawEvents();
      turn();
    }
    if (has("rows")) grid.resume();
    if (has("specials", "filter", "what")) grid.restart();
    if (has("look")) grid.repaint();
    if (has("layer", "head")) {
      grid.mark();
      markEvents();
      drawHead();
    }
    if (has("pin")) words.draw();
  };
  const print = (on) => () => {
    grid.print(on);
    turn();
  };
  return { element, start, changed, print };
}

export const VIEW = {
  name: "training",
  label: "Training",
  fits: (source) => Boolean(source.facts.training),
  fields: { curve: oneOf(STATISTICS.map(({ name }) => name)) },
  guide: "Each square is a head, with a row for each word that looks. Press Play to see heads learn where to look.",
  help: HELP,
  open,
};
