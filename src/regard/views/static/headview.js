// One head: queries on the left, keys on the right, weights between them.

class HeadView {
  constructor(attention, state) {
    this.attention = attention;
    this.state = state;
    this.rows = new Map(); // rows of the head on show, computed as they come into view
    this.overview = new LineCanvas("lines overview");
    this.active = new LineCanvas("lines active");
    this.sides = {
      query: { element: make("div", { class: "tokens queries", role: "listbox", "aria-label": "Queries" }) },
      key: { element: make("div", { class: "tokens keys", role: "listbox", "aria-label": "Keys" }) },
    };
    const canvases = make("div", { class: "canvases" }, this.overview.canvas, this.active.canvas);
    this.sheet = make("div", { class: "sheet" }, this.sides.query.element, canvases, this.sides.key.element);
    this.stage = make("div", { class: "stage", tabindex: "-1" }, this.sheet);
    this.canvases = canvases;
    this.map = new MiniMap((fraction) => {
      this.stage.scrollTop = fraction * this.stage.scrollHeight - this.stage.clientHeight / 2;
    });
    this.framed = make("div", { class: "frame" }, this.stage, this.map.canvas);
    this.note = make("p", { class: "note floor" });
    this.empty = make("p", { class: "empty" }, "Every token is hidden. Show the special tokens or choose another filter.");
    this.element = make("div", { class: "headview" }, this.framed, this.empty, this.note);
    this.listen();
  }

  listen() {
    this.stage.addEventListener("scroll", () => this.request(), { passive: true });
    new ResizeObserver(() => this.request(true)).observe(this.stage);
    this.sheet.addEventListener("pointerover", (event) => this.onPointer(event));
    this.sheet.addEventListener("pointerdown", (event) => (this.touch = event.pointerType === "touch"));
    this.sheet.addEventListener("pointerleave", (event) => event.pointerType !== "touch" && this.state.set({ hover: null }));
    this.sheet.addEventListener("click", (event) => this.onClick(event));
    this.sheet.addEventListener("keydown", (event) => this.onKey(event));
    this.sheet.addEventListener("focusin", (event) => {
      const token = this.tokenOf(event.target);
      if (!token) return;
      this.rove(token);
      // A click focuses too, but there the pointer already says what is meant.
      if (event.target.matches(":focus-visible")) this.state.set({ hover: token });
    });
    // On the way into the panel the row stays: the panel lists it.
    this.sheet.addEventListener("focusout", ({ relatedTarget: to }) => (to && to.closest(".panel")) || this.state.set({ hover: null }));
  }

  tokenOf(target) {
    const element = target.closest("[data-token]");
    if (!element) return null;
    return { side: element.dataset.side, index: Number(element.dataset.token) };
  }

  onPointer(event) {
    if (event.pointerType === "touch") return;
    this.state.set({ hover: this.tokenOf(event.target) });
  }

  onClick(event) {
    const token = this.tokenOf(event.target);
    if (!token) return;
    const { pin, hover } = this.state.values;
    // A finger cannot point without a tap: beside a pinned token, a tap on the other side reads one weight.
    if (!this.touch || event.detail === 0) this.togglePin(token);
    else if (pin && pin.side !== token.side) this.state.set({ hover: sameToken(hover, token) ? null : token });
    else this.state.set({ pin: sameToken(pin, token) ? null : token, hover: null });
  }

  togglePin(token) {
    this.state.set({ pin: sameToken(this.state.values.pin, token) ? null : token });
  }

  onKey(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return; // the browser's own keys
    const token = this.tokenOf(event.target);
    if (!token) return;
    const { order, place } = this.sides[token.side];
    const at = place[token.index];
    const go = (side, position) => {
      const to = this.sides[side].order;
      if (to.length > 0) this.focusToken({ side, index: to[Math.max(0, Math.min(to.length - 1, position))] });
    };
    if (event.key === "ArrowDown") go(token.side, at + 1);
    else if (event.key === "ArrowUp") go(token.side, at - 1);
    else if (event.key === "Home") go(token.side, 0);
    else if (event.key === "End") go(token.side, order.length - 1);
    else if (event.key === "ArrowRight") go("key", at);
    else if (event.key === "ArrowLeft") go("query", at);
    else if (event.key === "Enter" || event.key === " ") this.togglePin(token);
    else return;
    event.preventDefault();
  }

  elementOf(token) {
    const side = this.sides[token.side];
    return side.elements[side.place[token.index]];
  }

  focusToken(token, focusVisible = true) {
    const element = this.elementOf(token);
    this.reveal(token);
    element.focus({ preventScroll: true, focusVisible });
  }

