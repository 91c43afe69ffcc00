// Steps 4 to 6: one head, from what a word is to what the head brings to it; of the shares, see scores.js.

import { drawn, make, makeNote } from "../base/dom.js";
import { placeOfLargest } from "../neuron/chosen.js";
import { largestSize } from "../neuron/figures.js";
import { agreed, decimals, percent, strip, sumEquation, vectorLines, vectorTable } from "./figures.js";
import { headName, isCross, isNorm } from "./followed.js";
import { SHARES } from "./scores.js";

const LISTED = 6; // values that are drawn one by one; the others as one line

const part = (values, index, dim) => values.subarray(index * dim, (index + 1) * dim);

// --- 4: query, key and value

const THREE = {
  name: "Query, key, value",
  title: "Three ways to look at a word: query, key and value",
  inHead: true,
  said: (at) => [
    "Three tables of learned weights make three short lists of numbers out of ",
    at.word(),
    isCross(at) ? " and of each word of the encoder:" : ":",
    " a ",
    make("span", { class: "token-query" }, "query"),
    ", what it looks for; a ",
    make("span", { class: "token-key" }, "key"),
    ", what it can be found by; a ",
    make("span", { class: "story-value" }, "value"),
    ", what it hands on.",
  ],
  draw(at) {
    const { q, k, v, dim, vDim } = at.steps;
    const keyed = keyOf(at);
    const key = part(k, keyed, dim);
    const value = v && part(v, keyed, vDim);
    const largest = largestSize(q, key);
    const inputs = inputsOf(at);
    const way = (side, letter, values, scale, input, count) =>
      make(
        "li",
        { class: `story-way of-${side}` },
        make(
          "span",
          { class: "story-matrix" },
          "× W",
          make("sub", {}, letter),
          " ",
          make("span", { class: "story-size-of" }, `(${input.dim} × ${count ?? "?"})`),
        ),
        make("strong", {}, side),
        values
          ? make("span", { class: "story-bars" }, strip(values, scale))
          : make("span", { class: "story-missing" }, "This page does not hold the values of this head."),
        make("span", { class: "story-note" }, "of ", input.word(), count ? `, ${count} numbers` : ""),
      );
    const last = inputs[inputs.length - 1];
    return [
      make(
        "div",
        { class: "story-inputs" },
        ...inputs.map(({ name, word, values, note }, i) =>
          vectorLines([{ name: ["x: ", word(), name], values, note, kind: i ? "looked" : "followed" }]),
        ),
      ),
      threeArrows(inputs.length > 1),
      make(
        "ul",
        { class: "story-ways" },
        way("query", "Q", q, largest, inputs[0], q.length),
        way("key", "K", key, largest, last, dim),
        way("value", "V", value, value ? largestSize(value) : 0, last, vDim),
      ),
      makeNote(...threeNotes(at)),
    ];
  },
  numbers(at) {
    const { steps, chosen } = at;
    const keyed = keyOf(at);
    const columns = [
      [`q of ${at.name("query", chosen.query)}`, steps.q],
      [`k of ${at.name("key", keyed)}`, part(steps.k, keyed, steps.dim)],
    ];
    if (steps.v) columns.push([`v of ${at.name("key", keyed)}`, part(steps.v, keyed, steps.vDim)]);
    return [
      vectorTable(`Query, key and value in ${headName(at)}`, columns),
      vectorTable(`What they are made from, x: ${at.shownOf()}`, [["x", at.vector(at.read())]]),
    ];
  },
};

// Whose key and value are drawn: the word's own, or of the encoder's words the one that it looks at most.
const keyOf = (at) => (isCross(at) ? (at.strongest(1).listed[0] ?? 0) : at.chosen.query);

// What the three are made from: the word as the layer reads it, and, of another stack, what that has made of its word.
function inputsOf(at) {
  const { story, chosen, source } = at;
  const read = at.read();
  const normed = isNorm(story.rows[read]) && at.attention() === read;
  const own = {
    word: () => at.word(),
    name: normed ? `, after ${story.rows[read].name}` : ` as layer ${chosen.layer} reads it`,
    values: at.vector(read),
    note: at.shownOf(),
    dim: story.dim,
  };
  if (!isCross(at)) return [own];
  const keyed = keyOf(at);
  const other = source.story("encoder");
  const place = other ? other.tokens.indexOf(keyed) : -1;
  const row = other ? other.rows.findLastIndex(({ hidden }) => hidden !== undefined) : -1;
  const values = place < 0 ? [] : other.vector(row, place);
  const name = ", the encoder's contextual embedding";
  const word = () => at.word("key", keyed);
  return [own, { word, name, values, note: place < 0 ? "not on this page" : "", dim: other?.dim ?? "?" }];
}

