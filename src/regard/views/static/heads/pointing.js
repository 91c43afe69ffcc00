// What a pointer, a finger and a click do with the words of a form, whichever form it is.

import { sameToken } from "../base/state.js";
import { askWhy } from "./why.js";

export class Pointing {
  // form: sheet, the element with the words; tokenOf(target), what is pointed at; pinOf(target), what a click pins (the
  // same, where a word stands for one side only); rove(token), it is where Tab comes in.
  constructor({ source, state }, weights, form) {
    this.source = source;
    this.state = state;
    this.weights = weights;
    this.form = form;
    this.moving = false; // while everyone is told of a move of the pointer
    const { sheet } = form;
    sheet.addEventListener("pointerover", (event) => this.onPointer(event));
    sheet.addEventListener("pointerdown", (event) => (this.touch = event.pointerType === "touch"));
    sheet.addEventListener("pointerleave", (event) => event.pointerType !== "touch" && state.set({ hover: null }));
    sheet.addEventListener("click", (event) => this.onClick(event));
    sheet.addEventListener("focusin", (event) => {
      const token = form.pinOf(event.target);
      if (!token) return;
      form.rove(token);
      // A click focuses too, but there the pointer already says what is meant.
      if (event.target.matches(":focus-visible")) state.set({ hover: form.tokenOf(event.target) });
    });
    // On the way into the panel the row stays: the panel lists it.
    sheet.addEventListener("focusout", ({ relatedTarget: to }) => to?.closest(".panel") || state.set({ hover: null }));
  }

  onPointer(event) {
    if (event.pointerType === "touch") return;
    this.moving = true;
    this.state.set({ hover: this.form.tokenOf(event.target) });
    this.moving = false;
  }

  onClick(event) {
    const token = this.form.pinOf(event.target);
    if (!token) return;
    const { pin, hover } = this.state.values;
    const read = this.form.tokenOf(event.target);
    const asked = event.target.closest(".number") ? this.weightAt(token) : null;
    if (asked) askWhy(this.state, asked);
    else if (event.shiftKey && pin && pin.side === token.side) this.extend(token.index);
    else if (!this.touch || event.detail === 0) this.togglePin(token);
    // A finger cannot point without a tap: beside a pinned token, a tap on the other side reads one weight.
    else if (pin && pin.side !== read.side && !sameToken(pin, token) && !sameToken(hover, read))
      this.state.set({ hover: read });
    else if (pin && pin.side !== token.side) this.state.set({ hover: null });
    else this.state.set({ pin: sameToken(pin, token) ? null : token, hover: null });
  }

  // The weight whose number stands beside a token, of the head that has the largest; null where there is none, or
  // where it is of a span or of several heads together, whose weights are means.
  weightAt({ side, index }) {
    const pin = this.state.held();
    const { kind, what } = this.state.values;
    if (!pin || pin.side === side || pin.to !== undefined || what !== "weights" || !this.source.computed(kind))
      return null;
    const series = this.weights.series(pin).filter(({ head }) => !head.of);
    if (series.length === 0) return null;
    const at = ({ weights }) => weights[index];
    const { layer, head } = series.reduce((best, each) => (at(each) > at(best) ? each : best)).head;
    return side === "key"
      ? { layer, head, query: pin.index, key: index }
      : { layer, head, query: index, key: pin.index };
  }

  togglePin(token) {
    this.state.set({ pin: sameToken(this.state.values.pin, token) ? null : token });
  }

  // From what was pinned first to this token, on either side of it.
  extend(index) {
    const { pin } = this.state.values;
    const anchor =
      this.anchor && this.anchor.side === pin.side && [pin.index, pin.to].includes(this.anchor.index)
        ? this.anchor.index
        : pin.index;
    this.anchor = { side: pin.side, index: anchor };
    const [first, last] = anchor <= index ? [anchor, index] : [index, anchor];
    this.state.set({ pin: { side: pin.side, index: first, to: last }, hover: null });
  }

  // A key with Shift, from one token to another of its side: what lies between them.
  extendFrom(token, to) {
    const { pin } = this.state.values;
    if (!pin || pin.side !== token.side || ![pin.index, pin.to].includes(token.index)) this.state.set({ pin: token });
    this.form.focusToken({ side: token.side, index: to });
    this.extend(to);
  }
}
