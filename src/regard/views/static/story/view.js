// The story: one word's way through the model in eight steps, each with the numbers of this run.

import { makeButton, makeTables } from "../base/controls.js";
import { make, onClicks } from "../base/dom.js";
import { makeHeadPicks } from "../base/held.js";
import { ACROSS, onKeys, placeIn } from "../base/keys.js";
import { ATTENTION } from "./attention.js";
import { BEGINNING } from "./beginning.js";
import { Followed } from "./followed.js";
import { drawnFrom, JOURNEY } from "./journey.js";
import { LAYER } from "./layer.js";

const STEPS = [...BEGINNING, ...ATTENTION, LAYER, JOURNEY];
const HELP = [
  ["← →, Home, End in the story", "another step"],
  ["A word of the sentence above the story", "click it to follow that one"],
];

const step = {
  initial: 1,
  read: (text) => (/^[1-8]$/.test(text) ? Number(text) : undefined),
  write: (value) => (value === 1 ? null : String(value)),
  back: true,
};

function open(page) {
  const { source, state } = page;
  const at = new Followed(page);
  const here = () => STEPS[state.values.step - 1];
  const go = (to) => state.set({ step: Math.max(1, Math.min(STEPS.length, to)) });

  const sentence = make("div", { class: "story-sentence" });
  onClicks(sentence, "[data-token]", ({ dataset: { side, token } }) =>
    state.set(side === "query" ? { ...at.chosen.reach(Number(token)), key: null } : { key: Number(token) }),
  );

  const links = STEPS.map(({ name }, i) => {
    const parts = [make("span", { class: "story-count" }, String(i + 1)), make("span", { class: "story-step" }, name)];
    return makeButton(parts, () => go(i + 1), { class: "story-to", "data-step": String(i + 1) });
  });
  const turn = (label, by, sign) => {
    const word = make("span", { class: "story-turn" }, label);
    const parts = by < 0 ? [sign, " ", word] : [word, " ", sign];
    return makeButton(parts, () => go(state.values.step + by), { "aria-label": label });
  };
  const before = turn("Previous", -1, "‹");
  const after = turn("Next", 1, "›");
  const rail = make(
    "nav",
    { class: "story-rail", "aria-label": "Steps of the story" },
    before,
    make("ol", {}, ...links.map((link) => make("li", {}, link))),
    after,
  );

  const count = make("span", { class: "story-count" });
  const title = make("span", {});
  const said = make("p", { class: "story-said" });
  const picks = makeHeadPicks(page, () => ({ key: null }));
  const choose = make("div", { class: "controls story-picks" }, picks.layer, picks.head);
  const drawing = make("div", { class: "story-drawing" });
  const numbers = makeTables("The numbers", () => (ready ? here().numbers(at) : []));
  numbers.element.classList.add("story-numbers");
  const stage = make(
    "section",
    { class: "story-stage", "aria-label": "The step" },
    make("div", { class: "story-top" }, make("h2", { class: "story-title" }, count, title), choose),
    said,
    drawing,
    numbers.element,
  );
  const live = make("p", { class: "sr-only", role: "status", "aria-live": "polite" });
  const element = make("div", { class: "story" }, sentence, rail, stage, live);

  let ready = false;
  function draw() {
    const why = at.update();
    const { step: number, layer } = state.values;
    const { name, title: heading, said: saying, draw: drawStep, inHead, inLayer } = here();
    links.forEach((link, i) => {
      if (i + 1 === number) link.setAttribute("aria-current", "step");
      else link.removeAttribute("aria-current");
    });
    before.disabled = number === 1;
    after.disabled = number === STEPS.length;
    count.textContent = String(number);
    title.textContent = heading;
    ready = why === null && at.steps !== null;
    choose.hidden = !(inHead || inLayer) || why !== null;
    picks.head.hidden = !inHead;
    picks.update();
    sentence.replaceChildren(...sentences(at, number));
    const followed = sentence.querySelector(".followed");
    if (followed) {
      const [box, room] = [followed.getBoundingClientRect(), sentence.getBoundingClientRect()];
      if (box.top < room.top || box.bottom > room.bottom) sentence.scrollTop += box.top - room.top - 30;
    }
    said.replaceChildren(
      ...(ready
        ? [...((inHead || inLayer) && layer > 0 ? [skipped(at)] : []), ...saying(at)]
        : why
          ? [why, " ", instead(at)]
          : ["The numbers are on their way."]),
    );
    drawing.replaceChildren(...(ready ? drawStep(at).filter(Boolean) : []));
    numbers.element.hidden = !ready;
    numbers.draw();
    stage.classList.toggle("arriving", stage.dataset.told !== String(number));
    stage.dataset.told = String(number);
    live.textContent = `Step ${number} of ${STEPS.length}: ${name}. ${said.textContent}`;
  }

  // Of a long text, a word whose story is told: the one that the page opens on, which is in their midst.
  function instead({ story, chosen }) {
    if (!story) return "";
    const { start } = source.facts;
    const index = story.tokens.includes(start?.pin) ? start.pin : story.tokens[story.tokens.length >> 1];
    const follow = () => state.set({ ...chosen.reach(index), key: null });
    return makeButton(["Follow ", at.word("query", index)], follow);
  }

  const keyed = (key, event) => {
    // Where nothing has the focus, the keys are the story's, but not a notebook's.
    const idle = event.target === document.body && element.getRootNode() === document;
    const inside = element.contains(event.composedPath()[0]);
    if (element.hidden || !(idle || inside) || event.target.matches?.("select, input, .table-scroll")) return false;
    const to = placeIn(STEPS.length, state.values.step - 1, key, ACROSS);
    if (to === undefined) return false;
    go(to + 1);
    return true;
  };
  onKeys(element.ownerDocument, keyed, state.gone);

  const changed = (names) => {
    if (!(names.size === 1 && (names.has("hover") || names.has("look")))) draw();
  };
  return { element, start: draw, changed };
}

