// Step 7: a layer, from what a head brings to what the next layer reads.

import { makeButton, makeTable } from "../base/controls.js";
import { make, makeNote } from "../base/dom.js";
import { largestSize } from "../neuron/figures.js";
import { digits, strip, sumEquation, vectorLines, vectorTable } from "./figures.js";
import { isNorm } from "./followed.js";

const MOST_HEADS = 16; // whose results are drawn one beside the other

export const LAYER = {
  name: "Layer",
  title: "All heads together, and the rest of the layer",
  inLayer: true,
  said: (at) => [
    `The results of all ${at.source.heads(at.chosen.kind, at.chosen.layer)} heads are joined and mixed, and added to what `,
    at.word(),
    " already was; then a small network works on this word alone, and its answer is added too.",
  ],
  draw(at) {
    const { story } = at;
    const rows = layerRows(at);
    const result = rows[rows.length - 1];
    const lines = rows.map((row, i) => layerLine(at, row, i === 0, row === result));
    const equations = rows
      .filter((row) => story.rows[row].sum)
      .map((row) => [
        `, ${ADDED[story.rows[row].part]} added`,
        (dim) => {
          const terms = story.rows[row].sum.map((each) => at.vector(each)[dim]);
          return sumEquation(terms, at.vector(row)[dim]);
        },
      ]);
    return [
      joined(at),
      rows.length > 1
        ? vectorLines(lines, equations)
        : make("p", {}, "What is between the heads and the end of this layer cannot be seen in this model."),
      makeNote(...layerNotes(at)),
    ];
  },
  numbers(at) {
    const { story, chosen, place } = at;
    const rows = layerRows(at);
    const tables = [
      vectorTable(
        `Layer ${chosen.layer}, from what it reads to what it hands on: ${at.shownOf()}`,
        rows.map((row) => [story.rows[row].name, at.vector(row)]),
      ),
    ];
    const parts = story.parts(chosen.kind, chosen.layer, place);
    if (parts)
      tables.push(
        makeTable(
          "How long what each head adds is",
          ["Head", "Length"],
          Array.from(parts.subarray(0, at.source.heads(chosen.kind, chosen.layer)), (length, head) => [
            String(head),
            digits(length),
          ]),
        ),
      );
    const neurons = story.neurons(chosen.layer, place);
    if (neurons)
      tables.push(
        makeTable(
          `The strongest of ${story.neuronCount} neurons of the feed-forward network`,
          ["Neuron", "Value"],
          Array.from(neurons.places, (neuron, i) => [String(neuron), digits(neurons.values[i])]),
        ),
      );
    return tables;
  },
};

// What the layer reads, and all that it makes of it.
function layerRows({ story, chosen }) {
  const of = story.rows.flatMap(({ layer }, row) => (layer === chosen.layer ? [row] : []));
  const first = story.rows.findIndex((row) => row.hidden === chosen.layer);
  return [first, ...of];
}

function layerLine(at, row, isFirst, isResult) {
  const { story, chosen } = at;
  const { name, sum, hidden } = story.rows[row];
  const note = `length ${digits(at.length(row))}`;
  const values = at.vector(row);
  if (isFirst)
    return { name: ["x: ", at.word(), ` as layer ${chosen.layer} reads it`], values, note, kind: "followed" };
  const norm = isNorm(story.rows[row]);
  const summed = story.rows.some((each) => each.sum?.includes(row));
  if (norm && !summed && !isResult)
    return { name: `${name}, for ${READER[story.rows[row].part]}`, values, note, kind: "aside", own: true };
  const sign = sum ? "=" : norm || name === "output" ? "→" : "+";
  const label = LABELS[name] ?? (sum ? "together" : name);
  const last = hidden === at.layers ? "the contextual embedding" : `what layer ${hidden} reads`;
  return {
    sign,
    name: isResult ? [label === "output" ? "" : `${label}: `, last] : label,
    values,
    note,
    own: norm,
    kind: isResult ? "result" : "",
  };
}

const LABELS = {
  attention: "what the heads bring",
  "cross-attention": "what the heads bring from the encoder",
  "feed-forward": "what the network answers",
};
const ADDED = { attention: "attention", "cross-attention": "cross-attention", "feed-forward": "network" };
// Who reads a norm that is on no way to the sums.
const READER = {
  attention: "the heads",
  "cross-attention": "the heads",
  "feed-forward": "the network",
  final: "the end",
};

// The results of the heads, side by side, and how much each adds.
function joined(at) {
  const { source, chosen, story, state, place } = at;
  const { kind, layer } = chosen;
  const count = source.heads(kind, layer);
  const heads = Array.from({ length: count }, (_, head) => head).filter((head) => source.holds(kind, layer, head));
  const shown = // the chosen one in any case
    heads.length > MOST_HEADS
      ? heads.filter((head, i) => i < MOST_HEADS || head === chosen.head).slice(-MOST_HEADS)
      : heads;
  const contexts = shown.map((head) => source.steps(kind, layer, head, chosen.query)?.context ?? null);
  const largest = largestSize(...contexts.filter(Boolean));
  const parts = story.parts(kind, layer, place);
  const longest = parts && Math.max(...parts);
  const items = shown.map((head, i) => {
    const weight = parts && parts[head] / longest;
    const drawn = [
      contexts[i] ? strip(contexts[i], largest) : make("span", { class: "story-missing" }, "?"),
      make("span", { class: "story-bar" }, make("span", { class: "story-size", "--weight": weight })),
      make("span", {}, String(head)),
    ];
    const button = makeButton(drawn, () => state.set({ head, also: [] }), {
      class: "story-head",
      "aria-pressed": String(head === chosen.head),
      "aria-label": `Head ${head}${parts ? `, adds a vector of length ${digits(parts[head])}` : ""}`,
    });
    return make("li", {}, button);
  });
  return make(
    "div",
    { class: "story-joined" },
    make(
      "p",
      { class: "story-label" },
      `What each head found${shown.length < count ? ` (${shown.length} of ${count})` : ""}, side by side; below it, how much it adds`,
    ),
    make("ol", { class: "story-heads" }, ...items),
  );
}

function layerNotes(at) {
  const { story, chosen, place } = at;
  const notes = [];
  const neurons = story.neurons(chosen.layer, place);
  const rows = story.rows.filter(({ layer }) => layer === chosen.layer);
  if (rows.some(({ name }) => name === "output") && !neurons)
    notes.push("What is between attention and the end of the layer cannot be seen in this model. ");
  if (neurons)
    notes.push(
      `The small network is a hidden layer of ${story.neuronCount} neurons: ${neurons.active} of them are above 0 for this word, strongest number ${neurons.places[0]} with ${digits(neurons.values[0])}. `,
    );
  if (rows.some(isNorm)) notes.push("A norm brings the numbers to a common size; its bars have a scale of their own. ");
  notes.push(at.drawnOf());
  return notes;
}
