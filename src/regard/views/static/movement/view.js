// The movement map: a word's way from its learned to its contextual embedding, in several sentences.

import { makeChoice, makeScroll, makeSelect, makeTable } from "../base/controls.js";
import { make, makeNote, makeSection, onClicks, readable, whenWider } from "../base/dom.js";
import { makePlayer } from "../base/player.js";
import { sheetOf } from "../base/sheet.js";
import { countOr, oneOf } from "../base/state.js";
import { drawPaths, stepName } from "./drawing.js";

const HELP = [
  [
    "The movement map",
    "has one path for each sentence; equal lengths in it are equal distances, as far as its two axes hold them",
  ],
  ["← → on the slider", "one step of the model back or forth; a click on a point, or a row of the table, goes there"],
];
const WAYS = [
  ["directions", "Directions"],
  ["vectors", "Vectors"],
];

const fits = (source) => Boolean(source.facts.movement);

function open({ source, state, colours }) {
  const facts = source.facts.movement;
  const last = facts.steps.length - 1;
  const stepOf = () => Math.min(state.values.step ?? last, last);
  const projection = () => facts.projections[state.values.way];
  const pairs = facts.texts.flatMap((_, a) => facts.texts.slice(a + 1).map((_text, i) => [a, a + 1 + i]));
  const pair = () => pairs[Math.min(state.values.couple, pairs.length - 1)];

  const title = make("h2", { class: "where" });
  const words = [...new Set(facts.words)];
  words.forEach((word, i) => title.append(i ? " / " : "", make("bdi", { dir: "auto" }, readable(word))));
  title.append(", from its learned to its contextual embedding");

  const ways = makeChoice({
    name: "way",
    legend: "What is projected",
    options: WAYS,
    value: () => state.values.way,
    choose: (way) => state.set({ way }),
  });
  const go = (step) => state.set({ step });
  const player = makePlayer({
    label: "Step",
    count: () => facts.steps.length,
    place: stepOf,
    go,
    said: (step) => stepName(facts, step),
    film: {
      name: "movement",
      sheet: () =>
        sheetOf(figure, { title: `${title.textContent}: ${stepName(facts, stepOf())}`, name: "movement" }, colours),
      colours,
    },
  });

  const figure = make("div", { class: "figure" });
  const goTo = ({ dataset }) => player.turn(Number(dataset.step));
  onClicks(figure, "[data-step]", goTo);

  const legend = make("ol", { class: "sentences" });
  const drawLegend = () =>
    legend.replaceChildren(
      ...facts.texts.map((text, i) => {
        const line = make("span", { class: "number-of", "aria-hidden": "true" }, String(i + 1));
        line.style.background = colours.sentence(i);
        return make("li", {}, line, make("bdi", { dir: "auto" }, readable(text)));
      }),
    );

  const belief = make("p", { class: "belief" });
  const inShort = make("p", { class: "in-short" });
  const choose = makeSelect("Which two sentences", (couple) => state.set({ couple: Number(couple) }));
  const table = makeScroll("Distances");
  onClicks(table, "[data-step]", goTo);
  const note = makeNote("Distance is the true one, in all dimensions; drawn is its length in the picture.");
  const between = makeSection(
    { class: "between", "aria-label": "Distances between the sentences" },
    "Between the sentences",
    choose.element,
    table,
    note,
  );
  between.hidden = pairs.length === 0;
  choose.element.hidden = pairs.length < 2;

  const fillTable = () => {
    if (pairs.length === 0) return;
    const [a, b] = pair();
    const { true: far, drawn } = projection();
    const names = () => pairs.map(([one, other], i) => [i, `Sentences ${one + 1} and ${other + 1}`]);
    choose.update("", names, Math.min(state.values.couple, pairs.length - 1));
    const number = (value) => (value === null ? "-" : value.toFixed(4));
    const made = makeTable(
      `Sentences ${a + 1} and ${b + 1}, step by step`,
      ["Step", "Cosine", "Distance", "Drawn"],
      facts.steps.map((name, i) => [name, ...[facts.similarity, far, drawn].map((of) => number(of[i][a][b]))]),
      (i) => ({ "data-step": String(i), "aria-current": i === stepOf() ? "step" : null }),
    );
    made.caption.classList.add("sr-only");
    table.replaceChildren(made);
  };

  const believe = () => {
    const { share, apart: kept, agreement, length } = projection();
    const percent = (part) => `${(100 * part).toFixed(1)} %`;
    const what =
      state.values.way === "directions"
        ? "Every vector is scaled to length 1, so that distances are those of directions. "
        : "";
    const agree =
      agreement === null
        ? ""
        : ` True and drawn distances of all pairs of points correlate with r = ${agreement.toFixed(3)}.`;
    const { true: far, drawn } = projection();
    const total = (steps) => steps.reduce((sum, step) => sum + pairs.reduce((part, [a, b]) => part + step[a][b], 0), 0);
    const part = total(far) > 0 ? total(drawn) / total(far) : length;
    inShort.textContent = `Distances${total(far) > 0 ? " between the sentences" : ""} are drawn at ${(100 * part).toFixed(0)} % of their length.`;
    const up =
      kept === null
        ? "up, the direction across it in which it varies most"
        : `up, the direction at right angles to it in which the sentences differ most, which holds ${percent(kept)} of how they differ`;
    const between =
      total(far) > 0 ? ` Between the sentences, at the same step, it is ${percent(total(drawn) / total(far))}.` : "";
    const axes = projection().ends
      ? `Across and up are the two directions in which the words' contextual embeddings differ most; they keep ${percent(kept ?? 0)} of how these differ, and ${percent(share[0] + share[1])}`
      : `Across is the way that the word goes ${facts.texts.length > 1 ? "in all sentences alike" : "most"}; ${up}. Together they keep ${percent(share[0] + share[1])}`;
    belief.textContent = `${what}${axes} of the variance of all points.${agree} On the whole a drawn distance is ${percent(length)} of the true one; it is never longer.${between}`;
  };

  const drawFigure = () => {
    const width = Math.max(280, figure.clientWidth || 700);
    const height = Math.round(Math.max(300, Math.min(640, width * 0.68, Math.max(360, window.innerHeight - 440))));
    figure.replaceChildren(drawPaths({ facts, projection: projection(), step: stepOf(), colours, width, height }));
  };

  const draw = () => {
    ways.update();
    player.update();
    drawLegend();
    believe();
    fillTable();
    drawFigure();
  };

  const element = make(
    "div",
    { class: "movement" },
    make(
      "section",
      { class: "movement-map", "aria-label": "Movement map" },
      make("div", { class: "view-top" }, title, make("div", { class: "controls" }, ways.element)),
      legend,
      figure,
      player.element,
    ),
    make(
      "aside",
      { class: "movement-side", "aria-label": "Distances" },
      make(
        "section",
        { class: "faithful", "aria-label": "How far the picture can be believed" },
        inShort,
        make("details", { class: "belief-more" }, make("summary", {}, "How far to believe it"), belief),
      ),
      between,
    ),
  );
  const start = () => {
    draw();
    whenWider(figure, drawFigure, state.gone);
  };
  const changed = (names) => {
    if (["way", "step", "couple", "look"].some((name) => names.has(name))) draw();
  };
  const print = () => draw;
  return { element, start, changed, print };
}

const fields = {
  way: oneOf(WAYS.map(([name]) => name)),
  step: countOr(null),
  couple: countOr(0),
};

export const VIEW = {
  name: "movement",
  label: "Movement",
  fits,
  fields,
  guide:
    "Each path is a word's vector on its way through the layers. Where paths part, their sentences tell them apart.",
  help: HELP,
  open,
};
