// The front door of a decoder in a notebook: what comes next is asked of the kernel, one question at a time.

import { write } from "../door/field.js";
import { Writer } from "../live/writer.js";

const PAUSE = 400; // milliseconds without a word, until all of the text is read

export class Writing {
  /**
   * @param {HTMLTextAreaElement} field @param {number} heads of the model
   * @param {(message: any) => void} send to the kernel
   * @param {() => string} shown the text that the views are of
   * @param {any} chat see Writer
   */
  constructor(field, heads, send, shown, chat) {
    this.field = field;
    this.send = send;
    this.isAsked = false; // and not answered yet
    /** @type {number | null | undefined} the number of a question that waits */
    this.waiting = undefined;
    this.later = 0;
    this.writer = new Writer(
      {
        ask: (drawn) => this.ask(drawn),
        take: (text) => write(field, field.value + text),
        stopped: () => this.rest(),
        text: () => field.value,
        isWhole: () => shown() === this.writer.written?.text,
        write: (text) => write(field, text),
        focus: () => field.focus({ preventScroll: true }),
      },
      heads,
      chat,
    );
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.writer.enter();
    });
  }

  typed() {
    this.writer.typed();
    this.ask(null);
  }

  /** @param {number | null} drawn by which a word is written first */
  ask(drawn) {
    clearTimeout(this.later);
    this.waiting = this.isAsked ? drawn : undefined;
    if (this.isAsked) return;
    this.isAsked = true;
    this.send({ text: this.field.value, write: { temperature: this.writer.temperature, drawn } });
  }

  /** @param {{ written?: import("../live/next.js").Written, refused?: string }} answer */
  answered({ written }) {
    this.isAsked = false;
    // Somebody typed meanwhile: what they wrote stands.
    if (this.waiting !== undefined) return this.ask(this.waiting);
    if (!written) return this.writer.isGoing && this.writer.goOn(false);
    if (this.writer.isLate(written)) return this.rest();
    this.field.value = written.text;
    const goesOn = this.writer.goesOn(written);
    if (goesOn) this.ask(this.writer.drawn); // the kernel is at the next word while this one is drawn
    this.writer.show(written);
    if (!goesOn) this.rest();
  }

  /** All of a text, when nobody has typed for a moment. */
  rest() {
    clearTimeout(this.later);
    this.later = setTimeout(() => this.writer.isWhole() || this.send({ text: this.field.value }), PAUSE);
  }
}
