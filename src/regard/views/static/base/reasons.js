// What wrote a key, so that a query looks at it: the largest parts of their score, where the page knows them.

import { make, makeNote } from "./dom.js";

const signed = (value) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(2);

// Who wrote a part; a head with the token that it took it from, by its name.
const writer = ({ said, source }, name) =>
  source === null ? [said] : [`${said}, from `, make("bdi", { dir: "auto" }, name(source))];

// The largest part, in a line; [] where the page does not know it. to: the key, as an element.
export function reasonLine(found, to, name) {
  if (!found) return [];
  const { total, parts } = found;
  const asked = total < 0 ? ["What holds ", to, " back here?"] : ["What makes ", to, " stand out here?"];
  const over = ` of the ${signed(total)} by which its score is ${total < 0 ? "below" : "above"} the mean.`;
  return [...asked, " Above all ", ...writer(parts[0], name), `: ${signed(parts[0].value)}${over}`];
}

// The largest parts as a list, and what they are of.
export const reasonList = ({ total, parts }, name) => [
  make("ul", {}, ...parts.map((part) => make("li", {}, ...writer(part, name), ` ${signed(part.value)}`))),
  makeNote(`Of ${signed(total)}, its score less the mean of the row; trace.why in Python has all parts.`),
];
