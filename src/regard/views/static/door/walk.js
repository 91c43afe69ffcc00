// A walk of sixty seconds through the model, on the reader's own sentence: eight cards, each with what it is about lit up.

import { makeButton } from "../base/controls.js";
import { drawn, make } from "../base/dom.js";
import { heldOf } from "../base/held.js";
import { onKeys } from "../base/keys.js";
import { sharesOf, wordsOf } from "../base/shares.js";
import { makeShares } from "../neuron/shares.js";
import { mixOf } from "../story/attention.js";
import { vectorLines } from "../story/figures.js";
import { Followed } from "../story/followed.js";
import { endingOf, waysOf } from "../story/journey.js";
import { bold, note, waiting } from "./attention.js";
import { termsOf } from "./terms.js";
import { drawOffers } from "./why.js";

const LISTED = 4; // words that are drawn one by one
const LAYERS = 9; // that are, so that they can be read from afar

// What a card says and draws. light: what of the sentence is lit, see walk.css; ofStory: it draws what is in the model
// beside attention, which not every page holds.
const CARDS = [
  {
    name: "What it is for",
    light: "text",
    said: ({ terms }) => [terms.model],
    draw: () => [],
  },
  {
    name: "A list of numbers",
    light: "word",
    ofStory: true,
    said: ({ word, followed: { story } }) => [
      word,
      story ? ` comes in as a list of ${story.rows[0].dim ?? story.dim} numbers,` : " comes in as a list of numbers,",
      " the same in every sentence. Another word has another list.",
    ],
    draw({ followed }) {
      const { story, chosen } = followed;
      const learned = (index, kind) => ({
        name: chosen.nameOf("key", index),
        values: story.vector(0, story.tokens.indexOf(index)),
        kind,
      });
      const other = chosen.key !== chosen.query && story.tokens.includes(chosen.key) ? [learned(chosen.key, "")] : [];
      return [vectorLines([learned(chosen.query, "followed"), ...other]), note(`Drawn: ${followed.shownOf()}.`)];
    },
  },
  {
    name: "Asking",
    light: "words",
    said: ({ word }) => [
      word,
      " asks. What it looks for is a short list of numbers, its query; every word has one to be found by, its key.",
    ],
    draw({ followed: { chosen } }) {
      const mark = chosen.keys.findIndex(({ special, sink }) => special && !sink);
      const added = mark < 0 ? "" : ` ${chosen.nameOf("key", mark)} is a mark that the model adds.`;
      const says =
        "Bars point up where a word has more than the others of what is asked for, and down where it has less.";
      return [drawOffers(chosen, LISTED, false), note(says + added)];
    },
  },
  {
    name: "Shares",
    light: "arcs",
    said: ({ terms }) => ["The better two fit, the larger the share. ", terms.percent],
    draw: ({ followed, state, terms }) => [makeShares(followed.chosen, (key) => state.set({ key })), note(terms.not)],
  },
  {
    name: "The mix",
    light: "arcs",
    said: ({ word }) => [
      "From each word it takes what that hands on, in these shares. The sum is what ",
      word,
      " takes along.",
    ],
    draw: ({ followed }) =>
      followed.steps.v
        ? [vectorLines(mixOf(followed, LISTED))]
        : [note("This page does not hold what the words hand on.")],
  },
  {
    name: "Heads",
    light: "word",
    said: ({ terms, head }) => [terms.heads, ` What you saw was head ${head.head} of layer ${head.layer}.`],
    draw: headsOf,
  },
  {
    name: "Layers",
    light: "word",
    ofStory: true,
    said: ({ terms }) => [terms.layers],
    draw: ({ followed }) => [
      waysOf(followed, LAYERS),
      note("Beside each list: how alike it still is to the first (1 is the same direction)."),
    ],
  },
  {
    name: "What comes out",
    light: "word",
    ofStory: true,
    said: ({ word, head }) =>
      head.kind === "decoder"
        ? ["What comes out at the last word is a share for every word that may come next."]
        : ["What comes out is a new list of numbers: ", word, " in this sentence."],
    draw: ({ followed }) => [
      endingOf(followed) ??
        vectorLines([
          { name: "came in", values: followed.vector(0), own: true },
          { name: "came out", values: followed.vector(followed.hidden(followed.layers)), own: true },
        ]),
    ],
  },
];

