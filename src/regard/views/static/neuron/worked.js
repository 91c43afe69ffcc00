// "Why this number?": one weight, worked out step by step, each line with the numbers that stand in the row.

import { makeSlider } from "../base/controls.js";
import { formatDifference, make, makeNote, onClicks } from "../base/dom.js";
import { saidOf } from "../base/scorers.js";
import { formatNumber, printed, scaleOf, times } from "./figures.js";
import { makeShares } from "./shares.js";
import { makeTerms } from "./terms.js";

export class Worked {
  constructor(page, chosen) {
    this.source = page.source;
    this.state = page.state;
    this.chosen = chosen;
    this.title = make("h2", { class: "worked-title" });
    this.subtitle = makeNote();
    this.word = make("div", { class: "worked-word" });
    this.steps = make("ol", { class: "worked" });
    // Made once: a slider that is made anew would be lost to the hand that moves it.
    this.sliders = { dim: this.slider("Dimension of q and k", "dim"), vdim: this.slider("Dimension of v", "vdim") };
    const sliders = Object.values(this.sliders).map(({ element }) => element);
    this.dims = make("summary", {});
    this.element = make(
      "section",
      { class: "neuron-worked", "aria-label": "The calculation" },
      this.title,
      this.subtitle,
      this.word,
      make("details", { class: "worked-dims" }, this.dims, ...sliders),
      this.steps,
    );
    onClicks(this.word, ".piece", ({ dataset: { side, token } }) => this.choosePiece(side, Number(token)));
  }

  draw() {
    const { chosen } = this;
    const { steps, key, query, layer, head } = chosen;
    const number = formatNumber(steps.weights[key]);
    this.title.replaceChildren("Why ", make("span", { class: "worked-number" }, number), "?");
    this.subtitle.replaceChildren(
      this.token("query", query),
      " looks at ",
      this.token("key", key),
      ` in layer ${layer}, head ${head}.`,
    );
    this.drawWord();
    const { dim, vdim } = this.sliders;
    const shown = [chosen.isSink() ? "" : `${chosen.dim} of q and k`, steps.v ? `${chosen.vdim} of v` : ""].filter(
      Boolean,
    );
    this.dims.textContent = `Dimension ${shown.join(", ")}`;
    this.dims.parentElement.hidden = shown.length === 0;
    dim.element.hidden = chosen.isSink();
    vdim.element.hidden = !steps.v;
    dim.update(chosen.dim, steps.dim);
    if (steps.v) vdim.update(chosen.vdim, steps.vDim);
    this.steps.replaceChildren(...(chosen.isSink() ? this.sink() : this.lines()), ...this.result(), ...this.reasons());
  }

  token(side, index) {
    return make(
      "span",
      { class: `token-${side}` },
      make("bdi", { dir: "auto" }, this.chosen.nameOf(side, index)),
      make("span", { class: "position" }, String(index)),
    );
  }

  lines() {
    const { steps } = this.chosen;
    const lines = [this.product()];
    if (steps.scale !== 1) lines.push(this.scale());
    if (steps.capped) lines.push(this.cap());
    if (steps.bias) lines.push(this.bias());
    if (steps.allowed.some((allowed) => !allowed)) lines.push(this.mask());
    return [...lines, this.softmax()];
  }

  // What wrote the key, where the page knows it.
  reasons() {
    const { chosen } = this;
    const found = this.source.why?.(chosen, chosen.query, chosen.key);
    if (!found) return [];
    const signed = (value) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(2);
    const from = (token) =>
      token === null ? [] : [", from ", make("bdi", { dir: "auto" }, chosen.nameOf("key", token))];
    const written = found.parts.map(({ said, source, value }) =>
      make("li", {}, said, ...from(source), ` ${signed(value)}`),
    );
    const of = `Of ${signed(found.total)}, its score less the mean of the row; trace.why in Python has all parts.`;
    return [this.step("reasons", "What wrote the key", make("ul", {}, ...written), makeNote(of))];
  }

  step(name, title, ...parts) {
    return make("li", { class: `work-step step-${name}` }, make("h3", {}, title), ...parts);
  }

  // "a op b = result", with every number an element of its own.
  equation(...parts) {
    return make("p", { class: "equation" }, ...parts);
  }

  number(value, name = null) {
    return this.figure(formatNumber(value), name);
  }

  figure(text, name = null) {
    return make("span", { class: "work-figure", "data-figure": name }, text);
  }

  // The operands of an equation, with the decimals that make it hold as printed, and what stands before its result.
  figures(operands, compute, result) {
    const { texts, equals } = printed(operands, compute, result);
    return [...texts.map((text) => this.figure(text)), ` ${equals} `];
  }

