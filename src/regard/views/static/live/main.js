// A live page: what Python worked out of its first sentence, which is there at once, and the model, which takes over
// when somebody types. For every sentence the page is put together anew, from facts that look like those in the file.
// What is chosen of the model stays, such as a head; a word, as long as it is there.

import { Colours } from "../base/colours.js";
import { whereIsFocus } from "../base/focus.js";
import { allHeads } from "../base/held.js";
import { pageHost } from "../base/host.js";
import { FileSource, fileSource } from "../base/source.js";
import { VIEW as EXPERIMENT } from "../door/experiment.js";
import { isReady, makeReady, write as typeOver } from "../door/field.js";
import { READY, readyOf } from "../door/ready.js";
import { swapped } from "../door/swap.js";
import { present } from "../present.js";
import { USUAL } from "../usual.js";
import { asQuery, hashOf, readSaid, withSaid } from "./address.js";
import { makeAsides } from "./asides.js";
import { LiveBar } from "./bar.js";
import { BesidePage } from "./beside_page.js";
import { LiveClient, servers } from "./client.js";
import { makeDrag } from "./drag.js";
import { makePredicted } from "./found.js";
import { apartOf, movedBetween, movedTo, wordVectors } from "./moved.js";
import { makeSwitch } from "./switch.js";
import { Writer } from "./writer.js";

const PAUSE = 400; // milliseconds without a key, until all of a text is worked out

const root = document.getElementById("regard");
const readBlock = (name) => document.getElementById(`regard-${name}`)?.textContent ?? "";
const written = fileSource(readBlock);
const [kind] = written.kinds;
const { live } = written.facts;
const side = written.facts.sides[kind];
const colours = new Colours(root);
const edits = { off: [], weights: [] };
// Of two texts the page opens on both, and so it does on a ready sentence; a decoder reads no word before those in which
// that differs from its other.
const isReadyHere = ({ text }) => kind === "encoder" && side.pair === null && text === side.text;
const ownAgainst = live.against ?? READY.find(isReadyHere)?.other ?? null;
let against = ownAgainst; // a second text, which the front door shows with the first
let address = null; // what is chosen, where the browser does not keep it
let arriving = null; // an address whose sentence is not there yet
let gone = new AbortController();
let client = null;
let before = null; // what words are compared with: { text, words }
let toOpen = ownAgainst !== null && location.hash === ""; // on a word and a head of both texts, when the second is read
let opened = null; // what the page opened on: { start, words }, of which text; null before
let last = null; // the newest answer
let state = null; // of the page on show
let isAsked = false; // and not answered yet

let later = 0; // the timer of a question that waits until nobody types

const bar = new LiveBar(live, side, {
  typed(isOfText) {
    // A weight belongs to a row of the sentence as it was.
    if (isOfText) {
      edits.weights = [];
      against = null;
    }
    writer?.typed();
    if (arriving !== null) {
      arriving = null;
      state.writeAddress();
    }
    if (isOfText && isAtDoor()) askNext();
    else ask();
  },
  switched,
  released(weight) {
    edits.weights = edits.weights.filter((each) => each !== weight);
    ask();
  },
  chosen: () => ask(),
  undone() {
    Object.assign(edits, { off: [], weights: [] });
    ask();
  },
  kept() {
    keep();
    show();
  },
});

// A decoder goes on writing; what it expects is asked alone, and all else when it has written.
const heads = allHeads(written, kind).length;
const writer =
  live.head === "next" && bar.fields.length === 1
    ? new Writer(
        {
          ask: askNext,
          take: (text) => bar.take(null, text),
          stopped: rest,
          isWhole,
          text: () => bar.texts[0],
          write: (text) => typeOver(bar.fields[0], text),
          focus: () => bar.fields[0].focus({ preventScroll: true }),
        },
        heads,
        live.chat,
      )
    : null;
const isAtDoor = () => writer !== null && against === null && state.values.view === state.home;
bar.fields[0].addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || !isAtDoor()) return;
  event.preventDefault();
  writer.enter();
});

const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
const own = bar.texts; // the file's
const asked = (texts = bar.texts) => ({ texts, ...edits, against });
let shown = asked(); // what is on show

// The sentence and the edits that the address says, if these are others: then they are asked for before they are drawn.
function arrive() {
  const isHead = (layer, head) => written.layers(kind).includes(layer) && head < written.heads(kind, layer);
  const hash = hashOf(location);
  const said = readSaid(hash, own, isHead, ownAgainst);
  if (!said || same(said, shown)) return false;
  arriving = hash;
  Object.assign(edits, { off: said.off, weights: said.weights });
  bar.texts = said.texts;
  against = said.against;
  root.classList.add("arriving");
  return true;
}

