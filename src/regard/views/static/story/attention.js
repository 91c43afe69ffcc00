// Steps 4 to 6: one head, from what a word is to what the head brings to it.

import { makeTable } from "../base/controls.js";
import { make } from "../base/dom.js";
import { makeShares } from "../neuron/shares.js";
import {
  agreed,
  decimals,
  drawn,
  largestOf,
  minus,
  percent,
  strip,
  sumEquation,
  vectorLines,
  vectorTable,
} from "./figures.js";
import { isNorm } from "./followed.js";

const LISTED = 6; // values that are drawn one by one; the others as one line
const LARGE = 12; // scores whose powers of e are too long to be read
const LISTED_SCORES = 12; // of a long text

const headName = ({ chosen }) => `layer ${chosen.layer}, head ${chosen.head}`;
const isCross = (at) => at.chosen.kind === "cross";
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
    const largest = largestOf(q, key);
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
        way("value", "V", value, value ? largestOf(value) : 0, last, vDim),
      ),
      make("p", { class: "note" }, ...threeNotes(at)),
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

// --- 5: scores and shares

const SHARES = {
  name: "Shares",
  title: "Scores become shares of 100 %",
  inHead: true,
  said: (at) => [
    at.word(),
    " compares its query with the key of ",
    isCross(at) ? "every word of the encoder" : "every word that it may look at",
    ": the better the two fit, the larger the word's share of its attention.",
  ],
  draw(at) {
    const { chosen, state } = at;
    if (!(chosen.softmax.total > 0))
      return [make("p", {}, "The mask lets this word look at nothing: all shares are 0.")];
    const shown = at.shown(at.strongest(LISTED_SCORES).listed);
    const others = chosen.keys.map((_, key) => key).filter((key) => !shown.includes(key) && at.steps.weights[key] > 0);
    const choose = (key) => state.set({ key });
    const rows = shown.map((key) => scoreRow(at, key, choose));
    return [
      makeShares(chosen, choose),
      make(
        "div",
        { class: "story-scores" },
        make(
          "div",
          {},
          make(
            "p",
            { class: "story-key story-label", "aria-hidden": "true" },
            ...["", "score", "", "share", ""].map((text) => make("span", { class: "story-number" }, text)),
          ),
          make("ul", { class: "story-keys" }, ...rows),
          maskNote(at, others),
        ),
        worked(at),
      ),
    ];
  },
  numbers: (at) => [scoreTable(at)],
};

function scoreRow(at, key, choose) {
  const { steps, chosen } = at;
  const score = chosen.isSink(key) ? steps.sink : steps.scores[key];
  const seen = Number.isFinite(score);
  const size = largestOf(steps.scores.filter(Number.isFinite));
  const bar = make("span", { class: `term-bar${score < 0 ? " negative" : ""}` });
  bar.style.setProperty("--size", String(seen && size > 0 ? Math.min(1, Math.abs(score) / size) : 0));
  const share = make("span", { class: "story-portion" });
  share.style.setProperty("--weight", String(steps.weights[key]));
  const button = make(
    "button",
    { type: "button", class: "story-key", "aria-pressed": String(key === chosen.key) },
    make("bdi", { class: "token-key", dir: "auto" }, at.name("key", key)),
    make("span", { class: "story-number" }, seen ? decimals(score) : "not seen"),
    make("span", { class: "story-bar", "aria-hidden": "true" }, seen ? bar : ""),
    make("span", { class: "story-number" }, percent(steps.weights[key])),
    make("span", { class: "story-bar", "aria-hidden": "true" }, share),
  );
  button.addEventListener("click", () => choose(key));
  return make("li", { class: seen ? null : "forbidden" }, button);
}

function maskNote(at, others) {
  const { steps } = at;
  const rest = others.reduce((sum, key) => sum + steps.weights[key], 0);
  const hidden = steps.allowed.length - steps.allowed.reduce((sum, each) => sum + each, 0);
  const notes = [];
  if (rest > 0) notes.push(`${others.length} other words together have ${percent(rest)}. `);
  if (hidden > 0)
    notes.push(
      at.chosen.kind === "decoder"
        ? `${hidden} words come later, or too far away: this word may not look at them, and they get nothing.`
        : `${hidden} words are masked: they get nothing.`,
    );
  return make("p", { class: "note" }, ...notes);
}

