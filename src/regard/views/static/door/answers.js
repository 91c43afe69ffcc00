// The questions below the sentence, and what unfolds below each; see view.js for `at`, and why.js for the first.

import { makeButton, makeChoice, makeSelect } from "../base/controls.js";
import { make } from "../base/dom.js";
import { allHeads, heldOf } from "../base/held.js";
import { nameOf, saidOf } from "../base/names.js";
import { deepest, movedSaid, nextSaid, othersSaid, quoted, rowOf, targetOf } from "../base/said.js";
import { isRead, wordsOf } from "../base/shares.js";
import { bold, line, note, waiting, written } from "./attention.js";
import { Sentence } from "./sentence.js";
import { WHY } from "./why.js";

// --- What if not: the words where none of them may look at the word that gets most, or without the head

// What can be left out, and how that is said; all: how many heads there are.
const LEFT_OUT = {
  word: {
    said: (all, to) => [
      "If no other word may look at ",
      bold(to.text, "to"),
      all > 1 ? `, in any of the ${all} heads, ` : ", ",
    ],
    note: "The model ran with this word hidden from all others. It keeps its place, and still looks at them.",
  },
  head: {
    said: () => ["Without this head, "],
    note: "The model ran with this head’s output at 0: where a head looks is not yet what the model needs.",
  },
};

const WITHOUT = {
  name: "without",
  label: "What if not?",
  answer(at) {
    const { page, head, from, lines, shares, most, writer = null } = at;
    const { source, state } = page;
    const found = shares();
    const to = found && most(found);
    if (writer) return to ? withoutNext(source, head.kind, to, writer) : [line("There is no other word to leave out.")];
    const { lost: chosen } = state.values;
    const lost = !to ? "head" : chosen === "swap" && !source.swap ? "word" : chosen;
    const what = lost === "word" ? { unseen: to.first } : { layer: head.layer, head: head.head };
    const word = to ? [["word", make("bdi", { dir: "auto" }, `without “${to.text}”`)]] : [];
    const swap = to && source.swap ? [["swap", "another word in its place"]] : [];
    const pick = makeChoice({
      name: "lost",
      legend: "What is left out",
      options: [...word, ...swap, ["head", "without this head"]],
      value: () => lost,
      choose: (name) => state.set({ lost: name }),
    });
    if (lost === "swap") return [pick.element, ...source.swap(at, to)];
    return [pick.element, ...effectOf(source, state, { head, from, lines, what, to })];
  },
};

// What would come next without a word.
function withoutNext(source, kind, to, writer) {
  const pick = makeSelect("Word", (word) => writer.hide(Number(word)), "");
  const words = writer.sources().map(({ word, text }) => [word, text]);
  pick.update(String(words), () => words, writer.most.word);
  const begins = line("If no other word may look at ", pick.element, ", in any of the ", `${writer.heads} heads, `);
  const found = source.check(kind, { unseen: to.first });
  if (!found?.next) return [begins, ...(found?.error ? [line(found.error)] : waiting())];
  begins.append(...written(nextSaid(found.next)));
  return [begins, writer.beside(found.next), note(`${LEFT_OUT.word.note} Blue: as it is; grey: without the word.`)];
}

const INSIDE = "In the text itself, ";

function effectOf(source, state, { head, from, lines, what, to }) {
  const found = source.check?.(head.kind, what);
  if (found === undefined) return [line(elsewhere(source, state, head.kind))];
  if (found === null) return waiting();
  if (found.error) return [line(found.error)];
  const { cosine, apart = null, next } = found;
  const { said, note: ran } = LEFT_OUT[what.unseen === undefined ? "head" : "word"];
  const units = wordsOf(state, head.kind);
  const sentence = new Sentence(lines);
  sentence.show(from, null);
  const move = (first) => {
    const { text, last } = units.at(first);
    const kept = cosine.slice(first, last + 1);
    return { text, first, moved: 1 - kept.reduce((sum, each) => sum + each, 0) / kept.length };
  };
  const moves = [...sentence.words.keys()].filter((first) => first !== what.unseen).map(move);
  const read = moves.filter(({ text, first }) => isRead(text) || first === from);
  const deep = deepest(moves, apart);
  for (const { first, moved } of moves)
    sentence.words.get(first).style.setProperty("--lost", Math.max(0, moved / deep).toFixed(3));
  sentence.words.get(what.unseen)?.classList.add("hidden-word");
  const scale = ` The bar below a word is as long as its contextual embedding moves (1 − cosine); a full one is ${deep.toFixed(2)}.`;
  const begins = said(allHeads(source, head.kind).length, to);
  const moved = written(movedSaid(read, from, apart));
  return [
    ...(next ? [line(...begins, ...written(nextSaid(next))), line(INSIDE, ...moved)] : [line(...begins, ...moved)]),
    make("div", { class: "door-without", "aria-hidden": "true" }, sentence.element),
    note(ran + scale),
  ];
}

