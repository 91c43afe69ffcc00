// Step 8: all layers, from the learned to the contextual embedding.

import { makeTable } from "../base/controls.js";
import { make, makeNote, readable } from "../base/dom.js";
import { allHeads } from "../base/held.js";
import { wordsOf } from "../base/shares.js";
import { besideSaid, drawBeside } from "../movement/beside.js";
import { largestSize } from "../neuron/figures.js";
import { digits, percent, strip, vectorTable } from "./figures.js";

const NEIGHBOURS = 5; // that are named
const HEADING = "What it is for: a word in its sentence";
const WIDTH = 520; // pixels, of the drawing

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
    const end = story.moved(at.layers, place);
    const turns = states
      .slice(1)
      .map((row) => [story.rows[row].hidden - 1, story.moved(story.rows[row].hidden, place, 2)]);
    const largest = turns.reduce((best, each) => (each[1].cosine < best[1].cosine ? each : best), turns[0]);
    const ending = endingOf(at);
    return [
      make(
        "div",
        { class: ending ? "story-journey ending" : "story-journey" },
        make(
          "div",
          {},
          make(
            "p",
            { class: "story-label" },
            `After each layer (${at.shownOf()}), and how alike it still is to the learned embedding`,
          ),
          waysOf(at),
        ),
        ending ?? "",
        make(
          "section",
          { class: "story-worked" },
          make("div", {}, ...cameTo(end, largest)),
          make("div", {}, ...drewFrom(at)),
        ),
      ),
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

// The word after each layer, or after so many, evenly apart, and how alike it still is to the learned embedding.
export function waysOf(at, most = Number.POSITIVE_INFINITY) {
  const { story, place } = at;
  const all = [0, ...stateRows(at).filter((row) => row !== 0)];
  const evenly = (_, each) => all[Math.round((each * (all.length - 1)) / (most - 1))];
  const rows = all.length <= most ? all : Array.from({ length: most }, evenly);
  const ways = rows.map((row) => {
    const { hidden } = story.rows[row];
    const moved = hidden === undefined ? { cosine: 1, distance: 0 } : story.moved(hidden, place);
    const values = at.vector(row);
    const bar = make("span", { class: "story-portion", "--weight": moved ? Math.max(0, moved.cosine) : 0 });
    const last = hidden === at.layers;
    return make(
      "li",
      { class: `story-line story-state${last ? " result" : row === 0 ? " followed" : ""}` },
      make("span", { class: "story-name" }, stateName(hidden, last, row)),
      make("span", { class: "story-bars" }, strip(values, largestSize(values))),
      make("span", { class: "story-number" }, moved ? cosine(moved.cosine) : ""),
      make("span", { class: "story-bar", "aria-hidden": "true" }, bar),
    );
  });
  return make("ol", { class: "story-lines story-states" }, ...ways);
}

function cameTo(end, largest) {
  const now = "The cosine to its learned embedding is now ";
  const rest = ": 1 would be the same direction, 0 nothing in common.";
  return [
    make("h3", {}, "Where it came to"),
    end ? make("p", {}, now, make("strong", {}, cosine(end.cosine)), rest) : "",
    largest
      ? make(
          "p",
          {},
          `Layer ${largest[0]} turned it most: the cosine of what it read and what it made of it is ${cosine(largest[1].cosine)}.`,
        )
      : "",
  ];
}

function drewFrom(at) {
  const { ranked, waiting, said } = drawnFrom(at);
  const named = ranked.slice(0, NEIGHBOURS);
  const bars = named.map(([index, share]) => neighbour(at, index, share, named[0][1]));
  const none = waiting ? "The numbers are on their way." : "There is no other word to draw from.";
  return [
    make("h3", {}, "Words it drew from"),
    named.length > 0 ? make("ol", { class: "story-drawn" }, ...bars) : make("p", {}, none),
    makeNote(said),
  ];
}

const cosine = (value) => value.toFixed(4).replace("-", "−");
const stateRows = ({ story }) => story.rows.flatMap(({ hidden }, row) => (hidden === undefined ? [] : [row]));

function stateName(hidden, last, row) {
  if (row === 0) return "learned embedding";
  if (last) return `after layer ${hidden - 1}: contextual`;
  return hidden === 0 ? "enters layer 0" : `after layer ${hidden - 1}`;
}

const neighbour = (at, index, share, most) => barLine(at.word("key", index), share, most);

function barLine(name, share, most) {
  const bar = make("span", { class: "story-portion", "--weight": share / most });
  return make(
    "li",
    {},
    name,
    make("span", { class: "story-number" }, percent(share)),
    make("span", { class: "story-bar", "aria-hidden": "true" }, bar),
  );
}

// What all this is for: the words that come next, or the word that stands in another sentence too. null for nothing.
export function endingOf({ story, source, state, chosen, colours }) {
  const { next, beside } = story.ending ?? {};
  if (next) {
    const most = next[0].probability;
    const name = ({ text }) => make("bdi", {}, readable(text));
    const lines = next.map((each) => barLine(name(each), each.probability, most));
    return section("What it is for: the next word", make("ol", { class: "story-drawn story-next" }, ...lines));
  }
  const { first } = wordsOf(state, chosen.kind).at(chosen.query);
  const found = source.beside ? source.beside(first) : writtenOf(beside, first);
  if (!found) return found === null ? section(HEADING, make("p", {}, "The numbers are on their way.")) : null;
  return section(HEADING, besideSaid(found), drawBeside(found, colours, WIDTH));
}

const section = (title, ...parts) => make("section", { class: "story-end" }, make("h3", {}, title), ...parts);

// Of a page without a model: the words of which it knows it, and for another the first of them.
function writtenOf(beside, first) {
  const each = beside?.of[first] ?? Object.values(beside?.of ?? {})[0];
  return each && { ...each, steps: beside.steps, texts: [beside.text, each.text] };
}

// The mean share that each other word has, over all heads and layers that the page holds.
export function drawnFrom(at) {
  const { source, chosen } = at;
  const { kind, query, keys } = chosen;
  const total = new Float64Array(keys.length);
  const heads = allHeads(source, kind);
  const held = heads.filter(({ layer, head }) => source.holds(kind, layer, head));
  const [rows, all] = [held.length, heads.length];
  let waiting = false;
  for (const { layer, head } of held) {
    const row = source.row(kind, layer, head, query);
    if (row) row.forEach((weight, key) => (total[key] += weight));
    else waiting = true; // and the others are asked for at once
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
