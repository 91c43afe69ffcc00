// A small picture of every head: worked out in idle time, kept, and drawn by whoever shows heads.
//
// A picture depends on what is shown of the tokens, not on the view: the grid of the head view and the wall of the
// model view draw from the same ones.

import DRAWING from "../drawing.json";
import { parseColour } from "./colours.js";
import { inIdleTime, make } from "./dom.js";
import { allHeads } from "./held.js";
import { fullOf, quantityOf } from "./measures.js";

const SIDE = DRAWING.thumbnail.side; // sampled queries and bins of keys at most: what a cell can show, whatever the text's length

// Whether all pictures have one scale: of differences, and over the steps of a training, which would not be seen else.
export const isOneScale = (source, what) => Boolean(quantityOf(what).shared || source.runs);

class Thumbnails {
  constructor({ source, state, colours }) {
    this.source = source;
    this.state = state;
    this.colours = colours;
    this.forget();
  }

  // What the pictures are of: when the kind or the tokens on show change, others are wanted.
  subject() {
    const { kind, specials, filter, what, at } = this.state.values;
    return JSON.stringify([kind, specials, filter, what, at]);
  }

  forget() {
    this.of = this.subject();
    this.made = new Map(); // "layer.head" to { width, height, pixels, canvas, ink }
    this.tokens = null;
  }

  // The picture of a head in the theme's colour, on a canvas of its own that is only ever copied from; null while
  // it is not there.
  get({ layer, head }) {
    const picture = this.of === this.subject() ? this.made.get(`${layer}.${head}`) : null;
    if (!picture) return null;
    const inks = quantityOf(this.state.values.what).signed ? ["--more", "--less"] : ["--query"];
    const colours = inks.map((name) => this.colours.of(name));
    if (picture.ink !== colours.join()) this.ink(picture, colours);
    return picture.canvas;
  }

  // Works out the pictures of some heads in idle time, in this order; calls drawn(head) for each, and whole() when
  // all are there. Returns { stop, resume }: resume() when rows have come that were missing.
  ask(heads, drawn, whole) {
    if (this.of !== this.subject()) this.forget();
    let stop = null;
    let came = false;
    let waiting = [];
    const start = (queue) => {
      waiting = [];
      came = false;
      let next = 0;
      stop = inIdleTime((deadline) => {
        if (this.of !== this.subject()) return true; // another kind or text is on show: its pictures are asked for
        while (next < queue.length) {
          const head = queue[next];
          next += 1;
          if (this.make(head)) drawn(head);
          else waiting.push(head);
          if (performance.now() > deadline) return false;
        }
        stop = null;
        if (waiting.length === 0) whole();
        else if (came) start(waiting);
        return true;
      });
    };
    start(heads);
    return {
      stop: () => {
        if (stop) stop();
        stop = null;
      },
      resume: () => {
        if (stop) came = true;
        else if (waiting.length > 0) start(waiting);
      },
    };
  }

  // Whether the picture is there, now that it is asked for.
  make(head) {
    const name = `${head.layer}.${head.head}`;
    if (this.made.has(name)) return true;
    const levels = this.levels(head);
    if (levels) this.made.set(name, levels);
    return Boolean(levels);
  }

  // The numbers of a picture where the source makes it, null while it is not there; undefined where rows do.
  asked(layer, head, of) {
    const { kind, what = "weights" } = this.state.values;
    if (!this.source.picture || of.width * of.height === 0) return undefined;
    return this.source.picture(kind, layer, head, of, what);
  }

  // Pictures are of tokens, whatever the units: hidden ones are left out, and those that have no numbers.
  shown(side) {
    const units = this.state.units(side);
    const shown = units.all.filter(({ first, only }) => only === undefined && this.state.isShown(side, first));
    return shown.flatMap(({ first, last }) => Array.from({ length: last - first + 1 }, (_, i) => first + i));
  }

  // The largest number of any head, where all pictures have one scale.
  most() {
    const { kind, what } = this.state.values;
    return fullOf(this.source, { kind, what }, allHeads(this.source, kind));
  }

