/** BERT's normaliser: control characters, Chinese characters, accents, capitals. */
import { replaced } from "./aligned.js";
import { makeTakenApart } from "./normal_forms.js";

/**
 * @import { Aligned } from "./aligned.js"
 * @import { Characters } from "./characters.js"
 */

/**
 * @typedef {object} Steps Which of its four steps a model has.
 * @property {boolean} clean Drop control characters, make all white space blanks.
 * @property {boolean} chinese Put blanks around Chinese characters.
 * @property {boolean} strip Strip accents.
 * @property {boolean} lower
 */

const BLANK = 0x20;

/**
 * @param {Steps} steps
 * @param {Characters} characters
 * @returns {(text: Aligned) => Aligned}
 */
export function makeBertNormalizer(steps, characters) {
  const dropped = characters.property("dropped");
  const blank = characters.property("blank");
  const chinese = characters.property("chinese");
  const nonspacing = characters.property("nonspacing");
  const takenApart = makeTakenApart(characters);
  const lowered = characters.map("lowered");

  return (given) => {
    let text = given;
    if (steps.clean) text = replaced(text, (code) => (dropped(code) ? [] : blank(code) ? [BLANK] : undefined));
    if (steps.chinese) text = replaced(text, (code) => (chinese(code) ? [BLANK, code, BLANK] : undefined));
    if (steps.strip) {
      text = replaced(takenApart(text), (code) => (nonspacing(code) ? [] : undefined));
    }
    return steps.lower ? replaced(text, (code) => lowered.get(code)) : text;
  };
}
