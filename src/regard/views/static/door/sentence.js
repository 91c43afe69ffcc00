// A sentence with arcs over its words, from one word to those it looks at: large on the front door, small for other heads.

import { drawn, make, readable } from "../base/dom.js";
import { ACROSS, onKeys, placeIn } from "../base/keys.js";
import { wholePercent } from "../base/said.js";
import { layOut } from "./lines.js";

/** The word that is being written, which is no token yet. */
export const GHOST = -1;

const LEAST = 0.01; // a smaller share has no arc
const LOOP = 11; // pixels: half as wide as the arc of a word that looks at itself
const LEAST_LOOP = 0.1; // a smaller share has no loop: it would be a knot in the others
const BESIDE = 9; // pixels between the text and the stub of a mark, which has no place in it

const middle = ({ left, width }) => left + width / 2;

// The marks among the units of a text, each beside a word: [{ first, beside, isBefore }]; a sink stands before all.
export function marksOf(units) {
  const words = units.filter(({ special }) => !special);
  return units
    .filter(({ special }) => special && words.length > 0)
    .map(({ first, sink }) => {
      const before = sink ? undefined : words.findLast((each) => each.first < first);
      return { first, beside: (before ?? words[0]).first, isBefore: before === undefined };
    });
}

export class Sentence {
  // lines: of each text its parts, in order: a string, or a word { text, first, unknown }, named by its first token;
  // marks: see marksOf.
  constructor(lines, attributes = {}, marks = []) {
    this.words = new Map();
    this.lines = lines;
    this.settled = 0; // in a room of this width
    this.marks = marks;
    this.from = 0;
    this.shares = null;
    this.isList = attributes.role === "listbox";
    this.arcs = drawn("svg", { class: "door-arcs", "aria-hidden": "true" });
    const part = (each) => (typeof each === "string" ? each : this.word(each));
    const paragraphs = lines.map((parts) => make("bdi", { class: "door-line", dir: "auto" }, ...parts.map(part)));
    this.element = make("span", { class: "door-sentence", ...attributes }, this.arcs, ...paragraphs);
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  /** The same, to be drawn elsewhere. */
  copy() {
    const copy = new Sentence(this.lines, {}, this.marks);
    copy.show(this.from, this.shares);
    return copy;
  }

  /** Lays it out, with the field that lies over it, in the room that it has now. @param {HTMLElement | null} field */
  settle(field = null) {
    const { width } = this.element.parentElement.getBoundingClientRect();
    if (width === this.settled) return;
    this.settled = width;
    const most = [...this.words.keys()].reduce((a, b) => (this.shares?.[b] > this.shares?.[a] ? b : a));
    layOut(this.element, field, field ? [] : [this.from, most].map((first) => this.words.get(first)));
    this.draw();
  }

  word({ text, first, unknown }) {
    // A blank that is a word, as where a text has two in a row, is read out by its sign.
    const label = text.trim() === "" ? readable(text) : null;
    const option = this.isList ? { role: "option", id: `regard-word-${first}`, "aria-label": label } : {};
    const element = make("span", { class: unknown ? "door-word unknown-word" : "door-word", ...option }, text);
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

  // from: a word; shares: of its attention, by the first token of each word, null while they are not there.
  show(from, shares) {
    this.from = from;
    this.shares = shares;
    for (const [first, element] of this.words) {
      element.classList.toggle("from", first === from);
      element.style.setProperty("--share", shares ? Math.min(1, shares[first]).toFixed(3) : "0");
      if (this.isList) element.setAttribute("aria-selected", String(first === from));
    }
    const largest = shares ? Math.max(...[...this.words.keys()].map((first) => shares[first])) : 1;
    this.element.style.setProperty("--most", String(largest || 1));
    if (this.isList) this.element.setAttribute("aria-activedescendant", this.words.get(from)?.id ?? "");
    this.draw();
  }

  // Again in another room, and first when it is in the page.
  draw() {
    const { from, shares, element, words } = this;
    const room = element.getBoundingClientRect();
    if (!shares || room.width === 0 || !words.has(from)) return;
    this.boxes = new Map();
    for (const [first, word] of words) {
      const { left, top, width, height } = word.getClientRects()[0];
      this.boxes.set(first, new DOMRect(left - room.left, top - room.top + element.scrollTop, width, height));
    }
    const { boxes } = this;
    this.arcs.setAttribute("viewBox", `0 0 ${room.width} ${room.height}`);
    const one = boxes.get(from);
    const tops = Array.from(boxes.values(), ({ top }) => top);
    const highest = Math.min(...tops);
    const between = Math.min(...tops.filter((top) => top > highest + 4)) - highest - one.height;
    const stubs = new Map(this.marks.flatMap((mark) => this.stub(mark)));
    const arc = ([first, box]) => {
      const above = box.top < highest + 4 ? highest - 2 : between;
      const path = drawn("path", { d: first === from ? loop(one, above) : way(one, box, above) });
      const isAbove = box.top < one.top - 4;
      const end = box.top + (isAbove ? box.height : 0);
      const ends = stubs.has(first)
        ? drawn("path", { d: `M${box.x} ${end}v${(isAbove ? -0.7 : 0.7) * box.height}` })
        : drawn("circle", { cx: middle(box), cy: end, r: "1" });
      const share = { "data-to": String(first), "--share": shares[first].toFixed(3) };
      return drawn(
        "g",
        { ...share, class: stubs.has(first) ? "to-mark" : first === from ? "to-itself" : null },
        path,
        ends,
      );
    };
    const to = [...boxes, ...stubs].filter(([first]) => shares[first] >= (first === from ? LEAST_LOOP : LEAST));
    to.sort(([a], [b]) => shares[a] - shares[b]);
    this.tag = drawn("text", { class: "door-tag", "text-anchor": "middle" });
    this.arcs.replaceChildren(...to.map(arc), this.tag);
  }

  /** Where a mark stands: at the edge of the text, beside its first or last word. @returns {[number, DOMRect][]} */
  stub({ first, beside, isBefore }) {
    const box = this.boxes.get(beside);
    if (!box) return [];
    const isLeft = isBefore === (getComputedStyle(this.words.get(beside)).direction === "ltr");
    const x = isLeft ? box.left - BESIDE : box.right + BESIDE;
    return [[first, new DOMRect(x, box.top, 0, box.height)]];
  }

  // One of its arcs alone, with its share; null for all of them.
  point(to) {
    const { from, shares, boxes, tag } = this;
    if (!boxes) return;
    const isOne = to !== null && to !== from;
    this.arcs.classList.toggle("pointed", isOne);
    for (const arc of this.arcs.querySelectorAll("g")) arc.classList.toggle("on", arc.dataset.to === String(to));
    for (const [first, element] of this.words) element.classList.toggle("under", first === to);
    tag.textContent = isOne ? wholePercent(shares[to]) : "";
    if (!isOne) return;
    tag.setAttribute("x", middle(boxes.get(to)));
    tag.setAttribute("y", boxes.get(to).bottom + 13);
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
  const [x, y, high] = [middle(one), one.top, Math.min(above, 40) / 0.75];
  return `M${x - LOOP} ${y}C${x - 2 * LOOP} ${y - high} ${x + 2 * LOOP} ${y - high} ${x + LOOP} ${y}`;
}

// What a view of sentences listens to: `shown` says which sentence lies under `surface`; choose(first) is told of a click on a
// word, and pointAt says of which word the arc is lit.
export function onWords(surface, shown, choose, signal, pointAt = (first) => first) {
  const on = (name, listener) => surface.addEventListener(name, listener, { signal });
  const at = ({ clientX, clientY }) => shown().at(clientX, clientY);
  on("pointermove", (event) => shown().point(pointAt(at(event))));
  on("pointerleave", () => shown().point(null));
  on("click", (event) => at(event) !== null && choose(at(event)));
}

// Arrows lead from word to word.
export function onArrows(element, words, from, choose) {
  onKeys(element, (key) => {
    const to = placeIn(words.length, words.indexOf(from()), key, ACROSS);
    if (to !== undefined) choose(words[to]);
    return to !== undefined;
  });
}

// A view of the front door, which is laid out anew where the window has another width.
export function viewOf({ gone }, element, draw, settle) {
  addEventListener("resize", settle, { signal: gone });
  return { element, start: draw, changed: (names) => !(names.size === 1 && names.has("hover")) && draw() };
}