  // Brings a token into view, with a few neighbours.
  reveal(token) {
    const top = this.sides[token.side].place[token.index] * this.rowHeight;
    const margin = Math.min(2 * this.rowHeight, this.stage.clientHeight / 4);
    if (top - margin < this.stage.scrollTop) this.stage.scrollTop = top - margin;
    else if (top + this.rowHeight + margin > this.stage.scrollTop + this.stage.clientHeight) {
      this.stage.scrollTop = top + this.rowHeight + margin - this.stage.clientHeight;
    }
  }

  rove(token) {
    for (const side of Object.values(this.sides)) {
      if (side.roving && side.roving.isConnected) side.roving.tabIndex = side === this.sides[token.side] ? -1 : 0;
    }
    const side = this.sides[token.side];
    side.roving = this.elementOf(token);
    side.roving.tabIndex = 0;
  }

  // The tokens on show have changed.
  layout() {
    const shown = this.state.shown();
    const rows = Math.max(shown.queries.length, shown.keys.length);
    this.rowHeight = rows > 60 ? 24 : rows > 16 ? 30 : 34;
    this.element.style.setProperty("--row", `${this.rowHeight}px`);
    for (const [name, order] of [["query", shown.queries], ["key", shown.keys]]) {
      const side = this.sides[name];
      side.order = order;
      side.place = new Int32Array(this.attention.size).fill(-1);
      order.forEach((index, position) => (side.place[index] = position));
      side.elements = order.map((index, position) => this.makeToken(name, index, order[position - 1]));
      side.painted = [0, 0];
      side.element.replaceChildren(...side.elements);
      side.roving = side.elements[0];
      if (side.roving) side.roving.tabIndex = 0;
    }
    this.empty.hidden = shown.queries.length > 0 && shown.keys.length > 0;
    this.framed.hidden = !this.empty.hidden;
    this.sheet.style.height = `${rows * this.rowHeight}px`;
    this.request(true);
  }

  makeToken(side, index, above) {
    const { tokens } = this.attention.facts;
    const token = tokens[index];
    const number = make("span", { class: "number" });
    const classes = ["token"];
    if (token.special) classes.push("special");
    if (token.continues && above === index - 1) classes.push("continues");
    if (token.continued) classes.push("continued");
    if (above !== undefined && tokens[above].sequence !== token.sequence && token.sequence === 1) classes.push("second");
    const element = make("div", {
      class: classes.join(" "),
      role: "option",
      tabindex: "-1",
      "aria-selected": "false",
      "data-side": side,
      "data-token": String(index),
    });
    element.append(make("span", { class: "chip" }, tokenText(token)), number);
    return element;
  }

  headChanged() {
    this.rows.clear();
    this.request();
  }

  row(query) {
    let row = this.rows.get(query);
    if (!row) {
      if (this.rows.size > 600) this.rows.clear();
      row = this.attention.row(this.state.values.layer, this.state.values.head, query);
      this.rows.set(query, row);
    }
    return row;
  }

  // The weights on show: a row over the keys or a column over the queries; null in the overview.
  weights() {
    const { on } = this.state.focus();
    if (!on) return null;
    if (on.side === "query") return this.row(on.index);
    const { layer, head } = this.state.values;
    const name = `${layer}.${head}.${on.index}`;
    if (!this.column || this.column.name !== name) {
      this.column = { name, weights: this.attention.column(layer, head, on.index) };
    }
    return this.column.weights;
  }