function broken(why) {
  if (arriving !== null) bar.texts = own;
  against = null;
  arriving = null;
  root.classList.remove("arriving");
  bar.broken(why);
}

function isOff(layer, head) {
  return edits.off.some(([l, h]) => l === layer && h === head);
}

// From now on words are compared with the sentence as it is.
function keep() {
  before = { text: bar.texts.join(" "), words: last.words, predicted: last.predicted };
}

// What an edit moves is told against the sentence without edits.
function keepUnedited() {
  if (edits.off.length + edits.weights.length === 0) keep();
}

function switched(layer, head) {
  keepUnedited();
  const others = edits.off.filter(([l, h]) => l !== layer || h !== head);
  edits.off = isOff(layer, head) ? others : [...edits.off, [layer, head]];
  ask();
}

const asides = makeAsides(kind, live, () => ({ last, isAsked, texts: bar.texts, edits, source: state?.source }), {
  ask: (asked) => client.ask(asked),
  wholeOf,
  readBoth,
});

// Whether all that is on show is of what the writer has.
function isWhole() {
  return same(asked([writer.written.text]), shown) && last !== null;
}

// All of a text, when nobody has typed for a moment.
function rest() {
  clearTimeout(later);
  later = setTimeout(() => (isWhole() ? bar.rest() : ask()), PAUSE);
}

// What comes next; `drawn` chooses a word that is written first.
function askNext(drawn = null) {
  clearTimeout(later);
  const [text] = bar.texts;
  bar.edits(edits);
  bar.work();
  isAsked = true;
  asides.take();
  client?.ask({ text, pair: null, ...edits, second: "", write: { temperature: writer.temperature, drawn } });
}

function answeredNext(next) {
  isAsked = false;
  if (writer.isLate(next)) {
    bar.work();
    return rest();
  }
  bar.fields[0].value = next.text;
  // The model is at the next word while this one is drawn.
  if (writer.goesOn(next)) askNext(writer.drawn);
  root.classList.remove("refused", "arriving");
  unfreeze();
  bar.say(`${next.wordOf.length} tokens, ${Math.round(next.milliseconds)} ms.`);
  bar.work();
  writer.show(next);
  if (!isAsked) rest(); // after an answer of a chat the next question is asked already
}

function ask(isPatient = false) {
  clearTimeout(later);
  const [text, pair = null] = bar.texts;
  bar.edits(edits);
  bar.work();
  isAsked = true;
  const isAside = asides.take() !== null;
  client?.ask({ text, pair, ...edits, second: bar.second, word: bar.word }, isPatient && !isAside);
}

// A page opens on a word and a head of both texts, when the second is read.
function readBoth(both, second) {
  const { source } = state;
  if (toOpen && second === against)
    queueMicrotask(() => {
      opened.start = source.facts.start = both.start(readyOf([bar.texts[0], second]));
      state.set({ ...state.startOf(kind), key: null });
    });
  toOpen = false;
}

function chooseReady({ text, other = null }) {
  typeOver(bar.fields[0], text);
  against = other;
}

function putBeside(text) {
  against = text;
  ask();
}

function leave() {
  against = null;
  root.classList.remove("experiments");
  bar.fields[0].focus();
  if (isAtDoor()) askNext();
  else ask();
}

function drag(weight) {
  keepUnedited();
  const isSame = ({ layer, head, query, key }) =>
    [layer, head, query, key].join() === [weight.layer, weight.head, weight.query, weight.key].join();
  const others = edits.weights.filter((each) => !isSame(each));
  const ofRow = others.filter((each) => isSame({ ...each, key: weight.key }));
  const most = 1 - ofRow.reduce((sum, { value }) => sum + value, 0);
  edits.weights = [...others, { ...weight, value: Math.min(weight.value, most) }];
  ask(true);
}

// How the model runs here, and why not on the GPU.
function runs(how, fell) {
  const said = bar.opened(how, client.how, fell);
  if (writer) writer.runs = said;
}

