// A sentence of said.js in the page, and others.

import { make, readable } from "../base/dom.js";

export const bold = (text, side) => make("b", { class: `door-${side}` }, make("bdi", { dir: "auto" }, readable(text)));

/** @param {(string | { text: string, side: string })[]} parts */
export const written = (parts) => parts.map((part) => (typeof part === "string" ? part : bold(part.text, part.side)));

export const line = (...parts) => make("p", {}, ...parts);
export const note = (text) => make("p", { class: "door-note" }, text);
export const waiting = () => [note("The numbers are on their way.")];
