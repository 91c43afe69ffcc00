// The contextual embeddings of a text over the steps: how near each is to where it ends, and which are alike.

import { make, makeNote, makeSection, onClicks, readable } from "../base/dom.js";
import { shownText } from "../base/units.js";
import { makeChart } from "./curves.js";

const MOST = 8; // of the tokens that are most alike

const stackOf = (kind) => (kind === "encoder" ? "encoder" : "decoder");

export function makeWords({ source, state }) {
  const facts = () => source.facts.training.words[stackOf(state.values.kind)];
  const tokens = () => source.tokens(state.values.kind, "query");
  const plain = () => tokens().flatMap(({ special }, i) => (special ? [] : [i]));
  const name = (i) => readable(shownText(tokens()[i]));
  const word = () => {
    const { pin } = state.values;
    return pin?.side === "query" ? pin.index : (plain()[0] ?? 0);
  };
  const choose = (index) => state.set({ pin: { side: "query", index: Number(index) }, hover: null });

  const row = make("div", { class: "training-tokens", role: "group", "aria-label": "Which token" });
  onClicks(row, "[data-token]", ({ dataset }) => choose(dataset.token));
  const chart = makeChart({
    source,
    state,
    label: "Cosine of each token's embedding to its last one, over the steps",
    height: 150,
    curves: () =>
      plain().map((i) => ({
        values: facts().to_end.map((step) => step[i]),
        of: String(i),
        said: name(i),
        on: i === word(),
      })),
    range: () => [Math.min(0, ...facts().to_end.flat()), 1],
    choose,
  });
  const title = make("h3", {}, "");
  const list = make("ol", { class: "training-near" });
  const near = make("div", {}, title, list);

  const draw = () => {
    const on = word();
    row.replaceChildren(
      ...plain().map((i) =>
        make(
          "button",
          { type: "button", class: "button", "data-token": String(i), "aria-pressed": String(i === on) },
          make("bdi", {}, name(i)),
        ),
      ),
    );
    turn();
  };
  const turn = () => {
    chart.draw();
    const { between } = facts();
    near.hidden = !between;
    if (!between) return;
    const alike = between[state.values.at][word()];
    title.replaceChildren("Nearest to ", make("bdi", {}, name(word())), " at this step");
    list.replaceChildren(
      ...plain()
        .filter((i) => i !== word())
        .sort((a, b) => alike[b] - alike[a] || a - b)
        .slice(0, MOST)
        .map((i) => {
          const bar = make("span", { class: "training-bar-of", "--size": Math.max(0, alike[i]) }, "");
          return make("li", {}, make("bdi", {}, name(i)), bar, make("span", {}, alike[i].toFixed(2)));
        }),
    );
  };
  const element = makeSection(
    { class: "training-words", "aria-label": "Words" },
    "The words on their way",
    makeNote(
      "How near each token's contextual embedding is to the one that it has at the end: 1 is there (cosine). Choose a token.",
    ),
    row,
    make("div", { class: "training-pair" }, chart.element, near),
  );
  return { element, draw, turn, resized: chart.draw };
}
