// Step 8: all layers, from the learned to the contextual embedding.

import { makeTable } from "../base/controls.js";
import { make, readable } from "../base/dom.js";
import { drawPaths } from "../movement/drawing.js";
import { digits, largestOf, percent, strip, vectorTable } from "./figures.js";

const NEIGHBOURS = 5; // that are named

export const JOURNEY = {
  name: "Context",
  title: "Layer upon layer: the contextual embedding",
  said: (at) => [
    `Each of the ${at.layers} layers does this again. At the end `,
    at.word(),
    " is no longer a row of a table: it is ",
    at.word(),
    " in this sentence.",
  ],
  draw(at) {
    const { story, place } = at;
    const states = stateRows(at);
    const rows = [0, ...states.filter((row) => row !== 0)];
    const ways = rows.map((row) => {
      const { hidden } = story.rows[row];
      const moved = hidden === undefined ? { cosine: 1, distance: 0 } : story.moved(hidden, place);
      const values = at.vector(row);
      const bar = make("span", { class: "story-portion" });
      bar.style.setProperty("--weight", String(moved ? Math.max(0, moved.cosine) : 0));
      const last = hidden === at.layers;
      const item = make(
        "li",
        { class: `story-line story-state${last ? " result" : row === 0 ? " followed" : ""}` },
        make("span", { class: "story-name" }, stateName(hidden, last, row)),
        make("span", { class: "story-bars" }, strip(values, largestOf(values))),
        make("span", { class: "story-number" }, moved ? cosine(moved.cosine) : ""),
        make("span", { class: "story-bar", "aria-hidden": "true" }, bar),
      );
      return item;
    });
    const end = story.moved(at.layers, place);
    const turns = states
      .slice(1)
      .map((row) => [story.rows[row].hidden - 1, story.moved(story.rows[row].hidden, place, 2)]);
    const largest = turns.reduce((best, each) => (each[1].cosine < best[1].cosine ? each : best), turns[0]);
    const drawn = drawnFrom(at);
    const named = drawn.ranked.slice(0, NEIGHBOURS);
    return [
      make(
        "div",
        { class: "story-journey" },
        make(
          "div",
          {},
          make(
            "p",
            { class: "story-label" },
            `After each layer (${at.shownOf()}), and how alike it still is to the learned embedding`,
          ),
          make("ol", { class: "story-lines story-states" }, ...ways),
        ),
        make(
          "section",
          { class: "story-worked" },
          make("h3", {}, "Where it came to"),
          end
            ? make(
                "p",
                {},
                "The cosine to its learned embedding is now ",
                make("strong", {}, cosine(end.cosine)),
                ": 1 would be the same direction, 0 nothing in common.",
              )
            : "",
          largest
            ? make(
                "p",
                {},
                `Layer ${largest[0]} turned it most: the cosine of what it read and what it made of it is ${cosine(largest[1].cosine)}.`,
              )
            : "",
          make("h3", {}, "Words it drew from"),
          named.length > 0
            ? make(
                "ol",
                { class: "story-drawn" },
                ...named.map(([index, share]) => neighbour(at, index, share, named[0][1])),
              )
            : make("p", {}, drawn.waiting ? "The numbers are on their way." : "There is no other word to draw from."),
          make("p", { class: "note" }, drawn.said),
        ),
      ),
      ...endingOf(at),
    ];
  },
  numbers(at) {
    const { story, place } = at;
    const rows = stateRows(at);
    return [
      makeTable(
        "How far the word is from its learned embedding",
        ["State", "Cosine", "Distance", "Length"],
        rows.map((row) => {
          const { hidden } = story.rows[row];
          const moved = story.moved(hidden, place);
          return [
            stateName(hidden, hidden === at.layers, row),
            moved ? cosine(moved.cosine) : "",
            moved ? digits(moved.distance) : "",
            digits(at.length(row)),
          ];
        }),
      ),
      vectorTable(`Learned and contextual embedding: ${at.shownOf()}`, [
        ["Learned", at.vector(0)],
        ["Contextual", at.vector(at.hidden(at.layers))],
      ]),
    ];
  },
};

const cosine = (value) => value.toFixed(4).replace("-", "−");
const stateRows = ({ story }) => story.rows.flatMap(({ hidden }, row) => (hidden === undefined ? [] : [row]));

function stateName(hidden, last, row) {
  if (row === 0) return "learned embedding";
  if (last) return `after layer ${hidden - 1}: contextual`;
  return hidden === 0 ? "enters layer 0" : `after layer ${hidden - 1}`;
}

const neighbour = (at, index, share, most) => barLine(at.word("key", index), share, most);

function barLine(name, share, most) {
  const bar = make("span", { class: "story-portion" });
  bar.style.setProperty("--weight", String(share / most));
  return make(
    "li",
    {},
    name,
    make("span", { class: "story-number" }, percent(share)),
    make("span", { class: "story-bar", "aria-hidden": "true" }, bar),
  );
}

// What all this is for: the words that come next, or the word that stands in another sentence too.
function endingOf({ story, colours }) {
  const { next, movement } = story.ending ?? {};
  if (next) {
    const most = next[0].probability;
    const name = ({ text }) => make("bdi", {}, text === "\n" ? "new line" : readable(text));
    const lines = next.map((each) => barLine(name(each), each.probability, most));
    return [make("h3", {}, "What it is for: the next word"), make("ol", { class: "story-drawn story-next" }, ...lines)];
  }
  if (!movement) return [];
  const [word, other] = [movement.words[0], movement.texts[1]];
  const step = movement.steps.length - 1;
  const drawing = { facts: movement, projection: movement.projections.vectors, step, colours, width: 640, height: 340 };
  const said = `“${word}” begins as one row of the table. Here, and in “${other}”, it ends as two things:`;
  return [make("h3", {}, "What it is for: a word in its sentence"), make("p", {}, said), drawPaths(drawing)];
}

// The mean share that each other word has, over all heads and layers that the page holds.
export function drawnFrom(at) {
  const { source, chosen } = at;
  const { kind, query, keys } = chosen;
  const total = new Float64Array(keys.length);
  let rows = 0;
  let all = 0;
  let waiting = false;
  for (const layer of source.layers(kind)) {
    for (let head = 0; head < source.heads(kind, layer); head += 1) {
      all += 1;
      if (!source.holds(kind, layer, head)) continue;
      const row = source.row(kind, layer, head, query);
      if (row) row.forEach((weight, key) => (total[key] += weight));
      else waiting = true; // and the others are asked for at once
      rows += 1;
    }
  }
  if (waiting) return { ranked: [], means: null, waiting, said: "" };
  const others = keys
    .map((token, key) => [key, total[key] / rows, token])
    .filter(([key, share, token]) => share > 0 && !token.special && !(kind !== "cross" && key === query));
  const ranked = others.sort((a, b) => b[1] - a[1]).map(([key, share]) => [key, share]);
  const itself = (key) => kind !== "cross" && key === query;
  const marks = total.reduce((sum, share, key) => (keys[key].special && !itself(key) ? sum + share / rows : sum), 0);
  const rest = [
    kind === "cross" ? "" : ` ${percent(total[query] / rows)} went to itself.`,
    marks > 0 ? ` ${percent(marks)} went to marks, which are no words.` : "",
  ];
  return {
    ranked,
    means: total.map((each, key) => (keys[key].special ? 0 : each / rows)),
    waiting,
    said: `Shares of its attention, the mean of ${rows === all ? `all ${all}` : `${rows} of ${all}`} heads.${rest.join("")} What the model then makes of it, attention does not say.`,
  };
}
