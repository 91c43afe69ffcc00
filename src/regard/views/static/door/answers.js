// The three questions below the sentence, and their answers; see view.js for `at`.

import { makeSelect } from "../base/controls.js";
import { make } from "../base/dom.js";
import { heldOf } from "../base/held.js";
import { nameOf, whole } from "../base/names.js";
import { makeShares } from "../neuron/shares.js";
import { Followed } from "../story/followed.js";
import { worked } from "../story/scores.js";
import { bold, isRead, wholePercent, wordsOf } from "./attention.js";
import { Sentence } from "./sentence.js";

const waiting = () => [make("p", { class: "door-note" }, "The numbers are on their way.")];

// --- Why: the shares of the word, and the arithmetic of one of them

const WHY = {
  name: "why",
  label: "Why?",
  answer({ page, from, head, most, shares }, body) {
    const { state } = page;
    const at = new Followed(page);
    const found = shares();
    const unit = wordsOf(state, head.kind).at(from);
    if (!found || !at.chosen.update(from)) return body.replaceChildren(...waiting());
    if (state.values.key === null) at.chosen.key = most(found)?.first ?? at.chosen.key;
    const pieces = unit.last - unit.first + 1;
    body.replaceChildren(
      make(
        "p",
        {},
        bold(unit.text, "from"),
        " has 100 % to give. It compares itself with every word: the better two fit, the larger the share.",
      ),
      makeShares(at.chosen, (key) => state.set({ key })),
      worked(at),
      ...(pieces > 1
        ? [
            make(
              "p",
              { class: "door-note" },
              `The model reads this word in ${pieces} pieces: these are the numbers of the first, “${at.chosen.nameOf("query", from)}”.`,
            ),
          ]
        : []),
    );
  },
};

// --- What if not: the words without the head

const DEEP = 0.1; // what a word loses of its meaning that stands on the lower line
const HARDLY = 0.98; // a word that keeps more has hardly moved

const WITHOUT = {
  name: "without",
  label: "What if not?",
  answer({ page, head, from, lines }, body) {
    const { source, state } = page;
    const { kind, layer, head: number } = head;
    const found = source.check ? source.check(kind, layer, number) : undefined;
    if (found === undefined) return body.replaceChildren(make("p", {}, ...elsewhere(source, state)));
    if (found === null) return body.replaceChildren(...waiting());
    if (found.error) return body.replaceChildren(make("p", {}, found.error));
    const units = wordsOf(state, kind);
    const kept = (first) => {
      const { last } = units.at(first);
      const of = found.cosine.slice(first, last + 1);
      return of.reduce((sum, each) => sum + each, 0) / of.length;
    };
    const sentence = new Sentence(lines);
    const read = [...sentence.words].filter(([, { textContent }]) => isRead(textContent)).map(([first]) => first);
    for (const [first, element] of sentence.words) {
      element.style.setProperty("--lost", Math.min(1, (1 - kept(first)) / DEEP).toFixed(3));
      element.classList.toggle("from", first === from);
    }
    const least = read.reduce((one, other) => (kept(other) < kept(one) ? other : one), from);
    const hardly = kept(least) > HARDLY;
    const others = source.layers(kind).reduce((sum, each) => sum + source.heads(kind, each), 0) - 1;
    const told = [
      "Without this head, ",
      bold(units.at(from).text, "from"),
      ` keeps ${kept(from).toFixed(2)} of its meaning`,
      ...(least === from
        ? [hardly ? "" : ": no word moves more"]
        : [", and ", bold(units.at(least).text, "to"), ` ${kept(least).toFixed(2)}, the least of all words`]),
      hardly ? `: the other ${others} heads bring nearly all of it.` : ".",
    ];
    body.replaceChildren(
      make("p", {}, ...told),
      make("div", { class: "door-without", "aria-hidden": "true" }, sentence.element),
      make(
        "p",
        { class: "door-note" },
        "The model ran with this head's output at 0. A word sinks as far as its contextual embedding has moved: on the lower line it would keep 0.90 (cosine). So where a head looks is not yet what the model needs.",
      ),
    );
  },
};

// Of a head without this number in the page.
function elsewhere(source, state) {
  const [known] = source.facts.without ?? [];
  const said = "To switch off any head, open the live page, which has the model in it: regard look --live.";
  if (!known) return [said];
  const { layer, head } = known;
  const back = make("button", { type: "button", class: "button" }, `layer ${layer}, head ${head}`);
  back.addEventListener("click", () => state.set({ layer, head, key: null }));
  return [`${said} This page knows it of `, back, "."];
}

// --- And the other heads: the same word in each head of the layer

const OTHERS = {
  name: "others",
  label: "And the other heads?",
  answer({ page, head: { kind, layer, head }, from, lines, shares, most }, body) {
    const { source, state } = page;
    const named = (of) => nameOf(source, { kind, effect: 0 }, { layer, head: of });
    const heads = heldOf(source, kind, layer).sort((a, b) => Number(!named(a)) - Number(!named(b)) || a - b);
    const pick = makeSelect("Layer", (to) => state.set({ layer: Number(to), key: null }), "layer");
    pick.update(kind, () => source.layers(kind).map((each) => [each, each]), layer);
    const drawLater = [];
    const cards = heads.map((of) => {
      const found = shares({ kind, layer, head: of });
      const sentence = new Sentence(lines);
      const to = found && most(found);
      const looks = to ? [bold(to.text, "to"), ` ${wholePercent(found[to.first])}`] : [];
      const button = make(
        "button",
        { type: "button", class: "door-card", "aria-current": of === head ? "true" : null },
        make(
          "span",
          { class: "door-card-name" },
          make("span", {}, `Head ${of}`, ...(named(of) ? [`: ${whole(named(of))}`] : [])),
          make("span", {}, make("span", { class: "sr-only" }, "most to "), ...looks),
        ),
        make("span", { "aria-hidden": "true" }, sentence.element),
      );
      button.addEventListener("click", () => state.set({ head: of, key: null }));
      drawLater.push(() => sentence.draw(from, found));
      return make("li", {}, button);
    });
    body.replaceChildren(
      make(
        "p",
        {},
        bold(wordsOf(state, kind).at(from).text, "from"),
        ` in the ${heads.length} heads of `,
        pick.element,
        ". Each has learned to look at something else: choose one.",
      ),
      make("ul", { class: "door-cards" }, ...cards),
    );
    for (const each of drawLater) each();
  },
};

export const QUESTIONS = [WHY, WITHOUT, OTHERS];
