// A strip beside a long text: the row or column on show over the whole text, and where the view is in it.
// A decoration for the pointer: the list of the largest weights says the same in words.

import { make } from "../base/dom.js";

export class MiniMap {
  // scrollTo(fraction): the place of the text, 0 to 1, that is to come to the middle of the view.
  constructor(scrollTo) {
    this.canvas = make("canvas", { class: "minimap", "aria-hidden": "true" });
    this.context = this.canvas.getContext("2d");
    const go = (event) => {
      const box = this.canvas.getBoundingClientRect();
      scrollTo(Math.max(0, Math.min(1, (event.clientY - box.top) / box.height)));
    };
    this.canvas.addEventListener("pointerdown", (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      go(event);
    });
    this.canvas.addEventListener("pointermove", (event) => event.buttons === 1 && go(event));
  }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.max(1, Math.round(this.canvas.clientWidth * ratio));
    this.canvas.height = Math.max(1, Math.round(this.canvas.clientHeight * ratio));
    this.thinnest = 1.5 * ratio;
  }

  // strengths: one for each shown token of the other side, in order, or null; from, to: the part in view, 0 to 1.
  draw(strengths, from, to, colours) {
    const { context } = this;
    const { width, height } = this.canvas;
    context.clearRect(0, 0, width, height);
    context.globalAlpha = 1;
    context.fillStyle = colours.view;
    context.fillRect(0, from * height, width, Math.max(2, (to - from) * height));
    if (!strengths) return;
    context.fillStyle = colours.ink;
    const largest = Math.max(...strengths) || 1;
    const tick = Math.max(this.thinnest, height / strengths.length);
    strengths.forEach((each, i) => {
      const strength = Math.sqrt(each / largest);
      if (strength < 0.08) return;
      context.globalAlpha = strength;
      context.fillRect(width * (1 - strength), (i * height) / strengths.length, width * strength, tick);
    });
  }
}
