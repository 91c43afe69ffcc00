// Steps 1 to 3: the text, its tokens, and what the model knows of a word before it looks at another.

import { makeTable } from "../base/controls.js";
import { make, makeNote, readable } from "../base/dom.js";
import { largestSize } from "../neuron/figures.js";
import { decimals, digits, strip, sumEquation, vectorLines, vectorTable } from "./figures.js";
import { isNorm } from "./followed.js";

const thousands = (count) => count.toLocaleString("en");

// --- 1: tokens

const TOKENS = {
  name: "Tokens",
  title: "The text is cut into tokens",
  said: (at) => [
    "The model knows a fixed list of pieces of text. It cuts the sentence into them and looks up the number of each: ",
    at.word(),
    ` is number ${thousands(idOf(at))}.`,
  ],
  draw(at) {
    const { source, story, chosen } = at;
    const tokens = source.tokens(chosen.kind, "query");
    const words = source.words(chosen.kind, "query");
    const columns = [];
    story.tokens.forEach((token, place) => {
      const { word, special, sequence } = tokens[token];
      const last = columns[columns.length - 1];
      const joins = last && word !== null && last.word === word && last.sequence === sequence;
      if (!joins) columns.push({ word, special, sequence, places: [] });
      columns[columns.length - 1].places.push(place);
    });
    const piece = (place) => {
      const index = story.tokens[place];
      const on = index === chosen.query;
      const { text, special, unknown } = tokens[index];
      return make(
        "span",
        { class: `story-piece${on ? " followed" : ""}${special || unknown ? " special" : ""}` },
        make("bdi", { class: "story-text", dir: "auto" }, unknown ? text : at.name("query", index)),
        make("span", { class: "story-id" }, String(story.ids[place])),
      );
    };
    // A token that stands for what the list has no pieces for may stand for several words.
    const textOf = (word, token) =>
      tokens[token].unknown ? chosen.word("query", token).text : (words[word] ?? at.name("query", token));
    const column = ({ word, special, places }) =>
      make(
        "li",
        { class: places.some((place) => story.tokens[place] === chosen.query) ? "followed" : null },
        make(
          "bdi",
          { class: "story-word", dir: "auto" },
          special ? "" : readable(textOf(word, story.tokens[places[0]])),
        ),
        make("span", { class: "story-pieces" }, ...places.map(piece)),
      );
    return [
      make(
        "ul",
        { class: "story-tokens" },
        make(
          "li",
          { class: "story-labels", "aria-hidden": "true" },
          ...["text", "tokens", "numbers"].map((text) => make("span", {}, text)),
        ),
        ...columns.map(column),
      ),
      makeNote(...tokenNotes(at, tokens)),
    ];
  },
  numbers: (at) => [
    makeTable(
      `Tokens and their numbers${at.story.vocabulary ? `, of a vocabulary of ${thousands(at.story.vocabulary)}` : ""}`,
      ["Position", "Token", "Number"],
      at.story.tokens.map((token, place) => [String(token), at.name("query", token), String(at.story.ids[place])]),
    ),
  ],
};

const idOf = (at) => at.story.ids[at.place];

function tokenNotes(at, tokens) {
  const { chosen, story, source } = at;
  const token = tokens[chosen.query];
  const unit = chosen.word("query", chosen.query);
  const pieces = unit.last - unit.first + 1;
  const notes = [];
  if (token.special) notes.push(at.word(), " is no word: the model's own mark, added to the text. ");
  else if (pieces > 1)
    notes.push(
      "The word ",
      make("bdi", { dir: "auto" }, source.words(chosen.kind, "query")[token.word] ?? unit.text),
      ` is not in the list, so it is ${pieces} pieces; each goes its own way, and we follow `,
      at.word(),
      ". ",
    );
  if (story.tokens.some((index) => tokens[index].special))
    notes.push("A dashed box is a mark that the model adds itself. ");
  const unknown = story.tokens.map((index) => tokens[index]).find((each) => each.unknown);
  if (unknown) notes.push(`${unknown.text} stands for what the list has no pieces for. `);
  if (story.vocabulary) notes.push(`The list has ${thousands(story.vocabulary)} entries.`);
  return notes;
}

// --- 2: the learned embedding

const ROWS = 9; // of the table that are drawn

