// Why: other words in the place of the one that is looked at, and what the head then gives to that place. Each share is
// hidden until a reader asks for it, so that it can be guessed.

import { makeButton } from "../base/controls.js";
import { make } from "../base/dom.js";
import { wholePercent } from "../base/said.js";
import { bold, line, note, waiting } from "./attention.js";

/**
 * @param {any} at what the questions are about, see view.js
 * @param {{ first: number, text: string }} to the word that is looked at
 * @param {number} share what it gets
 */
export function drawInstead({ page, head, from }, to, share) {
  const { source, state } = page;
  const { guessed } = state.values;
  const words = source.instead?.(head, from, to.first, guessed);
  if (words === undefined || words?.length === 0) return [];
  const begins = line(
    "Would the same head give as much to another word in the place of ",
    bold(to.text, "to"),
    "? Guess, then look.",
  );
  if (words === null) return [begins, ...waiting()];
  const row = (text, found, isOwn = false) => {
    const look = makeButton("?", () => state.set({ guessed: [...guessed, text] }), { "aria-label": `Look at ${text}` });
    const isHidden = !isOwn && !guessed.includes(text);
    return make(
      "li",
      { class: isOwn ? "own" : null },
      make("bdi", { dir: "auto" }, text),
      make("span", { class: "instead-bar" }, isHidden || found === null ? "" : make("span", { "--size": found })),
      isHidden ? look : make("span", { class: "offer-share" }, found === null ? "…" : wholePercent(found)),
    );
  };
  const rows = words.map((each) => row(each.text, each.share));
  return [
    begins,
    make("ul", { class: "instead" }, row(to.text, share, true), ...rows),
    note("The words nearest to it in the model’s table, and last the word of the sentence least like it."),
  ];
}

/** The words whose shares were asked for, as a field of the state. */
export const guessed = {
  initial: [],
  read: (text) => text.split(",").filter(Boolean).slice(0, 12),
  write: (words) => (words.length > 0 ? words.join(",") : null),
};