function answered(answer) {
  if (answer.broken) {
    root.classList.remove("answers");
    return broken(answer.broken);
  }
  if (answer.opened) {
    root.classList.add("answers");
    runs(answer.opened, answer.fell);
    return isAtDoor() ? askNext() : ask();
  }
  if (answer.goesOn) return runs(answer.goesOn, answer.fell);
  const waits = asides.take();
  if (waits) return waits(answer);
  if (answer.written) return answeredNext(answer.written);
  isAsked = false;
  root.classList.toggle("refused", Boolean(answer.refused));
  unfreeze(Boolean(answer.refused));
  if (answer.refused) {
    // The title is for screen readers here: it must not go on with the sentence before.
    root.querySelector("h1").replaceChildren("No sentence that can be read");
    return bar.say(answer.refused, true);
  }
  const words = wordVectors(answer.encoded, answer.contextual);
  const isFirst = before === null;
  last = { ...answer, words };
  root.classList.remove("arriving");
  const isOwn = same(asked(), shown);
  if (isFirst) {
    performance.mark("regard-live");
    if (isOwn) opened = { start: written.facts.start, words };
    keep();
  }
  show();
  // Of the file's sentence Python's own numbers stay.
  if (!isFirst || !isOwn) draw(answer);
  else for (const listener of state.source.listeners) listener();
}

// While a text cannot be read, what is on show cannot be used.
function unfreeze(isRefused = false) {
  for (const each of root.querySelectorAll(":scope > :not(.header, .live, .place), .place > *"))
    each.toggleAttribute("inert", isRefused);
}

function show() {
  const { words } = last;
  bar.show(last, { ...before, ...movedBetween(before.words, words), apart: () => apartOf(words) }, colours);
}

// Whether somebody chose another head than the page did.
function isHeadChosen() {
  const { layer, head, also } = state.values;
  return also.length > 0 || layer !== opened.start.layer || head !== opened.start.head;
}

// What a server says of a run is what Python writes into a page; the model in a page leaves some of it out.
function wholeOf(facts) {
  if (live.served) return { ...written.facts, held: undefined, ...facts, start: opened.start };
  const positions = { ...facts.sides[kind].positions, said: side.positions?.said ?? null };
  return {
    ...written.facts,
    ...facts,
    start: opened.start, // where nothing is chosen yet
    held: undefined,
    difference: live.weight,
    ...exactness(live),
    sides: { [kind]: { ...facts.sides[kind], positions } },
    kinds: { [kind]: { ...written.facts.kinds[kind], ...facts.kinds[kind], pictures: undefined } },
  };
}

// How near the numbers are to Python's, in a word and in full.
function exactness({ stored, texts, weight, embedding }) {
  const begins = "Worked out in this page, by the model in it. Its weights ";
  if (stored.length > 0) {
    const bits = Math.min(...stored.map((type) => Number(type[1])));
    const here = `are those of the model's file, as they are (${stored.join(", ")}): Python's numbers differ by rounding alone.`;
    return { copy: `${bits}-bit weights`, here: begins + here };
  }
  const here =
    `have 8 bits: over ${texts} sentences no attention weight differed by more than ${weight} from Python's, and ` +
    `no word's contextual embedding had a cosine below ${embedding.toFixed(4)} to Python's.`;
  return { copy: "8-bit copy", here: begins + here };
}

function draw({ facts, blocks, predicted }) {
  if (live.head === "next") facts.story[kind].ending ??= { next: predicted[0].best };
  const focus = whereIsFocus(root);
  const textsOf = ({ sides }) => sides[kind].tokens.map(({ text }) => text);
  const [one, other] = [state.source.facts, facts].map(textsOf);
  const at = (token) => movedTo(token, one, other);
  const { layer, head, also, pin, key } = state.values;
  const isNew = !same(bar.texts, shown.texts);
  const keepsHead = opened !== null && isHeadChosen();
  // A word that was chosen goes with its place, and is forgotten with it: then the page opens anew, as on another text.
  const isGone = pin !== null && at(pin.index) === null;
  const isFar = () => isReady(bar.texts) || movedBetween(opened.words, last.words).isFar || (isGone && !keepsHead);
  const isAnother = opened === null || arriving !== null || (isNew && isFar());
  const cut = opened?.start.units ? { units: "pieces" } : {}; // again, where the text before was shown by words
  const start = isAnother ? facts.start : { ...opened.start };
  for (const name of isAnother ? [] : ["pin", "key"]) start[name] = at(start[name]) ?? facts.start[name];
  opened = { start, words: isAnother ? last.words : opened.words };
  shown = { ...asked(), off: [...edits.off], weights: [...edits.weights] };
  put(new FileSource(wholeOf(facts), (name) => blocks[name] ?? readBlock(name)));
  toOpen = isAnother && arriving === null;
  if (arriving !== null) arriving = null;
  else if (isAnother) {
    const kept = keepsHead ? { layer, head, also, ...(pin ? {} : { pin }) } : {};
    state.set({ ...cut, ...state.startOf(kind), key: null, ...kept });
  } else {
    const to = pin?.to === undefined ? {} : { to: at(pin.to) ?? at(pin.index) };
    const there = pin && !isGone ? { ...pin, index: at(pin.index), ...to } : null;
    state.set({ pin: there, ...(typeof key === "number" ? { key: at(key) } : {}) });
  }
  state.writeAddress();
  focus();
}