// The word in every head of its layer: arcs over dots, a dot for each word.
function headsOf({ page, head: { kind, layer, head }, from, state }) {
  const { all } = wordsOf(state, kind);
  const places = new Map(all.map(({ first }, place) => [first, 10 * place + 5]));
  const high = 3 * all.length + 8;
  const picture = (of) => {
    const shares = sharesOf(page, { kind, layer, head: of }, from);
    const arcs = Array.from(places, ([first, x]) => {
      const share = shares ? shares[first] : 0;
      const [one, apart] = [places.get(from), Math.abs(x - places.get(from))];
      const d =
        apart === 0
          ? `M${x} 0q-9 -18 0 -18t0 18`
          : `M${one} 0A${apart / 2} ${apart / 4 + 5} 0 0 ${Number(x > one)} ${x} 0`;
      return share < 0.02 ? "" : drawn("path", { d, "--share": share.toFixed(3) });
    });
    const dots = all.map(({ first, special }) =>
      drawn("circle", { cx: places.get(first), cy: 6, r: 3, class: first === from ? "from" : special ? "mark" : null }),
    );
    const box = `0 ${-high} ${10 * all.length} ${high + 12}`;
    const svg = drawn("svg", { viewBox: box, "aria-hidden": "true" }, ...arcs.filter(Boolean), ...dots);
    return make("li", { class: of === head ? "on" : null }, svg, make("span", {}, String(of)));
  };
  const heads = make("ol", { class: "walk-heads" }, ...heldOf(page.source, kind, layer).map(picture));
  return [heads, all.some(({ special }) => special) ? note("A hollow dot is a mark that the model adds.") : ""];
}

/** What the door says of the walk: `element` and `invitation` stand in it. @param {any} at see view.js */
export function makeWalk(at) {
  const { page } = at;
  const { source, state } = page;
  const terms = termsOf(source);
  const followed = new Followed(page);
  const count = make("span", { class: "walk-count" });
  const name = make("h2", { class: "sr-only" });
  const said = make("p", { class: "walk-said", role: "status" });
  const picture = make("div", { class: "walk-picture" });
  const go = (to) => state.set({ walk: to > CARDS.length ? null : Math.max(1, to) });
  const turn = (by) => go(state.values.walk + by);
  const before = makeButton("‹ Back", () => turn(-1));
  const after = makeButton("Next ›", () => turn(1));
  const leave = makeButton("Leave", () => state.letGo(), { title: "Escape" });
  const steps = CARDS.map(() => make("i", {}));
  const line = make("span", { class: "walk-steps", "aria-hidden": "true" }, ...steps);
  const rail = make("div", { class: "walk-rail" }, line, count, before, after, leave);
  const named = { class: "walk", tabindex: "-1", "aria-label": "A walk of sixty seconds" };
  const element = make("section", named, rail, name, said, picture);
  const begin = () => {
    go(1);
    element.focus({ preventScroll: true });
  };
  // No stop for Tab: its key is the space bar.
  const key = make("span", { class: "walk-key" }, ": space");
  const invitation = makeButton(["Sixty-second walk", key], begin, { class: "button walk-begin", tabindex: "-1" });

  function draw() {
    const { walk } = state.values;
    const door = element.closest(".door");
    door.classList.toggle("walking", walk !== null);
    if (walk === null) return;
    const card = CARDS[walk - 1];
    door.dataset.light = card.light;
    steps.forEach((step, i) => step.classList.toggle("on", i < walk));
    count.textContent = `${walk} of ${CARDS.length}`;
    name.textContent = card.name;
    before.disabled = walk === 1;
    after.replaceChildren(walk === CARDS.length ? "Finish" : "Next ›");
    const { head, from } = at;
    const missing = followed.update(from);
    const { chosen } = followed;
    const shares = at.shares();
    if (shares && state.values.key === null) chosen.key = at.most(shares)?.first ?? chosen.key;
    const word = bold(wordsOf(state, head.kind).at(from).text, "from");
    const told = { page, state, terms, followed, head, from, word };
    const picturesOf = () => (shares && chosen.steps ? card.draw(told) : waiting());
    said.replaceChildren(...card.said(told));
    picture.replaceChildren(...(card.ofStory && missing ? [note(missing)] : picturesOf()));
  }

  onKeys(
    document,
    (key, event) => {
      const [target] = event.composedPath();
      const door = element.closest(".door");
      // Where nothing has the focus, the keys are the door's, but not a notebook's.
      const isOurs = (target === document.body && element.getRootNode() === document) || door?.contains(target);
      if (!isOurs || door.hidden || event.defaultPrevented || target.matches("input, select, textarea")) return false;
      const by = key === " " ? (event.shiftKey ? -1 : 1) : state.values.walk === null ? 0 : (ARROWS[key] ?? 0);
      if (by === 0 || (key === " " && target.matches("button, a, summary"))) return false;
      if (state.values.walk === null) begin();
      else turn(by);
      return true;
    },
    state.gone,
  );
  return { element, invitation, draw };
}

const ARROWS = { ArrowRight: 1, ArrowLeft: -1 };

/** Which card is on, as a field of the state; null for none. */
export const walk = {
  initial: null,
  read: (text) => (/^[1-8]$/.test(text) ? Number(text) : undefined),
  write: (value) => (value === null ? null : String(value)),
  back: true,
};
