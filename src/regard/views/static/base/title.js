// The texts above every view. Their words are the tokens': pointing at one points at its token, a click pins it, and
// while a row is on show, each word is as dark as the weight that it is given.

import { make } from "./dom.js";
import { quantityOf } from "./measures.js";

const LONG = 240; // characters
const FAINTEST = 0.02; // of the largest weight; a lighter shade would not be seen

// Where the words of one text stand in it, [{ from, to, first, last }], by their tokens; those that are not found there
// word for word are left out.
function placesOf(text, units) {
  const places = [];
  let from = 0;
  for (const { text: word, first, last, special, unknown } of units) {
    const at = special || word === "" ? -1 : text.indexOf(word, from);
    if (at < 0) continue;
    from = at + word.length;
    places.push({ text: word, from: at, to: from, first, last, unknown });
  }
  return places;
}

const letter = "[\\p{L}\\p{N}\\p{M}]";
const quoted = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

// Where a word, "bank" or "bank#2", stands in a text; null where it is not found as it is written.
export function placeOf(text, asked) {
  const [, word, which = "1"] = /^(.+?)(?:#(\d+))?$/su.exec(asked) ?? [];
  if (!word) return null;
  const all = [...text.matchAll(new RegExp(`(?<!${letter})${quoted(word)}(?!${letter})`, "giu"))];
  const found = all[Number(which) - 1];
  return found ? { from: found.index, to: found.index + found[0].length } : null;
}

// A text in parts, in order: strings, and its words, with their tokens.
export function partsOf(source, state, { text, stack, sequence, first = 0, last = Infinity }) {
  const parts = [];
  let done = 0;
  const words = stack ? wordsOf(source, state, stack, sequence) : [];
  const some = words.filter((word) => first <= word.first && word.last <= last);
  for (const place of placesOf(text, some)) {
    parts.push(text.slice(done, place.from), place);
    done = place.to;
  }
  return [...parts, text.slice(done)];
}

// texts: [{ badge, text, stack, sequence, first, last, asked }]: whose tokens its words are, "encoder" or "decoder" (null:
// nobody's on this page), of which text of a pair, from which token to which, and the word that the page is about.
/**
 * @param {import("./types").Source} source
 * @param {import("./state.js").State} state
 * @param {{ badge: string, text: string, stack: string | null, sequence: number, first?: number, last?: number,
 *   asked?: string }[]} texts
 */
export function makeTitle(source, state, texts) {
  const long = texts.reduce((sum, { text }) => sum + text.length, 0) > LONG;
  const element = make("h1", {
    class: long ? "sentence long" : "sentence",
    tabindex: long ? "0" : null,
    title: long ? texts.map(({ text }) => text).join("\n") : null,
  });
  const words = []; // { element, stack, first, last }
  for (const each of texts) {
    const { badge, text, stack, asked } = each;
    const bdi = make("bdi", { dir: "auto" });
    const about = asked ? placeOf(text, asked) : null;
    let to = 0;
    for (const place of partsOf(source, state, each)) {
      const from = to;
      to += (place.text ?? place).length;
      const isAbout = about && from <= about.from && about.to <= to;
      if (typeof place === "string") {
        if (!isAbout) bdi.append(place);
        else
          bdi.append(
            place.slice(0, about.from - from),
            make("span", { class: "about" }, text.slice(about.from, about.to)),
            place.slice(about.to - from),
          );
        continue;
      }
      const word = make(
        "span",
        {
          class: `word${place.unknown ? " unknown-word" : ""}${isAbout ? " about" : ""}`,
          "data-word": String(words.length),
          title: place.unknown ? `The model does not know it, and has read ${place.unknown}` : null,
        },
        place.text,
      );
      bdi.append(word);
      words.push({ element: word, stack, ...place });
    }
    element.append(badge ? make("span", { class: "part" }, make("span", { class: "badge" }, badge), bdi) : bdi);
  }

  // Both sides of one stack are its tokens: there a word means its query.
  const sideOf = (stack) =>
    ["query", "key"].find((side) => source.facts.kinds[state.values.kind][side] === stack) ?? null;
  const tokenOf = (target) => {
    const found = target.closest("[data-word]");
    const { stack, first } = found ? words[Number(found.dataset.word)] : { stack: null, first: 0 };
    const side = stack && sideOf(stack);
    return side && state.isShown(side, first) ? { side, index: first } : null;
  };
  element.addEventListener("pointerover", ({ target }) => state.set({ hover: tokenOf(target) }));
  element.addEventListener("pointerleave", () => state.set({ hover: null }));
  element.addEventListener("click", ({ target }) => {
    const token = tokenOf(target);
    if (token) state.set({ pin: token, hover: null });
  });

  // Of a span, or of numbers with signs, nothing is shaded, nor in views that show no row.
  const shades = () => {
    const { view, kind, layer, head, what } = state.values;
    const held = state.held();
    if (["story", "movement", "positions"].includes(view) || !held || held.to !== undefined || quantityOf(what).signed)
      return null;
    const other = held.side === "query" ? "key" : "query";
    const row =
      held.side === "query"
        ? source.row(kind, layer, head, held.index, what)
        : source.column(kind, layer, head, held.index, what);
    return row && { row, stack: source.facts.kinds[kind][other], of: source.facts.kinds[kind][held.side], held };
  };
  const draw = () => {
    const shade = shades();
    const largest = shade ? Math.max(...shade.row) : 0;
    for (const { element: word, stack, first, last } of words) {
      let weight = 0;
      if (shade?.stack === stack) for (let i = first; i <= last; i += 1) weight += shade.row[i];
      const part = largest > 0 ? Math.min(1, weight / largest) : 0;
      word.style.setProperty("--part", part < FAINTEST ? "0%" : `${(40 * part).toFixed(1)}%`);
      word.classList.toggle("of-key", shade?.held.side === "key");
      const { index } = shade?.held ?? { index: -1 };
      word.classList.toggle("chosen", shade?.of === stack && first <= index && index <= last);
    }
  };
  state.listen((changed) => {
    if (["view", "kind", "layer", "head", "pin", "row", "what"].some((name) => changed.has(name))) draw();
  });
  source.listen(draw);
  draw();
  return element;
}

// The words of a stack's tokens, as the text has them.
function wordsOf(source, state, stack, sequence) {
  for (const kind of source.kinds) {
    for (const side of ["query", "key"]) {
      if (source.facts.kinds[kind][side] !== stack) continue;
      return state.units(side, { kind, units: "words" }).all.filter((unit) => (unit.sequence ?? 0) === sequence);
    }
  }
  return [];
}