// What the model goes on with, as words to click; null where it does not.
function makeNext() {
  if (!last?.predicted?.length) return null;
  const { element, show } = makePredicted(live.head, (span, text) => bar.take(span, text));
  show(last.predicted, last.encoded);
  return element;
}

function put(source) {
  gone.abort();
  gone = new AbortController();
  const host = pageHost(gone.signal);
  const { read, write, listen } = host.address;
  const { link } = host;
  if (live.served) host.link = () => ({ ...link(), address: asQuery(link().address, shown.texts[0]) });
  host.address = {
    read: () => arriving ?? address ?? read(),
    write: (chosen, step) => {
      if (arriving !== null) return;
      const text = withSaid(chosen, shown, own, ownAgainst);
      write(text, step);
      address = location.hash === text ? null : text; // what a sandboxed frame does not keep
    },
    listen: (listener) => listen(() => (arrive() ? ask() : listener())),
  };
  source.makeDrag = () => makeDrag(edits, drag);
  source.makeSwitch = () => makeSwitch(() => edits.off, switched);
  source.isOff = isOff;
  source.check = asides.check;
  source.surface = bar.surface;
  source.makeReady = () =>
    bar.fields.length > 1 ? null : makeReady(bar.fields[0], chooseReady, against === null ? null : leave);
  if (bar.fields.length === 1) source.swap = (at, to) => swapped(at, to, asides.bothWith, putBeside);
  if (against !== null && bar.fields.length === 1)
    source.experiment = { texts: [bar.texts[0], against], both: () => asides.bothWith(against) };
  root.classList.toggle("experiments", Boolean(source.experiment));
  source.makeNext = makeNext;
  source.writer = writer;
  source.write = (text) => typeOver(bar.fields[0], text);
  source.fit = () => bar.fit();
  source.makeEdits = () => bar.chips(shown);
  source.links = client?.element;
  if (kind === "encoder" && last) source.beside = asides.beside;
  if (last) source.whyOf = asides.whyOf;
  if (last) source.instead = bar.fields.length === 1 ? asides.insteadOf : () => undefined;
  asides.forget();
  ({ state } = present(source, { ...host, slot: bar.element }, [EXPERIMENT, ...USUAL]));
  const head = () => bar.head(state.values);
  state.listen((changed) => ["view", "layer", "head", "also"].some((name) => changed.has(name)) && head());
  state.listen((changed) => {
    if (!changed.has("view")) return;
    bar.fit();
    if (isAtDoor() && writer.written?.text !== bar.texts[0]) askNext();
    else if (writer?.written && !isAtDoor() && !isWhole()) ask();
  });
  head();
  bar.fit(); // the front door writes a long text smaller
}

root.classList.add("live-page");
root.append(bar.element);
if (live.served) client = servers.client(live.served, answered);
arrive();
put(written);
addEventListener("resize", () => bar.fit());
performance.mark("regard-interactive");

// The rest of the file, which holds the model, may still be on its way.
function open() {
  const names = Object.keys(live.description.blocks);
  const tokenizer = readBlock("live-tokenizer");
  if (!tokenizer || !readBlock("live-end")) {
    return broken("This file was cut short: its end, with the model in it, is not there.");
  }
  const start = (blocks) => {
    const gpu = new URLSearchParams(location.search).get("gpu") ?? "";
    const opened = { description: live.description, tokenizer: JSON.parse(tokenizer), blocks, gpu };
    client = new LiveClient(readBlock("live-worker"), opened, answered);
  };
  if (live.beside) {
    // One block after the other.
    const sizes = names.map((name) => live.description.blocks[name].bytes);
    const at = (place) => sizes.slice(0, place).reduce((sum, each) => sum + each, 0);
    const load = new BesidePage(live.beside, (bytes) =>
      start(Object.fromEntries(names.map((name, i) => [name, bytes.subarray(at(i), at(i + 1))]))),
    );
    root.querySelector(".door-note")?.after(load.element);
    bar.say("");
    return;
  }
  const blocks = Object.fromEntries(names.map((name) => [name, readBlock(`live-${name}`)]));
  for (const name of names) document.getElementById(`regard-live-${name}`)?.remove();
  start(blocks);
}
if (!live.served && document.readyState === "loading") document.addEventListener("DOMContentLoaded", open);
else if (!live.served) open();