// Of what this page does not know.
function elsewhere({ facts }, state, kind) {
  const known = (facts.without ?? []).map(({ layer, head, unseen }) =>
    unseen === undefined ? `layer ${layer}, head ${head}` : `“${wordsOf(state, kind).at(unseen).text}”`,
  );
  const here = known.length > 0 ? `This page knows it of ${known.join(", and of ")}. ` : "";
  return `${here}To leave out any head or word, open the live page, which has the model in it: regard look --live.`;
}

// --- And the other heads: the same word in each head of the layer, those that look at a word first

const REST = "Every head gives 100 %, also where no word gets much: then it rests on marks, or spreads.";

const SINK = "delimiter sink"; // what the others do is said above them

const OTHERS = {
  name: "others",
  label: "And the other heads?",
  answer({ page, head: { kind, layer, head }, from, lines, marks, isLong, show = null }) {
    const { source, state } = page;
    const rows = heldOf(source, kind, layer).map((of) => ({ of, row: rowOf(page, { kind, layer, head: of }, from) }));
    if (rows.some(({ row }) => row === null)) return waiting();
    const pick = makeSelect("Layer", (to) => state.set({ layer: Number(to), key: null }), "layer");
    pick.update(kind, () => source.layers(kind).map((each) => [each, each]), layer);
    const card = ({ of, row }) => {
      const name = nameOf(source, { kind, effect: 0 }, { layer, head: of });
      const sentence = new Sentence(lines, {}, marks);
      if (show) show(sentence, row);
      else sentence.show(from, row.shares);
      const parts = [
        make(
          "span",
          { class: "door-card-name" },
          make("span", {}, `Head ${of}`, name && name.name !== SINK && row.does === "looks" ? ` ${saidOf(name)}` : ""),
          row.claims.length > 0 ? make("span", {}, ...written(targetOf(row.claims))) : "",
        ),
        isLong ? "" : make("span", { "aria-hidden": "true" }, sentence.element),
      ];
      const looked = { class: "door-card", "aria-current": of === head ? "true" : null };
      const button = makeButton(parts, () => state.set({ head: of, key: null }), looked);
      return make("li", {}, button);
    };
    const list = (some) => make("ul", { class: "door-cards" }, ...some.map(card));
    const [looking, others] = [true, false].map((is) => rows.filter(({ row }) => (row.does === "looks") === is));
    const largest = ({ row }) => row.claims.find(({ of }) => of === "word")?.share ?? 0;
    looking.sort((a, b) => largest(b) - largest(a));
    const word = bold(quoted(wordsOf(state, kind).at(from)), "from");
    const some = looking.length === 0 ? "none gives" : looking.length === 1 ? "one gives" : `${looking.length} give`;
    const said = `: ${some} a word far more than an even share.`;
    const folded = make("details", { open: others.some(({ of }) => of === head) });
    folded.append(
      make(
        "summary",
        {},
        othersSaid(
          others.map(({ row }) => row),
          looking.length,
        ),
      ),
      note(REST),
      list(others),
    );
    return [
      line(word, ` in the ${rows.length} heads of `, pick.element, said),
      ...(looking.length > 0 ? [list(looking)] : []),
      ...(others.length > 0 ? [folded] : []),
    ];
  },
};

export const QUESTIONS = [WHY, WITHOUT, OTHERS];
