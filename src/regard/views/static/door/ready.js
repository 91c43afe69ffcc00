// Sentences that are ready: each has the word that it is about, and some another sentence beside them.

import READY from "../ready.json" with { type: "json" };

export { READY };

/** What is known of two sentences, in either order. @param {string[]} texts @returns {(typeof READY)[number] | undefined} */
export const readyOf = ([one, other]) =>
  READY.find((each) => (each.text === one && each.other === other) || (each.text === other && each.other === one));

/** Its word, and in what the two differ: "it: big / small". @param {(typeof READY)[number]} ready */
export function labelOf({ text, other, about }) {
  if (!other) return about;
  const [words, others] = [text, other].map((each) => each.match(/[\p{L}\p{N}]+/gu).map(String));
  const differ = words.findIndex((word, at) => word !== others[at]);
  return `${about}: ${words[differ]} / ${others[differ]}`.toLowerCase();
}
