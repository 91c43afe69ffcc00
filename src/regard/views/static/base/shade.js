// Numbers as the strength of a colour: the same in a map, in a text, and in Python's pictures (views/_picture.py).

import PALETTE from "../palette.json";
import { parseColour } from "./colours.js";

const [WHITE, BLACK] = [PALETTE.print.paper, PALETTE.print.ink];

const hex = (parts) => `#${parts.map((part) => Math.round(part).toString(16).padStart(2, "0")).join("")}`;

// A colour of which `part` is the full one, from 0 to 1, and the rest what it lies on.
export function mixed(none, full, part) {
  const [of, to] = [parseColour(none), parseColour(full)];
  return hex(of.map((each, i) => (1 - part) * each + part * to[i]));
}

// White or black, whichever is easier to read on a colour: at least 4.5 to 1 (WCAG 2).
export function inkOn(colour) {
  const [red, green, blue] = parseColour(colour)
    .map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  const light = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  return 1.05 / (light + 0.05) > (light + 0.05) / 0.05 ? WHITE : BLACK;
}
