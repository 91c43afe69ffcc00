// Step 5: from the products of a query with every key to its shares of 100 %.

import { makeTable } from "../base/controls.js";
import { make, makeNote } from "../base/dom.js";
import { saidOf } from "../base/scorers.js";
import { largestSize } from "../neuron/figures.js";
import { makeShares } from "../neuron/shares.js";
import { agreed, decimals, minus, percent } from "./figures.js";
import { headName, isCross } from "./followed.js";

const LARGE = 12; // scores whose powers of e are too long to be read
const LISTED = 12; // keys of a long text

export const SHARES = {
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
    const shown = at.shown(at.strongest(LISTED).listed);
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
  const size = largestSize(steps.scores.filter(Number.isFinite));
  const long = seen && size > 0 ? Math.min(1, Math.abs(score) / size) : 0;
  const bar = make("span", { class: `term-bar${score < 0 ? " negative" : ""}`, "--size": long });
  const share = make("span", { class: "story-portion", "--weight": steps.weights[key] });
  const click = () => choose(key);
  const button = make(
    "button",
    { type: "button", class: "story-key", "aria-pressed": String(key === chosen.key), click },
    make("bdi", { class: "token-key", dir: "auto" }, at.name("key", key)),
    make("span", { class: "story-number" }, seen ? decimals(score) : "not seen"),
    make("span", { class: "story-bar", "aria-hidden": "true" }, seen ? bar : ""),
    make("span", { class: "story-number" }, percent(steps.weights[key])),
    make("span", { class: "story-bar", "aria-hidden": "true" }, share),
  );
  return make("li", { class: seen ? null : "forbidden" }, button);
}

const words = (count) => `${count} word${count === 1 ? "" : "s"}`;

function maskNote(at, others) {
  const { steps, chosen } = at;
  const rest = others.reduce((sum, key) => sum + steps.weights[key], 0);
  const hidden = steps.allowed.length - steps.allowed.reduce((sum, each) => sum + each, 0);
  const notes = [];
  if (rest > 0) notes.push(`${others.length} other words together have ${percent(rest)}. `);
  const later = steps.allowed.reduce((sum, each, key) => sum + (each || key <= chosen.query ? 0 : 1), 0);
  if (chosen.kind === "decoder" && later > 0)
    notes.push(`${words(later)} come later: a decoder may not look ahead, and they get nothing. `);
  if (chosen.kind !== "decoder" ? hidden > 0 : hidden > later)
    notes.push(`${words(chosen.kind === "decoder" ? hidden - later : hidden)} out of sight: they get nothing.`);
  return makeNote(...notes);
}

// The chosen key's share, from its product on; every equation with the numbers that stand above it.
export function worked(at) {
  const { steps, chosen } = at;
  const { key } = chosen;
  const title = make("h3", {}, "How ", at.word("key", key), " gets its share");
  const lines = [];
  const line = (...parts) => lines.push(make("li", { class: "equation" }, ...parts));
  const says = (text) => lines.push(make("li", { class: "note" }, text));
  if (chosen.isSink() || !steps.allowed[key]) {
    const why = chosen.isSink()
      ? `The sink is no word: its score, ${decimals(steps.sink)}, is learned and always the same.`
      : "The mask forbids it: whatever its score, its share is 0.";
    return make("section", { class: "story-worked" }, title, make("p", {}, why));
  }
  const product = Number(steps.products[key].toFixed(4));
  line(`${steps.scorer ? saidOf(steps.scorer).score : "query · key"} = `, decimals(product, 4));
  if (!steps.scorer)
    says(
      `The query is what the word asks for, the key what the other offers: ${steps.dim} numbers each, multiplied pair by pair and added up.`,
    );
  let score = scaleLine(steps, product, key, line);
  if (steps.scale !== 1) says("So that longer lists do not have larger scores.");
  if (steps.capped) {
    const capped = agreed(steps.capped[key], steps.softcap * Math.tanh(score / steps.softcap));
    line(`${steps.softcap} × tanh(${minus(String(score))} / ${steps.softcap}) ${capped.equals} ${capped.text}`);
    score = capped.value;
  }
  if (steps.bias) {
    const bias = Number(steps.bias[key].toFixed(4));
    const sum = agreed(steps.scores[key], score + bias);
    line(`${minus(String(score))} ${bias < 0 ? "−" : "+"} ${Math.abs(bias)} ${sum.equals} ${sum.text}`);
    score = sum.value;
  }
  const less = Math.abs(chosen.softmax.largest) > LARGE ? Number(chosen.softmax.largest.toFixed(4)) : 0;
  const written = minus(less ? `(${score} ${less < 0 ? "+" : "−"} ${Math.abs(less)})` : String(score));
  const power = agreed(Math.exp(steps.scores[key] - less), Math.exp(score - less));
  line("e", make("span", { class: "sr-only" }, "^"), make("sup", {}, written), ` ${power.equals} ${power.text}`);
  says("e is 2.718: its powers are above 0, and grow fast. A score that is 1 larger makes 2.7 times as much.");
  const total = Number((chosen.softmax.total * Math.exp(chosen.softmax.largest - less)).toPrecision(5));
  const found = agreed(100 * steps.weights[key], (100 * power.value) / total);
  line(`${power.text} / ${minus(String(total))} ${found.equals} `, make("strong", {}, `${found.text} %`));
  return make(
    "section",
    { class: "story-worked" },
    title,
    make("ol", {}, ...lines),
    makeNote(
      `${minus(String(total))} is that power of e for every word, added up. This is the softmax: no share is below 0, and together they are 100 %.${less ? ` The largest score, ${minus(String(less))}, is taken away from each first: that changes no share.` : ""}`,
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
  line(`${decimals(products[key], 4)} ${isRoot ? `/ √${dim}` : `× ${by}`} ${found.equals} ${found.text}`);
  return found.value;
}

function scoreTable(at) {
  const { steps, chosen } = at;
  const columns = [
    [steps.scorer ? saidOf(steps.scorer).score : "Query · key", steps.products],
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