// The chosen key's share, from its product on; every equation with the numbers that stand above it.
function worked(at) {
  const { steps, chosen } = at;
  const { key } = chosen;
  const title = make("h3", {}, "How ", at.word("key", key), " gets its share");
  const lines = [];
  const line = (...parts) => lines.push(make("li", { class: "equation" }, ...parts));
  if (chosen.isSink() || !steps.allowed[key]) {
    const why = chosen.isSink()
      ? `The sink is no word: its score, ${decimals(steps.sink)}, is learned and always the same.`
      : "The mask forbids it: whatever its score, its share is 0.";
    return make("section", { class: "story-worked" }, title, make("p", {}, why));
  }
  const product = Number(steps.products[key].toFixed(4));
  line("query · key = ", decimals(product, 4));
  let score = scaleLine(steps, product, key, line);
  if (steps.capped) {
    const capped = agreed(steps.capped[key], steps.softcap * Math.tanh(score / steps.softcap));
    line(`${steps.softcap} × tanh(${minus(String(score))} / ${steps.softcap}) ${capped.sign} ${capped.text}`);
    score = capped.value;
  }
  if (steps.bias) {
    const bias = Number(steps.bias[key].toFixed(4));
    const sum = agreed(steps.scores[key], score + bias);
    line(`${minus(String(score))} ${bias < 0 ? "−" : "+"} ${Math.abs(bias)} ${sum.sign} ${sum.text}`);
    score = sum.value;
  }
  const less = chosen.softmax.largest > LARGE ? Number(chosen.softmax.largest.toFixed(4)) : 0;
  const written = minus(less ? `(${score} − ${less})` : String(score));
  const power = agreed(Math.exp(steps.scores[key] - less), Math.exp(score - less));
  line("e", make("span", { class: "sr-only" }, "^"), make("sup", {}, written), ` ${power.sign} ${power.text}`);
  const total = Number((chosen.softmax.total * Math.exp(chosen.softmax.largest - less)).toPrecision(5));
  const found = agreed(100 * steps.weights[key], (100 * power.value) / total);
  line(`${power.text} / ${minus(String(total))} ${found.sign} `, make("strong", {}, `${found.text} %`));
  return make(
    "section",
    { class: "story-worked" },
    title,
    make("ol", {}, ...lines),
    make(
      "p",
      { class: "note" },
      `${minus(String(total))} is that power of e for every word, added up. This is the softmax: no share is below 0, and together they are 100 %.${less ? ` The largest score, ${less}, is taken away from each first: that changes no share.` : ""}`,
    ),
  );
}

// Divides by √d where the scale is that, else multiplies; returns the score as it is printed.
function scaleLine({ products, scaled, scale, dim }, product, key, line) {
  const root = Math.sqrt(dim);
  if (scale === 1) return product;
  const isRoot = Math.abs(scale * root - 1) < 1e-6;
  const by = isRoot ? 1 / root : Number(scale.toPrecision(6));
  const found = agreed(scaled[key], product * by);
  line(`${decimals(products[key], 4)} ${isRoot ? `/ √${dim}` : `× ${by}`} ${found.sign} ${found.text}`);
  return found.value;
}

function scoreTable(at) {
  const { steps, chosen } = at;
  const columns = [
    ["Query · key", steps.products],
    [`Scaled`, steps.scaled],
    ["Capped", steps.capped],
    ["Bias", steps.bias],
    ["Score", steps.scores],
  ].filter(([, values]) => values);
  return makeTable(
    `Every key of ${at.name("query", chosen.query)} in ${headName(at)}`,
    ["Position", "Key", ...columns.map(([name]) => name), "Share"],
    chosen.keys.map((_, key) => [
      String(key),
      at.name("key", key),
      ...columns.map(([name, values]) =>
        chosen.isSink(key)
          ? name === "Score"
            ? decimals(steps.sink)
            : ""
          : Number.isFinite(values[key])
            ? decimals(values[key])
            : "masked",
      ),
      percent(steps.weights[key]),
    ]),
  );
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
    const { steps, chosen } = at;
    if (!steps.v) return [make("p", { class: "story-missing" }, missingValues(at))];
    const { listed, others } = at.strongest(LISTED);
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
    lines.push({ sign: "=", name: "what this head brings", values: steps.context, kind: "result" });
    const equation = (dim) =>
      sumEquation(
        lines.slice(0, -1).map(({ values }) => values[dim]),
        steps.context[dim],
      );
    return [vectorLines(lines, [["", equation]]), valueNote(at, listed[0])];
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

function sumOf({ v, vDim, weights }, keys) {
  const out = new Float64Array(vDim);
  for (const key of keys) for (let dim = 0; dim < vDim; dim += 1) out[dim] += weights[key] * v[key * vDim + dim];
  return out;
}

function valueNote(at, key) {
  if (key === undefined || at.chosen.isSink(key)) return "";
  const { v, vDim, weights } = at.steps;
  const value = part(v, key, vDim);
  let dim = 0;
  value.forEach((each, i) => (dim = Math.abs(each) > Math.abs(value[dim]) ? i : dim));
  const share = Number((100 * weights[key]).toFixed(1));
  const printed = Number(value[dim].toFixed(3));
  const found = agreed(weights[key] * value[dim], (share / 100) * printed);
  return make(
    "p",
    { class: "note" },
    "Each line is a value times its share: dimension ",
    `${dim} of `,
    at.word("key", key),
    ` is ${share.toFixed(1)} % × ${decimals(printed)} ${found.sign} ${found.text}. A large share of a small value brings little.`,
  );
}

function missingValues(at) {
  const { layer, head } = at.chosen;
  return at.steps.vDim === null
    ? "The values of this layer are not on this page: with them, the weights do not give what the model itself computed."
    : `This page holds no values of this head. Make it with --values ${layer}.${head}, or trace.page(values=[(${layer}, ${head})]).`;
}

export const ATTENTION = [THREE, SHARES, MIXED];
