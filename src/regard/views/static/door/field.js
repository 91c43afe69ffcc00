// The field of a sentence that is typed over, and sentences that are ready for it.

import { makeChoice } from "../base/controls.js";
import { make } from "../base/dom.js";
import { labelOf, READY } from "./ready.js";

const ROWS = 4; // lines of text that are in view

/** @param {string} label @param {string} text */
export function makeField(label, text) {
  const field = make("textarea", {
    rows: "1",
    "aria-label": label,
    placeholder: label,
    dir: "auto",
    spellcheck: "false",
    disabled: true,
  });
  field.value = text;
  return field;
}

/** As many lines as the text has, up to some; on the front door, all. @param {HTMLTextAreaElement} field */
export function fit(field) {
  const most = field.closest(".at-door") ? 99 : ROWS;
  field.rows = 1;
  const more = field.scrollHeight - field.clientHeight - 2;
  if (more > 0)
    field.rows = Math.min(most, 1 + Math.ceil(more / Number.parseFloat(getComputedStyle(field).lineHeight)));
}

/** Another text, as if it were typed. @param {HTMLTextAreaElement} field @param {string} text */
export function write(field, text) {
  field.value = text;
  field.dispatchEvent(new Event("input"));
}

/** Whether it is a ready sentence, which opens on the word that it is about. @param {string[]} texts */
export const isReady = (texts) => READY.some(({ text }) => texts.length === 1 && text === texts[0]);

/**
 * Ready sentences, as buttons.
 * @param {HTMLTextAreaElement} field
 * @param {(ready: (typeof READY)[number]) => void} [choose]
 * @param {(() => void) | null} [leave] to a sentence of one's own, where it is not the field that is on show
 */
export function makeReady(field, choose = ({ text }) => write(field, text), leave = null) {
  return makeChoice({
    name: "ready",
    legend: "Ready sentences",
    options: [...READY.map((each) => [each.text, labelOf(each), each.text]), ...(leave ? [["", "Type your own"]] : [])],
    value: () => field.value,
    choose: (chosen) => (chosen === "" ? leave() : choose(READY.find(({ text }) => text === chosen))),
    classes: "door-ready",
  }).element;
}
