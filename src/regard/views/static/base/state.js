// What is chosen, who wants to know, and how it is written in the address, so that a view can be linked to.
//
// A field is { initial, read(text, state), write(value, state), back }. `read` is handed what stands in the address,
// typed by hand or cut short in a mail, and returns a value or undefined for what it does not understand; `write`
// returns null for what need not be said. A field without them (`hover`) is not in the address; a change of one with
// `back` is a step that the browser's Back undoes. Views add their own fields. An address that says nothing of START is
// on the head and the word that Python chose (facts.start, which has those of its other kinds of attention in it).
//
// Shared fields: bare; view; kind; layer, head (the head under the cursor); also (further heads, [{ layer, head }]); pin
// and hover (a token { side: "query" | "key", index }, or a span of them with `to`, its last); row (of a decoder, the
// query that is being written: what comes after it is not there yet; null for all); specials; filter (of a pair);
// units ("pieces" | "words"); at (of a network that is trained, which of the traced steps; see
// trained.js); what (the weights or another measure, see measures.js); theme.

import { kept } from "./dom.js";
import { nearestHeld, nearestIn } from "./held.js";
import { quantities } from "./measures.js";
import { NAME_FIELDS } from "./names.js";
import { runsOf } from "./source.js";
import { Units } from "./units.js";

export const PAIR_FILTERS = [
  { name: "all", label: "All", query: null, key: null },
  { name: "aa", label: "A→A", query: 0, key: 0 },
  { name: "ab", label: "A→B", query: 0, key: 1 },
  { name: "ba", label: "B→A", query: 1, key: 0 },
  { name: "bb", label: "B→B", query: 1, key: 1 },
];
export const THEMES = ["auto", "light", "dark"];
const MOST_HEADS = 64;

// A field that takes one of several words, the first of which need not be said.
export function oneOf(words) {
  return {
    initial: words[0],
    read: (text) => (words.includes(text) ? text : undefined),
    write: (value) => (value === words[0] ? null : value),
  };
}

const isCount = (text) => /^\d{1,7}$/.test(text);

// A field that takes a number, and need not be said while it is what it is at first.
export function countOr(initial) {
  return {
    initial,
    read: (text) => (isCount(text) ? Number(text) : undefined),
    write: (value) => (value === initial ? null : String(value)),
  };
}

const FIELDS = {
  bare: { initial: false, read: () => true, write: (bare) => (bare ? "" : null) }, // the view, and nothing around it
  view: {
    initial: "",
    read: (text, state) => (state.views.includes(text) ? text : undefined),
    write: (value, state) => (value === state.main ? null : value),
    back: true,
  },
  kind: {
    initial: "",
    read: (text, state) => (state.source.kinds.includes(text) ? text : undefined),
    write: (value, state) => (value === state.source.kinds[0] ? null : value),
  },
  layer: { initial: 0, read: (text) => (isCount(text) ? Number(text) : undefined), write: String },
  head: { initial: 0, read: (text) => (isCount(text) ? Number(text) : undefined), write: String },
  also: {
    initial: [],
    read: (text) =>
      text
        .split(",")
        .slice(0, MOST_HEADS)
        .map((each) => each.split("."))
        .filter((each) => each.length === 2 && each.every(isCount))
        .map(([layer, head]) => ({ layer: Number(layer), head: Number(head) })),
    write: (heads) => (heads.length > 0 ? heads.map(({ layer, head }) => `${layer}.${head}`).join(",") : null),
  },
  pin: {
    initial: null,
    read: (text) => {
      const found = /^(query|key)-(\d{1,7})(?:-(\d{1,7}))?$/.exec(text);
      if (!found) return undefined;
      const token = { side: found[1], index: Number(found[2]) };
      return found[3] === undefined ? token : { ...token, to: Number(found[3]) };
    },
    write: (pin) => (pin ? [pin.side, pin.index, ...(pin.to === undefined ? [] : [pin.to])].join("-") : null),
  },
  row: countOr(null),
  run: {
    initial: 0,
    read: (text, { source }) =>
      isCount(text) && Number(text) < runsOf(source.facts).length ? Number(text) : undefined,
    write: (run) => (run > 0 ? String(run) : null),
  },
  filter: oneOf(PAIR_FILTERS.map(({ name }) => name)),
  what: {
    initial: "",
    read: (text, { source }) =>
      source.kinds.some((kind) => quantities(source, kind).includes(text)) ? text : undefined,
    write: (what, state) => (what === quantities(state.source, state.values.kind)[0] ? null : what),
  },
  at: {
    initial: null,
    read: (text) => (isCount(text) ? Number(text) : undefined),
    write: (at, { source }) => (at === null || at === source.facts.training.steps.length - 1 ? null : String(at)),
  },
  specials: {
    initial: false,
    read: (text) => (text === "shown" ? true : text === "hidden" ? false : undefined),
    write: (shown) => (shown ? "shown" : null),
  },
  units: oneOf(["pieces", "words"]),
  theme: oneOf(THEMES),
  hover: { initial: null },
  refused: { initial: null }, // heads that were asked for and that the source does not hold, [{ layer, head }]
};