// From what is read to each of the three tables.
function threeArrows(two) {
  const svg = drawn("svg", {
    viewBox: "0 0 6 1",
    preserveAspectRatio: "none",
    class: "story-arrows",
    "aria-hidden": "true",
  });
  const from = two ? [1, 4, 4] : [3, 3, 3];
  ["query", "key", "value"].forEach((side, i) =>
    svg.append(drawn("path", { d: `M${from[i]} 0C${from[i]} .7 ${2 * i + 1} .3 ${2 * i + 1} 1`, class: `of-${side}` })),
  );
  return svg;
}

function threeNotes(at) {
  const { chosen, source } = at;
  const heads = source.heads(chosen.kind, chosen.layer);
  const notes = [];
  if (isCross(at))
    notes.push("The query is the decoder's word's; keys and values are those of the words that the encoder has read. ");
  else notes.push("Every word has all three. ");
  notes.push(
    `Each of the ${heads} heads of layer ${chosen.layer} has tables of its own (W, and often a bias to add); this is head ${chosen.head}.`,
  );
  if (source.rotary(chosen.kind, chosen.layer))
    notes.push(
      " Query and key are drawn after they were turned by the place of the word: so the model knows distances.",
    );
  return notes;
}

// --- 6: the weighted sum

const MIXED = {
  name: "Mix",
  title: "The values are mixed by these shares",
  inHead: true,
  said: (at) => [
    "Each word's ",
    make("span", { class: "story-value" }, "value"),
    " counts as much as its share. Added up, they are what this head brings to ",
    at.word(),
    ".",
  ],
  draw(at) {
    const { steps } = at;
    if (!steps.v) return [make("p", { class: "story-missing" }, missingValues(at))];
    const lines = mixOf(at, LISTED);
    const equation = (dim) =>
      sumEquation(
        lines.slice(0, -1).map(({ values }) => values[dim]),
        steps.context[dim],
      );
    return [vectorLines(lines, [["", equation]]), valueNote(at, at.strongest(1).listed[0])];
  },
  numbers(at) {
    const { steps } = at;
    if (!steps.v) return [];
    const { listed } = at.strongest(LISTED);
    return [
      vectorTable(`Shares times values, and their sum over all words, in ${headName(at)}`, [
        ...listed.map((key) => [
          `${percent(steps.weights[key])} of ${at.name("key", key)}`,
          sumOf(steps, at.chosen.isSink(key) ? [] : [key]),
        ]),
        ["Sum of all", steps.context],
      ]),
    ];
  },
};

// The values of the words with the largest shares, each times its share; the others; and their sum.
export function mixOf(at, count) {
  const { steps, chosen } = at;
  const { listed, others } = at.strongest(count);
  const mixed = (keys) =>
    sumOf(
      steps,
      keys.filter((key) => !chosen.isSink(key)),
    );
  const lines = listed.map((key, i) => ({
    sign: i ? "+" : "",
    name: [`${percent(steps.weights[key])} of `, at.word("key", key)],
    values: mixed([key]),
    kind: "of-key",
  }));
  if (others.length > 0)
    lines.push({
      sign: "+",
      name: `${others.length} others, ${percent(others.reduce((sum, key) => sum + steps.weights[key], 0))} together`,
      values: mixed(others),
      kind: "",
    });
  return [...lines, { sign: "=", name: "what this head brings", values: steps.context, kind: "result" }];
}

function sumOf({ v, vDim, weights }, keys) {
  const out = new Float64Array(vDim);
  for (const key of keys) for (let dim = 0; dim < vDim; dim += 1) out[dim] += weights[key] * v[key * vDim + dim];
  return out;
}

function valueNote(at, key) {
  if (key === undefined || at.chosen.isSink(key)) return "";
  const { v, vDim, weights } = at.steps;
  const value = part(v, key, vDim);
  const dim = placeOfLargest(value);
  const share = Number((100 * weights[key]).toFixed(1));
  const printed = Number(value[dim].toFixed(3));
  const found = agreed(weights[key] * value[dim], (share / 100) * printed);
  return makeNote(
    "Each line is a value times its share: dimension ",
    `${dim} of `,
    at.word("key", key),
    ` is ${share.toFixed(1)} % × ${decimals(printed)} ${found.equals} ${found.text}. A large share of a small value brings little.`,
  );
}

function missingValues(at) {
  const { layer, head } = at.chosen;
  return at.steps.vDim === null
    ? "The values of this layer are not on this page: with them, the weights do not give what the model itself computed."
    : `This page holds no values of this head. Make it with --values ${layer}.${head}, or trace.page(values=[(${layer}, ${head})]).`;
}

export const ATTENTION = [THREE, SHARES, MIXED];
