// A live page: what Python worked out of its first sentence, which is there at once, and the model, which takes over
// when somebody types. For every sentence the page is put together anew, from facts that look like those in the file;
// what is chosen stays, as it does in the address.

import { pageHost } from "../base/host.js";
import { FileSource, fileSource } from "../base/source.js";
import { present } from "../present.js";
import { LiveBar } from "./bar.js";
import { LiveClient } from "./client.js";
import { makeDrag } from "./drag.js";
import { whereIsFocus } from "./focus.js";
import { movedBetween, wordVectors } from "./moved.js";

const root = document.getElementById("regard");
const readBlock = (name) => document.getElementById(`regard-${name}`)?.textContent ?? "";
const written = fileSource(readBlock);
const [kind] = written.kinds;
const { live } = written.facts;
const side = written.facts.sides[kind];
const edits = { off: [], weights: [] };
let address = null; // what is chosen, where the browser does not keep it
let gone = new AbortController();
let client = null;
let before = null; // what words are compared with: { text, words }
let last = null; // the newest answer
let isDragging = false; // then the page stays, with the handle in it, until it is let go

const bar = new LiveBar(live, side, {
  typed(isOfText) {
    // A weight belongs to a row of the sentence as it was.
    if (isOfText) edits.weights = [];
    ask();
  },
  switched(layer, head) {
    const isOff = edits.off.some(([l, h]) => l === layer && h === head);
    edits.off = isOff ? edits.off.filter(([l, h]) => l !== layer || h !== head) : [...edits.off, [layer, head]];
    ask();
  },
  released(weight) {
    edits.weights = edits.weights.filter((each) => each !== weight);
    ask();
  },
  undone() {
    Object.assign(edits, { off: [], weights: [] });
    ask();
  },
  kept() {
    before = { text: bar.texts.join(" "), words: last.words };
    show();
  },
});

function ask() {
  const [text, pair = null] = bar.texts;
  bar.edits(edits);
  bar.work();
  client.ask({ text, pair, ...edits, second: bar.second });
}

function drag(weight, isHeld) {
  const isSame = ({ layer, head, query, key }) =>
    [layer, head, query, key].join() === [weight.layer, weight.head, weight.query, weight.key].join();
  const others = edits.weights.filter((each) => !isSame(each));
  const ofRow = others.filter((each) => isSame({ ...each, key: weight.key }));
  const most = 1 - ofRow.reduce((sum, { value }) => sum + value, 0);
  edits.weights = [...others, { ...weight, value: Math.min(weight.value, most) }];
  isDragging = isHeld;
  ask();
}

function answered(answer) {
  if (answer.broken) return bar.broken(answer.broken);
  if (answer.opened) {
    bar.opened(answer.opened, client.how);
    return ask();
  }
  root.classList.toggle("refused", Boolean(answer.refused));
  if (answer.refused) {
    // The title is for screen readers here: it must not go on with the sentence before.
    root.querySelector("h1").replaceChildren("No sentence that can be read");
    return bar.refused(answer.refused);
  }
  const words = wordVectors(answer.encoded, answer.contextual);
  const isFirst = before === null;
  if (isFirst) performance.mark("regard-live");
  before ??= { text: bar.texts.join(" "), words };
  last = { ...answer, words };
  show();
  // Of the first sentence Python's own numbers stay.
  if (!isFirst && !isDragging) draw(answer);
}

function show() {
  bar.show(last, { text: before.text, ...movedBetween(before.words, last.words) });
}

function draw({ facts, blocks }) {
  const positions = { ...facts.sides[kind].positions, said: side.positions?.said ?? null };
  const whole = {
    ...written.facts,
    ...facts,
    start: written.facts.start, // where nothing is chosen yet, the same head and place
    held: undefined,
    difference: live.weight,
    here:
      `Worked out in this page, by the model in it. Its weights have 8 bits: over ${live.texts} sentences no attention ` +
      `weight differed by more than ${live.weight} from Python's, and no word's contextual embedding had a cosine ` +
      `below ${live.embedding.toFixed(4)} to Python's.`,
    sides: { [kind]: { ...facts.sides[kind], positions } },
    kinds: { [kind]: { ...written.facts.kinds[kind], ...facts.kinds[kind], pictures: undefined } },
  };
  const focus = whereIsFocus(root);
  put(new FileSource(whole, (name) => blocks[name] ?? readBlock(name)));
  focus();
}

function put(source) {
  gone.abort();
  gone = new AbortController();
  const host = pageHost(gone.signal);
  const { read, write } = host.address;
  host.address = {
    ...host.address,
    read: () => address ?? read(),
    write: (text, step) => {
      write(text, step);
      address = location.hash === text ? null : text; // what a sandboxed frame does not keep
    },
  };
  if (client) source.makeDrag = () => makeDrag(edits, drag);
  const { state } = present(source, { ...host, slot: bar.element });
  const head = () => bar.head(state.values.layer, state.values.head);
  state.listen((changed) => (changed.has("layer") || changed.has("head")) && head());
  head();
}

root.classList.add("live-page");
root.append(bar.element);
put(written);
performance.mark("regard-interactive");

// The rest of the file, which holds the model, may still be on its way.
function open() {
  const names = Object.keys(live.description.blocks);
  const blocks = Object.fromEntries(names.map((name) => [name, readBlock(`live-${name}`)]));
  for (const name of names) document.getElementById(`regard-live-${name}`)?.remove();
  const tokenizer = readBlock("live-tokenizer");
  if (!tokenizer || !readBlock("live-end")) {
    return bar.broken("This file was cut short: its end, with the model in it, is not there.");
  }
  const opened = { description: live.description, tokenizer: JSON.parse(tokenizer), blocks };
  client = new LiveClient(readBlock("live-worker"), opened, answered);
}
if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", open);
else open();