const START = ["run", "layer", "head", "also", "pin"];

// Fields of one name would be written over each other's.
function joined(sets) {
  const names = sets.flatMap((each) => Object.keys(each));
  const twice = names.find((name, at) => names.indexOf(name) !== at);
  if (twice !== undefined) throw new Error(`two views have a field ${twice}`);
  return Object.assign({}, ...sets);
}

export class State {
  /**
   * @param {import("./types").Source} source
   * @param {import("./types").Offer[]} views in the order of their tabs
   * @param {import("./types").Host["address"]} address
   */
  constructor(source, views, address) {
    this.source = source;
    this.address = address;
    this.views = views.map(({ name }) => name);
    /** The front door, which opens where an address says nothing; and the view of one that names none. */
    this.home = views.find(({ home }) => home)?.name ?? null;
    this.main = this.views.find((name) => name !== this.home) ?? "";
    /** Fields that lead to the front door where an address has no others. */
    this.homely = Object.keys(views.find(({ home }) => home)?.fields ?? {}).concat("theme", "bare");
    this.fields = joined([FIELDS, NAME_FIELDS, ...views.map(({ fields }) => fields || {})]);
    this.listeners = [];
    this.kept = new Map();
    this.gone = undefined; // aborted with the page: for what a view listens to outside of its element
    /** @type {import("./types").Values} */
    this.values = this.arrive(address.read());
    this.source.turn?.(this.values.at);
    if (address.read()) this.writeAddress(); // without what was not understood
    address.listen(() => {
      this.put(this.arrive(address.read()), () => {});
      this.writeAddress();
    });
  }

  // listener(changed: Set of names)
  listen(listener) {
    this.listeners.push(listener);
  }

  // act() now, and whenever one of these fields has changed.
  follow(names, act) {
    this.listen((changed) => names.some((name) => changed.has(name)) && act());
    act();
  }

  // A head that is not held is refused, with all that was to be set with it; a layer, only where it holds none.
  set(patch) {
    const { kind, layer, head } = { ...this.values, ...patch };
    const there = this.isHead(kind, { layer, head });
    const named = "head" in patch || ("layer" in patch && nearestIn(this.source, kind, layer, head) === null);
    if (!("kind" in patch) && named && there && !this.source.holds(kind, layer, head))
      this.put(this.settle({ ...this.values, refused: [{ layer, head }] }));
    else
      this.put(
        this.settle({ ...this.values, ...(Object.keys(patch).join() === "hover" ? {} : { refused: null }), ...patch }),
      );
  }

