// What the paths' ends are called: their words, or, where the word is the same in all sentences, with what stands around it.

import { readable } from "../base/dom.js";
import { placeOf } from "../base/title.js";

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
