// What if not: another word in the place of the one that gets most. The model reads the sentence with it, and both are compared.

import { Both } from "../base/both.js";
import { makeButton } from "../base/controls.js";
import { make } from "../base/dom.js";
import { bothMovedSaid, bothSaid } from "../base/said.js";
import { bold, line, waiting, written } from "./attention.js";

/**
 * @param {any} at what the questions are about, see view.js
 * @param {{ first: number, text: string }} to the word that gets most
 * @param {(text: string) => Both | { error: string } | null} bothWith the sentence and another
 * @param {(text: string) => void} show puts both on the front door
 */
export function swapped({ page, head, from, lines }, to, bothWith, show) {
  const { source, state } = page;
  const { instead } = state.values;
  const part = lines.flat().find((each) => each.first === to.first);
  const field = make("input", {
    type: "text",
    maxlength: "40",
    "aria-label": `Another word in the place of ${to.text}`,
    change: () => state.set({ instead: field.value.trim() }),
  });
  field.value = instead;
  const begins = make("p", { class: "door-swap" }, "In the place of ", bold(to.text, "to"), " write ", field);
  if (instead === "" || !part) return [begins];
  const { text } = source.facts.sides[head.kind];
  const other = text.slice(0, part.from) + instead + text.slice(part.to);
  const both = bothWith(other);
  if (!(both instanceof Both)) return [begins, ...(both ? [line(both.error)] : waiting())];
  const pair = both.pairs.find(([{ first }]) => first === from);
  if (!pair) return [begins, line("The other sentence does not have the word that is followed.")];
  return [
    begins,
    line(...written(bothSaid(both, pair, both.rows(pair, head)))),
    line("So ", ...written(bothMovedSaid(both, pair))),
    makeButton("Both sentences, one above the other", () => show(other)),
  ];
}
