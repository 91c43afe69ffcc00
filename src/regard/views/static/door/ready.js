// Sentences that are ready: each has the word that it is about, and some another sentence beside them.

import READY from "../ready.json" with { type: "json" };

export { READY };

/** What is known of two sentences, in either order. @param {string[]} texts @returns {(typeof READY)[number] | undefined} */
export const readyOf = ([one, other]) =>
  READY.find((each) => (each.text === one && each.other === other) || (each.text === other && each.other === one));

/** What two sentences have in common up to the first word in which they differ, this word in each, and what follows it. */
export function differ(/** @type {string} */ text, /** @type {string} */ other) {
  const [words, others] = [text, other].map((each) => each.split(/\b/u));
  const at = words.findIndex((word, i) => word !== others[i]);
  return { before: words.slice(0, at).join(""), inner: [words[at], others[at]], behind: words.slice(at + 1).join("") };
}

/** Its word, and in what the two differ: "it: big / small". @param {(typeof READY)[number]} ready */
export const labelOf = ({ text, other, about }) =>
  other ? `${about}: ${differ(text, other).inner.join(" / ")}`.toLowerCase() : about;