// No layer is passed over without a word: those before this one do what it does.
function skipped({ layers, state }) {
  const { layer } = state.values;
  const dots = Array.from({ length: layers }, (_, i) => make("i", { class: i === layer ? "here" : "" }));
  const before = layer === 1 ? "Layer 0 does" : `Layers 0 to ${layer - 1} do`;
  return make(
    "span",
    { class: "story-skipped" },
    make("span", { class: "story-dots", "aria-hidden": "true" }, ...dots),
    `${before} what follows; here is layer ${layer}.`,
  );
}

// The text, always in view: the followed word is blue. From the scores on, what it looks at is orange, by its share.
function sentences(at, number) {
  const { chosen, source } = at;
  const { kind, query } = chosen;
  const weights = !chosen.steps || at.place < 0 ? null : shares(at, number);
  const most = weights && Math.max(...weights);
  const told = (side, index) => side === "key" || !at.story || at.story.tokens.includes(index);
  const line = (side, label) => {
    const list = make("p", { class: "story-line-of", "aria-label": label });
    source.tokens(kind, side).forEach((token, index) => {
      if (token.sink) return;
      const on = side === "query" && index === query;
      const shaded = weights && (kind !== "cross" || side === "key");
      const button = make(
        "button",
        {
          type: "button",
          class: `story-token${on ? " followed" : ""}${token.special ? " special" : ""}${told(side, index) ? "" : " untold"}`,
          "data-side": side,
          "data-token": String(index),
          "aria-pressed": side === "query" ? String(on) : null,
          "--weight": shaded ? weights[index] / most : null,
        },
        chosen.pieces(side).element(index),
      );
      list.append(button, " ");
    });
    return list;
  };
  if (kind !== "cross") return [line("query", "The sentence: choose the word to follow")];
  return [line("query", "What the decoder writes: choose the word to follow"), line("key", "What the encoder read")];
}

// How much each word counts in a step, for the shades below the sentence; null where nothing looks at anything.
function shares(at, number) {
  if (number === 5 || number === 6) return at.chosen.steps.weights;
  return number === STEPS.length ? drawnFrom(at).means : null;
}

const fits = (source) => Boolean(source.facts.story) && source.kinds.every((kind) => source.computed(kind));

export const VIEW = {
  name: "story",
  label: "Story",
  fields: { step },
  guide: "One word, followed through the model in eight steps. Next, or →, goes on.",
  help: HELP,
  fits,
  open,
};