  product() {
    const { chosen } = this;
    const { products, scorer } = chosen.steps;
    const said = saidOf(scorer);
    const terms = chosen.terms();
    const rotary = this.source.rotary(chosen.kind, chosen.layer);
    const rows = (places) => places.map((d) => [String(d), chosen.factors(d), terms[d], d === chosen.dim]);
    const note = rotary
      ? `q and k are after rotation: each was turned by its position, so that the product sees the distance, ${this.distance()}.`
      : said.note;
    return this.step(
      "product",
      said.title,
      makeTerms({
        heads: ["dim", said.left, said.right, `${said.left} × ${said.right}`],
        terms,
        rows,
        chosen: chosen.dim,
        total: products[chosen.key],
      }),
      this.equation(`${said.score} = `, this.number(products[chosen.key], "product")),
      makeNote(note),
    );
  }

  slider(label, field) {
    return makeSlider(label, (value) => this.state.set({ [field]: value }), { "data-field": field });
  }

  distance() {
    return formatNumber(this.chosen.key - this.chosen.query).replace(".0000", "");
  }

  scale() {
    const { steps, key } = this.chosen;
    const { products, scaled, scale, dim } = steps;
    const { root, said } = scaleOf(steps);
    const [product, ...others] = root
      ? this.figures([products[key]], (value) => value / Math.sqrt(dim), scaled[key])
      : this.figures([products[key], scale], times, scaled[key]);
    const by = root ? ` ${said}` : " × ";
    const note = root
      ? `${dim} is the number of dimensions: without this, longer vectors would have larger scores.`
      : "The scale of this layer's scores.";
    return this.step(
      "scale",
      "Scale",
      this.equation(product, by, ...others, this.number(scaled[key], "scaled")),
      makeNote(note),
    );
  }

  cap() {
    const { scaled, capped, softcap } = this.chosen.steps;
    const cap = formatNumber(softcap).replace(/\.?0+$/, "");
    const { key } = this.chosen;
    const [score, equals] = this.figures([scaled[key]], (x) => softcap * Math.tanh(x / softcap), capped[key]);
    return this.step(
      "cap",
      "Soft cap",
      this.equation(`${cap} × tanh(`, score, ` / ${cap})`, equals, this.number(capped[key], "capped")),
      makeNote(`No score is larger than ${cap}.`),
    );
  }

  bias() {
    const { steps, key, kind, layer } = this.chosen;
    const before = (steps.capped || steps.scaled)[key];
    const distances = this.source.distances(kind, layer);
    const of =
      distances && !distances.dense
        ? `What this head adds at distance ${this.distance()}, key minus query.`
        : "What this head adds for these two tokens.";
    const operands = [before, steps.bias[key]];
    const [score, bias, equals] = this.figures(operands, (a, b) => a + b, before + steps.bias[key]);
    bias.dataset.figure = "bias";
    return this.step(
      "bias",
      "Add the bias",
      this.equation(score, " + ", bias, equals, this.number(before + steps.bias[key], "biased")),
      makeNote(of),
    );
  }

  mask() {
    const { steps, key } = this.chosen;
    const count = steps.allowed.reduce((total, each) => total + each, 0);
    const seen = `This query may look at ${count} of ${steps.allowed.length} keys.`;
    const [may, becomes] = steps.allowed[key] ? ["may", "stays"] : ["may not", "becomes"];
    const said = `This key ${may} be looked at: the score ${becomes} `;
    return this.step("mask", "Mask", make("p", {}, said, this.number(steps.scores[key]), "."), makeNote(seen));
  }

  softmax() {
    const { steps, key, softmax } = this.chosen;
    if (!(softmax.total > 0))
      return this.step(
        "softmax",
        "Softmax",
        make("p", {}, "The mask forbids every key: all weights are ", this.number(0, "weight"), "."),
      );
    const score = this.chosen.isSink() ? steps.sink : steps.scores[key];
    const power = softmax.power(key);
    const [own, largest, of] = this.figures([score, softmax.largest], (a, b) => Math.exp(a - b), power);
    own.dataset.figure = "score";
    largest.dataset.figure = "largest";
    const [part, total, equals] = this.figures([power, softmax.total], (a, b) => a / b, steps.weights[key]);
    const over = steps.sink === null ? `${steps.scores.length} keys` : `${steps.scores.length} keys and the sink`;
    return this.step(
      "softmax",
      "Softmax: its share of all",
      makeShares(this.chosen, (key) => this.state.set({ key })),
      this.equation("exp(", own, " − ", largest, ")", of, this.number(power, "power")),
      this.equation("sum over ", `${over} = `, this.number(softmax.total, "total")),
      this.equation(part, " / ", total, equals, make("strong", {}, this.number(steps.weights[key], "weight"))),
      makeNote(
        `The largest score of the row, ${formatNumber(softmax.largest)}, is taken away first: the shares stay the same, and no power overflows.`,
      ),
    );
  }