  // A head's weights between shown tokens as a small picture, -255 to 255. Long texts are sampled: evenly spaced
  // queries, and for each bin of keys its largest weight, so that a single strong link stays visible.
  levels({ layer, head }) {
    if (!this.tokens) this.tokens = { queries: this.shown("query"), keys: this.shown("key") };
    const { queries, keys } = this.tokens;
    const height = Math.min(SIDE, queries.length);
    const width = Math.min(SIDE, keys.length);
    const { kind, what } = this.state.values;
    // Of a head that the file does not hold, Python made the picture, or there is none.
    if (!this.source.holds(kind, layer, head)) {
      const of = { queries, keys, width, height };
      const pixels =
        (what === "weights" && this.source.thumbnail(kind, layer, head, of)) || new Uint8Array(width * height);
      return { width, height, pixels, canvas: null, ink: null, missing: true };
    }
    const asked = this.asked(layer, head, { queries, keys, width, height });
    if (asked === null) return null;
    const picture = asked || new Float32Array(width * height);
    let largest = 0;
    for (let y = 0; !asked && y < height; y += 1) {
      const query = queries[Math.floor(((y + 0.5) * queries.length) / height)];
      const row = this.source.row(kind, layer, head, query, what);
      if (!row) return null;
      for (let i = 0; i < keys.length; i += 1) {
        const at = y * width + Math.floor((i * width) / keys.length);
        if (Math.abs(row[keys[i]]) > Math.abs(picture[at])) picture[at] = row[keys[i]];
      }
    }
    for (const weight of picture) if (Math.abs(weight) > largest) largest = Math.abs(weight);
    if (isOneScale(this.source, what)) largest = this.most();
    // Square root: a weight of 0.1 beside one of 1 would otherwise vanish.
    const pixels = Int16Array.from(picture, (weight) =>
      largest > 0 ? Math.sign(weight) * 255 * Math.sqrt(Math.abs(weight) / largest) : 0,
    );
    return { width, height, pixels, canvas: null, ink: null };
  }

  // The levels as the strength of a colour; of two where there are signs.
  ink(picture, colours) {
    const { width, height, pixels } = picture;
    const canvas = (picture.canvas =
      picture.canvas || Object.assign(make("canvas", { width: String(width), height: String(height) }), { pixels }));
    picture.ink = colours.join();
    canvas.hatch = picture.missing ? this.colours.of("--soft") : null;
    if (pixels.length === 0) return;
    const inks = colours.map(parseColour);
    const image = new ImageData(width, height);
    pixels.forEach((level, at) => {
      const ink = inks[level < 0 ? 1 : 0];
      for (let i = 0; i < 3; i += 1) image.data[4 * at + i] = ink[i];
      image.data[4 * at + 3] = Math.abs(level);
    });
    canvas.getContext("2d").putImageData(image, 0, 0);
  }
}

// Draws a picture into a box of device pixels.
export function drawThumbnail(context, picture, x, y, width, height) {
  if (picture.width === 0 || picture.height === 0) return;
  // Sharp squares where there is room for them; where there is not, dropping pixels would drop weights.
  context.imageSmoothingEnabled = picture.width > width || picture.height > height;
  if (!picture.hatch) {
    context.drawImage(picture, x, y, width, height);
    return;
  }
  // What is not in the file is paler, under lines: a picture, not a head that can be opened.
  const ratio = window.devicePixelRatio || 1;
  const step = Math.max(9 * ratio, width / 8);
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.globalAlpha = 0.5;
  context.drawImage(picture, x, y, width, height);
  context.globalAlpha = 0.7;
  context.strokeStyle = picture.hatch;
  context.lineWidth = ratio;
  context.beginPath();
  for (let at = step / 2; at < width + height; at += step) {
    context.moveTo(x + at, y);
    context.lineTo(x + at - height, y + height);
  }
  context.stroke();
  context.restore();
}

// The one set of pictures of a page.
const made = new WeakMap();
export function thumbnailsOf(page) {
  if (!made.has(page.state)) made.set(page.state, new Thumbnails(page));
  return made.get(page.state);
}
