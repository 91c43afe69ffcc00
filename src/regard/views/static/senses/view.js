// The senses of a word: a map of its uses in groups, the groups, and each use as a line to read.

import { makeButton, makeCopy } from "../base/controls.js";
import { drawn, make, makeNote, onClicks, readable, whenWider } from "../base/dom.js";
import { DOWN, makeStop, onKeys, placeIn } from "../base/keys.js";
import { countOr } from "../base/state.js";
import { drawMap } from "./drawing.js";
import { markOf } from "./marks.js";

const AROUND = 70; // characters of a line in the list, on either side
const HELP = [
  ["The map of uses", "has a mark for each use of the word; those that lie together are alike in the vectors"],
  ["↑ ↓ in the list of lines", "the line before or after; its use is marked on the map"],
  ["A group", "shows its own lines alone; chosen again, all"],
];

const fits = (source) => Boolean(source.facts.senses);
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
const percent = (share) => `${(100 * share).toFixed(0)} %`;

function open({ source, state, colours }) {
  const facts = source.facts.senses;
  const shown = () =>
    facts.lines.flatMap((line, i) => (!state.values.sense || line.sense === state.values.sense ? [i] : []));
  const use = () => (state.values.use !== null && state.values.use < facts.lines.length ? state.values.use : null);
  const read = (i) => state.set({ use: i });
  const readOf = ({ dataset }) => read(Number(dataset.use));

  const mark = (name) => {
    const { d, colour, hollow } = markOf(facts.groups, name, colours);
    const look = { d, fill: hollow ? "none" : colour, stroke: colour, "stroke-width": 0.3 };
    return drawn("svg", { class: "sense-mark", viewBox: "-1.5 -1.5 3 3", "aria-hidden": "true" }, drawn("path", look));
  };
  const inLine = ({ left, node, right }, most) =>
    make(
      "bdi",
      { dir: "auto" },
      (left.length > most ? "…" : "") + left.slice(-most),
      make("b", {}, readable(node)),
      right.slice(0, most) + (right.length > most ? "…" : ""),
    );

  const figure = make("div", { class: "figure" });
  onClicks(figure, "[data-use]", readOf);

  // The line that is read, and the way to its attention.
  const reading = make("section", { class: "sense-reading", "aria-label": "The line", "aria-live": "polite" });
  const fillReading = () => {
    const i = use();
    if (i === null) {
      reading.replaceChildren(makeNote("Choose a mark on the map, or a line, to read it."));
      return;
    }
    const line = facts.lines[i];
    const sure = line.p === null ? "" : `, ${percent(line.p)} likely`;
    const run = facts.traced.indexOf(i);
    reading.replaceChildren(
      make("p", { class: "sense-line" }, inLine(line, Infinity)),
      makeNote(mark(line.sense), ` ${line.sense}${sure} · ${line.where}`),
      run < 0 ? command(line) : attention(run),
    );
  };
  const attention = (run) =>
    makeButton("See its attention", () => state.set({ run, view: "heads", pin: null, hover: null, also: [] }));
  const command = ({ left, node, right }) => {
    const text = `regard look -- ${quoted(left + node + right)}`;
    const refused = "The browser does not let this page copy: mark the command.";
    const { button, told } = makeCopy("Copy", { text: () => text, copied: () => "Copied.", refused });
    return make(
      "div",
      { class: "sense-command" },
      makeNote("Its attention is not in this page. This command draws it:"),
      make("code", {}, text),
      button,
      told,
    );
  };

  const groups = make("ul", { class: "sense-groups" });
  onClicks(groups, "[data-use]", readOf);
  onClicks(groups, "[data-sense]", ({ dataset: { sense } }) =>
    state.set({ sense: state.values.sense === sense ? "" : sense }),
  );
  const fillGroups = () => {
    const held = document.activeElement?.getAttribute("data-sense");
    groups.replaceChildren(
      ...facts.groups.map(({ sense, uses, share, neighbours, substitutes, typical }) => {
        const name = make(
          "button",
          {
            type: "button",
            class: "sense-group",
            "data-sense": sense,
            "aria-pressed": String(state.values.sense === sense),
          },
          mark(sense),
          make("bdi", {}, readable(sense)),
          make("span", { class: "sense-share" }, `${percent(share)}, ${uses} use${uses === 1 ? "" : "s"}`),
        );
        const words = (said, list) => (list.length > 0 ? [makeNote(`${said}: ${list.join(", ")}`)] : []);
        const lines = typical.map((i) =>
          make(
            "li",
            {},
            make("button", { type: "button", class: "use-line", "data-use": String(i) }, inLine(facts.lines[i], 38)),
          ),
        );
        return make(
          "li",
          {},
          name,
          ...words("Beside it", neighbours),
          ...words("In its place", substitutes),
          make("ul", { class: "sense-typical", "aria-label": `Typical lines of ${sense}` }, ...lines),
        );
      }),
    );
    if (held !== null && held !== undefined)
      [...groups.querySelectorAll("[data-sense]")].find((each) => each.dataset.sense === held)?.focus();
  };

  const list = make("ol", { class: "sense-all" });
  const heading = make("h2", { class: "panel-title" });
  const stop = makeStop();
  const rows = new Map();
  const fillLines = () => {
    const some = shown();
    heading.textContent = state.values.sense
      ? `${some.length} lines of ${state.values.sense}`
      : `All ${some.length} lines`;
    rows.clear();
    list.replaceChildren(
      ...some.map((i) => {
        const row = make(
          "button",
          { type: "button", class: "use-line", "data-use": String(i), tabindex: "-1" },
          mark(facts.lines[i].sense),
          make("span", { class: "sr-only" }, `${facts.lines[i].sense}: `),
          inLine(facts.lines[i], AROUND),
        );
        rows.set(i, row);
        return make("li", {}, row);
      }),
    );
    showLine();
  };
  const showLine = () => {
    for (const row of list.querySelectorAll("[aria-current]")) row.removeAttribute("aria-current");
    const row = rows.get(use());
    row?.setAttribute("aria-current", "true");
    stop(row ?? rows.values().next().value);
    if (row && list.clientHeight < list.scrollHeight) {
      const { offsetTop, offsetHeight } = row;
      if (offsetTop < list.scrollTop || offsetTop + offsetHeight > list.scrollTop + list.clientHeight)
        list.scrollTop = offsetTop - list.clientHeight / 2;
    }
  };
  onClicks(list, "[data-use]", readOf);
  onKeys(list, (key, { target }) => {
    const all = [...rows.values()];
    const to = placeIn(all.length, all.indexOf(target), key, DOWN);
    if (to === undefined) return false;
    all[to].focus();
    readOf(all[to]);
    return true;
  });

  const drawFigure = () => {
    const width = Math.max(280, figure.clientWidth || 700);
    const height = Math.round(Math.max(280, Math.min(560, width * 0.66, window.innerHeight - 400)));
    figure.replaceChildren(drawMap({ facts, sense: state.values.sense, use: use(), colours, width, height }));
  };
  const draw = () => {
    fillReading();
    fillGroups();
    fillLines();
    drawFigure();
  };

  const part = facts.lines.length < facts.total ? ` ${facts.lines.length} of ${facts.total} uses are drawn.` : "";
  const element = make(
    "div",
    { class: "senses" },
    make(
      "section",
      { class: "senses-map", "aria-label": "Map of uses" },
      makeNote(`${facts.about}${part}`),
      figure,
      reading,
    ),
    make(
      "aside",
      { class: "senses-side", "aria-label": "Groups" },
      make("h2", { class: "panel-title" }, "Groups"),
      groups,
    ),
    make("section", { class: "senses-lines", "aria-label": "Lines" }, heading, list),
  );
  const start = () => {
    draw();
    whenWider(figure, drawFigure, state.gone);
  };
  const changed = (names) => {
    if (names.has("look")) return draw();
    if (names.has("sense")) {
      fillGroups();
      fillLines();
    }
    if (names.has("use")) {
      fillReading();
      showLine();
    }
    if (names.has("sense") || names.has("use")) drawFigure();
  };
  const print = () => draw;
  return { element, start, changed, print };
}

const fields = {
  sense: {
    initial: "",
    read: (text, { source }) => (source.facts.senses?.groups.some(({ sense }) => sense === text) ? text : undefined),
    write: (sense) => sense || null,
  },
  use: countOr(null),
};

export const VIEW = {
  name: "senses",
  label: "Senses",
  fits,
  fields,
  guide:
    "Each mark is one use of the word. Marks that lie together have vectors that are alike; groups are no dictionary.",
  help: HELP,
  open,
};
