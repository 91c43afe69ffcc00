// Two words on their ways through the layers, in one picture: of a word here and in another sentence.

import { make, readable } from "../base/dom.js";
import { drawPaths } from "./drawing.js";

/**
 * @param {{ words: string[], texts: string[], steps: string[], points: number[][][], far: number[], share: number[],
 *   apart: number | null }} found as tracing/pages/_story.py and live/beside.js write it
 * @param {import("../base/colours.js").Colours} colours
 * @param {number} most pixels across
 */
export function drawBeside({ words, texts, steps, points, far, share, apart }, colours, most) {
  const width = Math.max(280, Math.min(most, window.innerWidth - 34)); // a phone's letters are as large as others
  const facts = { words, texts, steps };
  const projection = {
    ends: false,
    points,
    share,
    apart,
    true: far.map((each) => [
      [0, each],
      [each, 0],
    ]),
  };
  const height = Math.max(240, Math.round(0.5 * width));
  return drawPaths({ facts, projection, step: steps.length - 1, colours, width, height });
}

/** What is to be seen in it. @param {{ words: string[], texts: string[] }} found */
export function besideSaid({ words, texts: [, text] }) {
  const [one, other] = words.map((word) => word.replace(/#\d+$/, "")); // which of several: the drawing says it
  const name = (word) => make("b", {}, make("bdi", { dir: "auto" }, readable(word)));
  if (one.toLowerCase() !== other.toLowerCase())
    return make("p", {}, "Of the other words, ", name(other), " comes to be most like ", name(one), ":");
  const begins = " begins as one row of the table. Here, and in “";
  return make("p", {}, name(one), begins, make("bdi", {}, text), "”, it ends as two things:");
}