  // Draws before the next frame, however many events ask for it.
  request(resized = false) {
    this.resized = this.resized || resized;
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  draw() {
    if (this.framed.hidden) return;
    if (this.resized) {
      this.resized = false;
      this.scrolls = this.stage.scrollHeight > this.stage.clientHeight + 1;
      this.map.canvas.hidden = !this.scrolls;
      const height = Math.min(this.stage.clientHeight, this.sheet.clientHeight) || this.sheet.clientHeight;
      this.canvases.style.height = `${height}px`;
      this.overview.resize(this.canvases.clientWidth, height);
      this.active.resize(this.canvases.clientWidth, height);
      this.drawnView = "";
    }
    this.top = this.stage.scrollTop;
    this.first = Math.max(0, Math.floor(this.top / this.rowHeight) - 1);
    this.last = Math.ceil((this.top + this.overview.height) / this.rowHeight) + 1;
    // Whatever measures the page comes before whatever changes it: the other way round costs a layout.
    if (this.scrolls) this.drawMap();
    this.drawOverview();
    this.drawActive();
    this.paintTokens();
    this.describeLines();
  }

  describeLines() {
    const { on, at } = this.state.focus();
    if (!on) this.note.textContent = this.overviewNote;
    else {
      const [name, other, line] = on.side === "query" ? ["Query", "key", "row"] : ["Key", "query", "column"];
      this.note.textContent = at
        ? `${name} ${on.index}, ${other} ${at.index}: one line, for the weight between the two.`
        : `${name} ${on.index}: a line for every weight from ${ROW_FLOOR} up, of its ${line}.`;
    }
  }

  drawMap() {
    const { on } = this.state.focus();
    const other = on && on.side === "query" ? "key" : "query";
    const weights = on ? this.weights() : null;
    const { scrollTop, scrollHeight, clientHeight } = this.stage;
    this.map.draw(
      weights && this.sides[other].order.map((index) => weights[index]),
      scrollTop / scrollHeight,
      (scrollTop + clientHeight) / scrollHeight,
      { view: this.color("--rule"), ink: this.color(other === "key" ? "--query" : "--key") },
    );
  }

  y(side, index) {
    return (this.sides[side].place[index] + 0.5) * this.rowHeight - this.top;
  }

  // All the lines that start in view. A hover only fades them, so they are drawn again only when they change.
  drawOverview() {
    const { layer, head } = this.state.values;
    const { filter, specials } = this.state.values;
    const view = [layer, head, this.top, this.color("--query"), filter, specials].join();
    if (view === this.drawnView) return;
    this.drawnView = view;
    const lines = [];
    const keys = this.sides.key.order;
    for (const query of this.sides.query.order.slice(this.first, this.last)) {
      const row = this.row(query);
      const y = this.y("query", query);
      for (const key of keys) if (row[key] >= FLOOR) lines.push(y, this.y("key", key), row[key]);
    }
    const kept = strongestLines(lines, MOST_LINES);
    this.overview.draw(kept.lines, this.color("--query"), { faint: true });
    this.overviewNote = `Overview: a line for every weight from ${kept.floor.toFixed(3)} up, of the queries in view.`;
  }

  drawActive() {
    const { on, at } = this.state.focus();
    this.element.classList.toggle("has-active", Boolean(on));
    if (!on) {
      this.active.clear();
      return;
    }
    const weights = this.weights();
    const other = on.side === "query" ? "key" : "query";
    const fixed = this.y(on.side, on.index);
    const lines = [];
    for (const index of at ? [at.index] : this.sides[other].order) {
      if (weights[index] < ROW_FLOOR && !at) continue;
      const y = this.y(other, index);
      lines.push(on.side === "query" ? fixed : y, on.side === "query" ? y : fixed, weights[index]);
    }
    this.active.draw(lines, this.color(on.side === "query" ? "--query" : "--key"));
  }

  // Numbers and bars, for the tokens in view only; what has left the view is cleared, so that nothing
  // there keeps the number of another row.
  paintTokens() {
    const { on, at } = this.state.focus();
    const { pin } = this.state.values;
    const weights = on ? this.weights() : null;
    for (const [name, side] of Object.entries(this.sides)) {
      const numbers = weights && on.side !== name ? weights : null;
      const last = Math.min(this.last, side.order.length);
      const [oldFirst, oldLast] = side.painted;
      for (let position = oldFirst; position < oldLast; position += 1) {
        if (position < this.first || position >= last) this.paintToken(side, position, null, null, null, null);
      }
      side.painted = [this.first, last];
      for (let position = this.first; position < last; position += 1) {
        const own = (token) => Boolean(token) && token.side === name && token.index === side.order[position];
        this.paintToken(side, position, numbers, own(on), own(at), own(pin));
      }
    }
  }

  paintToken(side, position, numbers, on, at, pinned) {
    const element = side.elements[position];
    const weight = numbers ? numbers[side.order[position]] : 0;
    element.lastChild.textContent = numbers ? formatWeight(weight) : "";
    element.style.setProperty("--weight", weight);
    element.classList.toggle("weighed", Boolean(numbers));
    element.classList.toggle("on", Boolean(on));
    element.classList.toggle("at", Boolean(at));
    element.classList.toggle("pinned", Boolean(pinned));
    element.setAttribute("aria-selected", String(Boolean(pinned)));
  }

  color(name) {
    this.colors = this.colors || {};
    this.colors[name] = this.colors[name] || getComputedStyle(this.element).getPropertyValue(name).trim();
    return this.colors[name];
  }

  themeChanged() {
    this.colors = null;
    this.request(true);
  }
}

function sameToken(one, other) {
  return Boolean(one) && one.side === other.side && one.index === other.index;
}
