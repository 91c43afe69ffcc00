// Sentences that are ready to be looked at, below the one on the front door.

import { makeChoice } from "../base/controls.js";

const READY = [
  ["They sat on the bank of the river and watched the boats.", "river bank"],
  ["She went to the bank and put her money into an account.", "money bank"],
  ["The trophy does not fit into the suitcase because it is too big.", "what is “it”?"],
  ["The horse raced past the barn fell.", "garden path"],
  ["Рыбак сидит на берегу реки.", "по-русски"],
];

/** @param {string} text that stands there now @param {(text: string) => void} take */
export function makeReady(text, take) {
  return makeChoice({
    name: "ready",
    legend: "Ready sentences",
    options: READY.map(([sentence, label]) => [sentence, label, sentence]),
    value: () => text,
    choose: take,
    classes: "door-ready",
  }).element;
}
