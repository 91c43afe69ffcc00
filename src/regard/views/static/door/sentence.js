// A sentence with arcs over its words, from one word to those it looks at: large on the front door, small for other heads.

import { drawn, make } from "../base/dom.js";
import { wholePercent } from "./attention.js";

const LEAST = 0.01; // a smaller share has no arc
const LOOP = 9; // pixels: half as wide as the arc of a word that looks at itself

const middle = ({ left, width }) => left + width / 2;

export class Sentence {
  // lines: of each text its parts, in order: a string, or a word { text, first, unknown }, named by its first token.
  constructor(lines) {
    this.words = new Map();
    const part = (each) => (typeof each === "string" ? each : this.word(each));
    this.arcs = drawn("svg", { class: "door-arcs", "aria-hidden": "true" });
    this.element = make(
      "span",
      { class: "door-sentence" },
      this.arcs,
      ...lines.map((parts) => make("bdi", { class: "door-line", dir: "auto" }, ...parts.map(part))),
    );
  }

  word({ text, first, unknown }) {
    const element = make("span", { class: unknown ? "door-word unknown-word" : "door-word" }, text);
    this.words.set(first, element);
    return element;
  }

  // The word at a point of the window, by its first token; null beside all words.
  at(x, y) {
    for (const [first, element] of this.words)
      for (const { left, right, top, bottom } of element.getClientRects())
        if (left - 3 <= x && x <= right + 3 && top <= y && y <= bottom) return first;
    return null;
  }

  // from: a word; shares: of its attention, by the first token of each word.
  draw(from, shares) {
    const { scrollTop } = this.element;
    const room = this.element.getBoundingClientRect();
    const boxes = new Map();
    for (const [first, element] of this.words) {
      const box = element.getClientRects()[0];
      if (box)
        boxes.set(first, new DOMRect(box.left - room.left, box.top - room.top + scrollTop, box.width, box.height));
      element.classList.toggle("from", first === from);
      element.style.setProperty("--share", shares ? Math.min(1, shares[first]).toFixed(3) : "0");
    }
    this.arcs.setAttribute("viewBox", `0 0 ${room.width} ${room.height}`);
    const one = boxes.get(from);
    const tops = [...boxes.values()].map(({ top }) => top);
    const highest = Math.min(...tops);
    const between = Math.min(...tops.filter((top) => top > highest + 4)) - highest - (one?.height ?? 0);
    const to = [...boxes].filter(([first]) => one && shares && shares[first] >= LEAST);
    const arcs = to
      .sort((a, b) => shares[a[0]] - shares[b[0]])
      .map(([first, box]) => {
        const above = box.top < highest + 4 ? highest - 2 : between;
        return drawn(
          "g",
          { "data-to": String(first), style: null },
          drawn("path", { d: first === from ? loop(one, above) : way(one, box, above), pathLength: "1" }),
          drawn("circle", { cx: middle(box), cy: box.top + (box.top < one.top - 4 ? box.height : 0), r: "1" }),
        );
      });
    arcs.forEach((arc) => arc.style.setProperty("--share", shares[Number(arc.dataset.to)].toFixed(3)));
    this.tag = drawn("text", { class: "door-tag", "text-anchor": "middle" });
    this.arcs.replaceChildren(...arcs, this.tag);
    this.drawn = { from, shares, boxes };
  }

  // One of its arcs alone, with its share; null for all of them.
  point(to) {
    const { from, shares, boxes } = this.drawn ?? {};
    const isOne = to !== null && Boolean(shares) && to !== from;
    this.arcs.classList.toggle("pointed", isOne);
    for (const arc of this.arcs.querySelectorAll("g")) arc.classList.toggle("on", arc.dataset.to === String(to));
    for (const [first, element] of this.words) element.classList.toggle("under", first === to);
    this.tag.textContent = isOne ? wholePercent(shares[to]) : "";
    if (!isOne) return;
    this.tag.setAttribute("x", middle(boxes.get(to)));
    this.tag.setAttribute("y", boxes.get(to).bottom + 13);
  }
}

// From the top of a word to the top of another on its line; from line to line, straight through what is between.
function way(one, other, above) {
  const [x, to] = [middle(one), middle(other)];
  if (Math.abs(one.top - other.top) < 4) {
    const high = Math.min(above, 16 + 0.4 * Math.abs(to - x)) / 0.75;
    return `M${x} ${one.top}C${x} ${one.top - high} ${to} ${one.top - high} ${to} ${one.top}`;
  }
  const isDown = other.top > one.top;
  const [from, end] = isDown ? [one.bottom, other.top] : [one.top, other.bottom];
  const bend = Math.max(14, Math.abs(end - from) / 2) * (isDown ? 1 : -1);
  return `M${x} ${from}C${x} ${from + bend} ${to} ${end - bend} ${to} ${end}`;
}

function loop(one, above) {
  const [x, y, high] = [middle(one), one.top, Math.min(above, 26) / 0.75];
  return `M${x - LOOP} ${y}C${x - 2 * LOOP} ${y - high} ${x + 2 * LOOP} ${y - high} ${x + LOOP} ${y}`;
}