  sink() {
    const { steps } = this.chosen;
    if (steps.sink === null)
      return [this.step("sink", "No sink in this layer", make("p", {}, "Other layers of this model have one."))];
    return [
      this.step(
        "sink",
        "The sink",
        make(
          "p",
          {},
          "A column of the softmax that is no key: its score is learned, ",
          this.number(steps.sink),
          " in this head, whatever the query.",
        ),
      ),
      this.softmax(),
    ];
  }

  result() {
    const { chosen } = this;
    const { steps, key, layer, head } = chosen;
    if (!steps.v) {
      const said =
        steps.vDim === null
          ? "The values of this layer are not on this page: with them, the weights do not give what the model itself computed."
          : `This page holds no values of this head: all of them would take it over 8 MB. Make it with --values ${layer}.${head}, or trace.page(values=[(${layer}, ${head})]).`;
      return [this.step("missing", "Weighted values", make("p", {}, said))];
    }
    const { v, vDim, weights, context } = steps;
    const { vdim } = chosen;
    const summands = Float64Array.from({ length: steps.scores.length }, (_, j) => weights[j] * v[j * vDim + vdim]);
    const rows = (places) =>
      places.map((j) => [this.chosen.nameOf("key", j), [weights[j], v[j * vDim + vdim]], summands[j], j === key]);
    const { held, difference, every } = this.source.facts.values;
    const share = every > 1 ? `, in a sample of one query in ${every}` : "";
    return [
      this.step(
        "values",
        "Weighted values, added up over the keys",
        makeTerms({
          heads: ["key", "weight", `v[${vdim}]`, "weight × v"],
          terms: summands,
          rows,
          chosen: chosen.isSink() ? -1 : key,
          total: context[vdim],
        }),
        this.equation(`result[${vdim}] = `, make("strong", {}, this.number(context[vdim], "result"))),
        makeNote(
          `What this head hands on for the query has ${vDim} such numbers. Largest difference from Python ${formatDifference(difference)}${share}.${held === "some" ? " This page holds the values of some heads." : ""}`,
        ),
      ),
    ];
  }

  // Where the page counts whole words, and this is one of several pieces.
  drawWord() {
    const { chosen } = this;
    const { steps, query, key, kind, layer, head } = chosen;
    const words = { query: chosen.word("query", query), key: chosen.word("key", key) };
    const several = ["query", "key"].filter((side) => words[side].last > words[side].first);
    this.word.hidden = several.length === 0;
    if (this.word.hidden) {
      this.word.replaceChildren();
      return;
    }
    const parts = several.map((side) => {
      const { first, last, text } = words[side];
      const buttons = Array.from({ length: last - first + 1 }, (_, i) =>
        make(
          "button",
          {
            type: "button",
            class: "button piece",
            "data-side": side,
            "data-token": String(first + i),
            "aria-pressed": String(first + i === (side === "query" ? query : key)),
          },
          make("bdi", { dir: "auto" }, chosen.nameOf(side, first + i)),
        ),
      );
      return make(
        "p",
        {},
        `The ${side} `,
        make("bdi", { dir: "auto" }, text),
        ` is ${last - first + 1} tokens: `,
        ...buttons,
      );
    });
    const { first, last } = words.query;
    const shares = [];
    for (let i = first; i <= last; i += 1) {
      const row = i === query ? steps.weights : this.source.row(kind, layer, head, i);
      if (!row) continue;
      shares.push(row.slice(words.key.first, words.key.last + 1).reduce((a, b) => a + b, 0));
    }
    const added = words.key.last > words.key.first ? `Over the pieces of the key weights add up` : "";
    const average = (...values) => values.reduce((a, b) => a + b, 0) / values.length;
    const whole = shares.length > words.query.last - words.query.first ? average(...shares) : null;
    const mean =
      shares.length > 1 && whole !== null
        ? `${added ? "; over" : "Over"} those of the query they are averaged: (${printed(shares, average, whole).texts.join(" + ")}) / ${shares.length}`
        : "";
    parts.push(
      whole === null
        ? makeNote("The rows of the other pieces are on their way.")
        : makeNote(`${added}${mean}. Between the words: `, this.number(whole, "word"), "."),
    );
    this.word.replaceChildren(...parts);
  }

  choosePiece(side, index) {
    const { query, key } = this.chosen;
    const [to, at] = side === "query" ? [index, key] : [query, index];
    this.state.set({ ...this.chosen.reach(to), units: "pieces", key: at });
  }
}
