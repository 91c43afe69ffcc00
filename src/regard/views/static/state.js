// What is chosen, who wants to know, and how it is written in the address, so that a view can be linked to.

const PAIR_FILTERS = [
  { name: "all", label: "All", query: null, key: null },
  { name: "aa", label: "A→A", query: 0, key: 0 },
  { name: "ab", label: "A→B", query: 0, key: 1 },
  { name: "ba", label: "B→A", query: 1, key: 0 },
  { name: "bb", label: "B→B", query: 1, key: 1 },
];

const THEMES = ["auto", "light", "dark"];

class State {
  constructor(facts) {
    this.facts = facts;
    this.listeners = [];
    this.values = {
      layer: 0,
      head: 0,
      pin: null, // { side: "query" | "key", index }
      hover: null, // the same, while the pointer or the keyboard is on a token
      specials: true,
      filter: "all",
      theme: "auto",
    };
    this.readAddress();
    if (location.hash) this.writeAddress(); // without what was not understood
    window.addEventListener("hashchange", () => {
      if (location.hash === this.written) return;
      this.set(this.parse(location.hash));
      this.writeAddress();
    });
  }

  // listener(changed: Set of names, values)
  listen(listener) {
    this.listeners.push(listener);
  }

  set(patch) {
    const changed = new Set();
    const apply = (name, value) => {
      if (JSON.stringify(this.values[name]) === JSON.stringify(value)) return;
      this.values[name] = value;
      changed.add(name);
    };
    for (const [name, value] of Object.entries(patch)) apply(name, value);
    // What is no longer on show cannot stay pinned or under the pointer.
    for (const name of ["pin", "hover"]) {
      const token = this.values[name];
      if (token && !this.isShown(token.side, token.index)) apply(name, null);
    }
    if (changed.size === 0) return;
    for (const listener of this.listeners) listener(changed, this.values);
    if (!(changed.size === 1 && changed.has("hover"))) this.writeAddress();
  }

  isShown(side, index) {
    const token = this.facts.tokens[index];
    if (!token) return false;
    if (token.special && !this.values.specials) return false;
    const wanted = PAIR_FILTERS.find((f) => f.name === this.values.filter)[side];
    return wanted === null || token.sequence === wanted;
  }

  // The indices on show on each side, in order.
  shown() {
    const all = Array.from(this.facts.tokens.keys());
    return {
      queries: all.filter((i) => this.isShown("query", i)),
      keys: all.filter((i) => this.isShown("key", i)),
    };
  }

  // The token whose row (query) or column (key) is on show, and, while another token of the other side is
  // under the pointer, that one: a pinned row is read key by key.
  focus() {
    const { pin, hover } = this.values;
    if (pin && hover && pin.side !== hover.side) return { on: pin, at: hover };
    return { on: hover || pin, at: null };
  }

  // Every value is checked: an address is typed by hand, or cut short in a mail.
  parse(hash) {
    const given = new URLSearchParams(hash.replace(/^#/, ""));
    const index = (name, count) => {
      const text = given.get(name) || "";
      return /^\d{1,6}$/.test(text) && Number(text) < count ? Number(text) : 0;
    };
    const one = (name, allowed) => (allowed.includes(given.get(name)) ? given.get(name) : allowed[0]);
    const pin = /^(query|key)-(\d{1,7})$/.exec(given.get("pin") || "");
    const filters = this.facts.pair === null ? ["all"] : PAIR_FILTERS.map((f) => f.name);
    return {
      layer: index("layer", this.facts.layers),
      head: index("head", this.facts.heads),
      specials: given.get("specials") !== "hidden",
      filter: one("filter", filters),
      theme: one("theme", THEMES),
      pin: pin ? { side: pin[1], index: Number(pin[2]) } : null,
    };
  }

  readAddress() {
    Object.assign(this.values, this.parse(location.hash));
    const { pin } = this.values;
    if (pin && !this.isShown(pin.side, pin.index)) this.values.pin = null;
  }

  writeAddress() {
    const { layer, head, specials, filter, theme, pin } = this.values;
    const parts = new URLSearchParams({ layer, head });
    if (pin) parts.set("pin", `${pin.side}-${pin.index}`);
    if (filter !== "all") parts.set("filter", filter);
    if (!specials) parts.set("specials", "hidden");
    if (theme !== "auto") parts.set("theme", theme);
    this.written = `#${parts}`;
    try {
      history.replaceState(null, "", this.written);
    } catch {
      // A page inside a sandboxed frame may not touch its address; the view works without.
    }
  }
}
