// What the paths' ends are called: their words, or, where the word is the same in all sentences, with what stands around it.

import { readable } from "../base/dom.js";

const letter = "[\\p{L}\\p{N}\\p{M}]";
const quoted = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

// Where a word, "bank" or "bank#2", stands in a text; null where it is not found as it is written.
function placeOf(text, asked) {
  const [, word, which = "1"] = /^(.+?)(?:#(\d+))?$/su.exec(asked) ?? [];
  if (!word) return null;
  const all = [...text.matchAll(new RegExp(`(?<!${letter})${quoted(word)}(?!${letter})`, "giu"))];
  const found = all[Number(which) - 1];
  return found ? { from: found.index, to: found.index + found[0].length } : null;
}

// The word with so many characters around it, in whole words: as many before as after it, where both have them.
function around(text, asked, most) {
  const place = placeOf(text, asked);
  if (!place) return asked;
  const before = text.slice(0, place.from).split(/\s+/).filter(Boolean);
  const after = text.slice(place.to).split(/\s+/).filter(Boolean);
  const length = (words) => words.reduce((sum, each) => sum + each.length + 1, 0);
  const room = most - (place.to - place.from);
  const half = Math.max(room / 2, room - length(after));
  while (length(before) > half) before.shift();
  while (length(after) > room - length(before)) after.pop();
  const word = text.slice(place.from, place.to);
  return [...before, word, ...after]
    .join(" ")
    .replace(/\s([.,;:!?…])/gu, "$1")
    .replace(/[.,;:!?…]+$/u, "");
}

// A name for each path's end, of about so many characters.
export function endNames({ words, texts }, ends, most) {
  return words.map((word, i) => readable(ends ? word : around(texts[i], word, most)));
}