const LEARNED = {
  name: "Embedding",
  title: "A row of a table: the learned embedding",
  said: (at) => [
    `Row ${thousands(idOf(at))} of a table that the model has learned is all that `,
    at.word(),
    ` means so far: ${at.story.rows[0].dim ?? at.story.dim} numbers, the same in every sentence.`,
  ],
  draw(at) {
    const { story } = at;
    const of = new Map(); // each row of the table, by the first place of its token
    story.ids.forEach((id, place) => of.has(id) || of.set(id, place));
    const ids = [...of.keys()].sort((a, b) => a - b);
    const here = ids.indexOf(idOf(at));
    const first = Math.max(0, Math.min(here - Math.floor(ROWS / 2), ids.length - ROWS));
    const shown = ids.slice(first, first + ROWS);
    const largest = largestSize(...shown.map((id) => story.vector(0, of.get(id))));
    const lines = shown.map((id, i) =>
      make(
        "li",
        {
          class: `story-line${id === idOf(at) ? " followed" : ""}${id === (shown[i - 1] ?? -1) + 1 ? "" : " after-gap"}`,
        },
        make("span", { class: "story-id" }, String(id)),
        make("bdi", { class: "story-name", dir: "auto" }, at.name("query", story.tokens[of.get(id)])),
        make("span", { class: "story-bars" }, strip(story.vector(0, of.get(id)), largest)),
      ),
    );
    const times = story.ids.filter((id) => id === idOf(at)).length;
    const values = at.vector(0);
    const dim = story.rows[0].dim ?? story.dim;
    const size = story.vocabulary ? `${thousands(story.vocabulary)} rows of ` : "rows of ";
    return [
      make(
        "div",
        { class: "story-frame" },
        make("p", { class: "story-label" }, `The table: ${size}${dim} numbers. Of these rows, those of this text:`),
        make("ol", { class: "story-lines story-table" }, ...lines),
      ),
      vectorLines([
        {
          sign: "↳",
          name: ["row ", String(idOf(at)), ": ", at.word()],
          values,
          note: at.shownOf(story.rows[0].dim),
          kind: "large",
        },
      ]),
      make(
        "p",
        { class: "equation story-equation" },
        at.word(),
        ` = (${Array.from(values.slice(0, 5), (value) => decimals(value)).join(", ")}, … )`,
      ),
      makeNote(
        "A bar up, green, is a number above 0; a bar down, purple, one below.",
        ids.length > ROWS ? ` The text has ${ids.length} different tokens: drawn are the nearest.` : "",
        times > 1 ? ` The text has this token ${times} times: each starts from this same row.` : "",
      ),
    ];
  },
  numbers: (at) => [
    vectorTable(`The learned embedding: ${at.shownOf(at.story.rows[0].dim)}; length ${digits(at.length(0))}`, [
      ["Value", at.vector(0)],
    ]),
  ],
};

// --- 3: position

const POSITION = {
  name: "Position",
  title: "Plus the place in the sentence",
  said(at) {
    const { chosen } = at;
    const added = embeddingRows(at).some((row) => at.story.rows[row].name === "position");
    const word = at.word();
    if (added)
      return [
        "Numbers that stand for the place are added, so that the model can tell a first ",
        word,
        ` from a last: here, place ${chosen.query}, counted from 0.`,
      ];
    return [...withoutVector(at, word)];
  },
  draw(at) {
    const { story } = at;
    const rows = embeddingRows(at);
    const summed = rows.find((row) => story.rows[row].sum);
    const terms = summed === undefined ? [] : story.rows[summed].sum;
    const norm = rows.find((row) => isNorm(story.rows[row]));
    const lines = rows.map((row) => ({
      own: row === norm,
      sign: terms.indexOf(row) > 0 ? "+" : row === summed ? "=" : row === 0 ? "" : "→",
      name: row === 0 ? ["learned: ", at.word()] : embeddingName(at, story.rows[row]),
      values: at.vector(row),
      note: `length ${digits(at.length(row))}`,
      kind: story.rows[row].hidden === 0 ? "result" : "",
    }));
    const equation = (dim) =>
      sumEquation(
        terms.map((row) => at.vector(row)[dim]),
        at.vector(summed)[dim],
      );
    return [
      vectorLines(lines, terms.length > 1 ? [["", equation]] : []),
      makeNote(
        norm === undefined
          ? ""
          : `${story.rows[norm].name.replace(/,.*/, "")} then brings all numbers to a common size, so that no word is louder than another; its bars have a scale of their own. `,
        at.drawnOf(),
      ),
    ];
  },
  numbers: (at) => [
    vectorTable(
      `From the learned embedding to what enters layer 0: ${at.shownOf()}`,
      embeddingRows(at).map((row) => [at.story.rows[row].name, at.vector(row)]),
    ),
  ],
};

const embeddingRows = (at) => at.story.rows.flatMap(({ part }, row) => (part === "embedding" ? [row] : []));

function embeddingName({ source, chosen }, { name, hidden }) {
  if (name === "position") return `place ${chosen.query}`;
  if (name === "token type")
    return `which text it is in: the ${source.tokens(chosen.kind, "query")[chosen.query].sequence ? "second" : "first"}`;
  if (name === "sum") return hidden === 0 ? "sum: enters layer 0" : "sum";
  return hidden === 0 && name !== "enters layer 0" ? `${name}: enters layer 0` : name;
}

// How a model knows places that adds nothing here.
function withoutVector({ source, chosen, stack }, word) {
  const own = chosen.kind === "cross" ? "decoder" : stack;
  const layers = source.kinds.includes(own) ? source.layers(own) : [];
  if (layers.some((layer) => source.rotary(own, layer)))
    return [
      "This model adds nothing for the place here: it will turn the query and the key of ",
      word,
      " by it, in step 4.",
    ];
  if (layers.some((layer) => source.distances(own, layer)))
    return ["This model adds nothing for the place here: it adds to the scores of ", word, " by distance, in step 5."];
  const { said } = source.positions(chosen.kind, "query");
  return said === "none"
    ? ["This model is told nothing of the place of ", word, ": it knows words, and not their order."]
    : ["Nothing that is added for the place of ", word, " can be seen on this page."];
}

export const BEGINNING = [TOKENS, LEARNED, POSITION];