  // Nothing is pinned any more; on the front door it is again as it opened. A walk is left first.
  letGo() {
    const { view, kind, walk = null } = this.values;
    if (walk !== null) return this.set({ walk: null });
    const key = "key" in this.fields ? { key: null } : {}; // a field of a view that a page may lack
    const start = view === this.home ? { ...this.startOf(kind), ...key } : { pin: null };
    this.set({ ...start, hover: null, refused: null });
  }

  // What an address says. It may name heads that are not held: others take their place, and the page says so.
  arrive(text) {
    const values = this.parse(text);
    const kind = values.kind || this.source.kinds[0];
    const refused = [values, ...values.also]
      .map(({ layer, head }) => ({ layer, head }))
      .filter((each) => this.isHead(kind, each) && !this.source.holds(kind, each.layer, each.head));
    const given = new URLSearchParams(text.replace(/^#/, ""));
    const asked = given.has("layer") || given.has("head") || given.has("also");
    return this.settle({ ...values, refused: asked && refused.length > 0 ? refused : null });
  }

  isHead(kind, { layer, head }) {
    return this.source.layers(kind).includes(layer) && head < this.source.heads(kind, layer);
  }

  // What Back does not undo takes the place of what the address said.
  put(after, write = (changed) => this.writeAddress([...changed].some((name) => this.fields[name].back))) {
    const before = this.values;
    const changed = new Set(
      Object.keys(after).filter((name) => JSON.stringify(before[name]) !== JSON.stringify(after[name])),
    );
    if (changed.size === 0) return;
    this.values = after;
    // At another step of the training all numbers are others, as those of another kind are.
    if (changed.has("at")) {
      this.source.turn(after.at);
      changed.add("kind");
    }
    for (const listener of this.listeners) listener(changed);
    if (!(changed.size === 1 && changed.has("hover"))) write(changed);
  }

  // The nearest state that there is: of another kind, the layer may be missing, and what is no longer on show
  // cannot stay pinned or under the pointer.
  settle(values) {
    const { source } = this;
    const settled = { ...values };
    if (!settled.view) settled.view = this.main;
    if (!settled.kind) settled.kind = source.kinds[0];
    const { kind } = settled;
    const last = source.turn ? source.facts.training.steps.length - 1 : null;
    settled.at = last === null ? null : Math.min(settled.at ?? last, last);
    const layers = source.layers(kind);
    const isHead = (each) => this.isHead(kind, each) && source.holds(kind, each.layer, each.head);
    if (!layers.includes(settled.layer)) settled.layer = layers[0];
    if (settled.head >= source.heads(kind, settled.layer)) settled.head = 0;
    if (!source.holds(kind, settled.layer, settled.head)) Object.assign(settled, nearestHeld(source, kind, settled));
    const names = new Set();
    settled.also = settled.also.filter((each) => {
      const name = `${each.layer}.${each.head}`;
      const keep = isHead(each) && !names.has(name);
      names.add(name);
      return keep;
    });
    if (!quantities(source, kind).includes(settled.what)) [settled.what] = quantities(source, kind);
    if (!source.pair(kind)) settled.filter = "all";
    settled.row = this.settleRow(settled);
    for (const name of ["pin", "hover"]) settled[name] = this.settleToken(settled[name], settled);
    return settled;
  }

  // The last query on show up to it; only a decoder writes.
  settleRow(values) {
    if (values.row === null || values.kind === "encoder") return null;
    const { queries } = this.shown(values);
    const at = queries.findLastIndex((index) => index <= values.row);
    return queries[Math.max(0, at)] ?? null;
  }

  // In words, a token stands for its word.
  settleToken(token, values) {
    if (!token) return null;
    const units = this.units(token.side, values);
    const count = units.tokens.length;
    if (token.index >= count || (token.to !== undefined && token.to >= count)) return null;
    const [first, last] = [token.index, token.to ?? token.index].sort((a, b) => a - b);
    const index = units.at(first).first;
    const to = units.at(last).first;
    const there = (each) => this.isShown(token.side, each, values) && this.isWritten(token.side, each, values);
    if (!there(index) || !there(to)) return null;
    return to === index ? { side: token.side, index } : { side: token.side, index, to };
  }

  // The units of a side: its tokens or its words.
  units(side, { kind, units } = this.values) {
    const name = `${kind}.${side}.${units}`;
    if (!this.kept.has(name)) {
      this.kept.set(name, new Units(this.source.tokens(kind, side), this.source.words(kind, side), units === "words"));
    }
    return this.kept.get(name);
  }

  // Whether the unit that begins at this token is on show.
  isShown(side, index, values = this.values) {
    const unit = this.units(side, values).at(index);
    if (unit.special && !values.specials && !this.allSpecial(side, values)) return false;
    const wanted = PAIR_FILTERS.find((each) => each.name === values.filter)[side];
    return wanted === null || unit.sequence === wanted;
  }

  // Whether a side has nothing else: then they are shown.
  allSpecial(side, values) {
    return this.units(side, values).all.every(({ special }) => special);
  }

  // Whether the unit that begins at this token is there when the query of `row` is being written.
  isWritten(side, index, values = this.values) {
    const { row, kind } = values;
    return (
      row === null || index <= row || (side === "key" && (kind === "cross" || this.units(side, values).at(index).sink))
    );
  }

  // The units on show on each side, in order, by their first tokens.
  shown(values = this.values) {
    const { kind, units, specials, filter } = values;
    const name = `shown.${kind}.${units}.${specials}.${filter}`;
    const of = (side) =>
      this.units(side, values)
        .all.map(({ first }) => first)
        .filter((first) => this.isShown(side, first, values));
    return kept(this.kept, name, () => ({ queries: of("query"), keys: of("key") }));
  }

  // What is on show while the pointer rests: what is pinned, or else the query that is being written.
  held() {
    const { pin, row } = this.values;
    return pin || (row === null ? null : { side: "query", index: row });
  }

  // The token or span whose row (query) or column (key) is on show, and, while a token of the other side is
  // under the pointer, that one: a held row is read key by key.
  focus() {
    const { hover } = this.values;
    const held = this.held();
    if (held && hover && held.side !== hover.side) return { on: held, at: hover };
    return { on: hover || held, at: null };
  }

  parse(hash) {
    const given = new URLSearchParams(hash.replace(/^#/, ""));
    const values = {};
    for (const [name, { initial, read }] of Object.entries(this.fields)) {
      const text = given.get(name);
      const value = read && text !== null ? read(text, this) : undefined;
      values[name] = value === undefined ? initial : value;
    }
    if (this.home && Object.keys(this.fields).every((name) => this.homely.includes(name) || !given.has(name)))
      values.view = this.home;
    const { start } = this.source.facts;
    if (!start || START.some((name) => given.has(name))) return values;
    return { ...values, ...this.startOf(values.kind || start.kind) };
  }

  // The head and the word on which Python would open a kind of attention.
  startOf(kind) {
    const { start } = this.source.facts;
    const found = start && [start, ...(start.others || [])].find((each) => each.kind === kind);
    if (!found) return { kind, pin: null };
    const { layer, head, pin, units } = found;
    const { run = 0, row = null } = this.values || {};
    const none = run > 0 || row !== null; // of another run it is another token, and rows that are written are at theirs
    const words = units ? { units } : {}; // where the pieces say nothing
    return { kind, layer, head, also: [], pin: none ? null : { side: "query", index: pin }, ...words };
  }

  writeAddress(step = false) {
    const parts = new URLSearchParams();
    for (const [name, { write }] of Object.entries(this.fields)) {
      const text = write ? write(this.values[name], this) : null;
      if (text !== null) parts.set(name, text);
    }
    this.address.write(`#${parts}`.replace(/^#bare=/, "#bare"), step);
  }
}

// Whether two tokens or spans are the same.
export function sameToken(one, other) {
  return Boolean(one) && Boolean(other) && one.side === other.side && one.index === other.index && one.to === other.to;
}
