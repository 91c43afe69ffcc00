// What is done to a text before it is cut: the steps of a normaliser, or those that a pre-tokeniser begins with.
import { put, replaced } from "./aligned.js";
import { makeComposed } from "./normal_forms.js";

/**
 * @import { Aligned } from "./aligned.js"
 * @import { Characters } from "./characters.js"
 * @typedef {{ type: "NFC" }
 *   | { type: "Replace", of: number, by: number }
 *   | { type: "Prepend", sign: number, when: "always" | "missing" | "first" }} Step code points; "missing": where the text
 *   does not begin with it; "first": and is the beginning of all
 */

/** @param {Step[]} steps @param {Characters} characters @returns {(text: Aligned) => Aligned} */
export function makeSteps(steps, characters) {
  const made = steps.map((step) => {
    if (step.type === "NFC") return makeComposed(characters);
    if (step.type === "Prepend")
      return (/** @type {Aligned} */ text) => (isWanted(step, text) ? behind(step, text) : text);
    return (/** @type {Aligned} */ text) => replaced(text, (code) => (code === step.of ? [step.by] : undefined));
  });
  return (given) => made.reduce((text, step) => step(text), given);
}

/** @typedef {Extract<Step, { type: "Prepend" }>} Prepend */

/** @param {Prepend} step @param {Aligned} text */
function isWanted({ sign, when }, { codes, from }) {
  return codes.length > 0 && (when === "always" || codes[0] !== sign) && (when !== "first" || from[0] === 0);
}

/** With a sign in front, which stands for the first character as well. @param {Prepend} step @param {Aligned} text */
function behind({ sign }, text) {
  /** @type {Aligned} */
  const made = { codes: [], from: [], to: [] };
  put(made, sign, text, 0);
  text.codes.forEach((code, at) => put(made, code, text, at));
  return made;
}
