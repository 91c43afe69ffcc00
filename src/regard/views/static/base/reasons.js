// What wrote a key, so that a query looks at it: the largest parts of their score, where the page knows them.

import { make, makeNote } from "./dom.js";

const signed = (value) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(2);

// Who wrote a part; a head with the token that it took it from, by its name.
const writer = ({ said, source }, name) =>
  source === null ? [said] : [`${said}, from `, make("bdi", { dir: "auto" }, name(source))];

// The largest parts as a list, and what they are of.
export const reasonList = ({ total, parts }, name) => [
  make("ul", {}, ...parts.map((part) => make("li", {}, ...writer(part, name), ` ${signed(part.value)}`))),
  makeNote(`Of ${signed(total)}, its score less the mean of the row; trace.why in Python has all parts.`),
];
