// The row or column on show, in numbers: the largest ones as a list, all of them as a table, and one
// sentence for a screen reader. Without a row, the strongest weights of the head.

class Panel {
  constructor(attention, state, headView) {
    this.attention = attention;
    this.state = state;
    this.headView = headView;
    this.title = make("h2", { class: "panel-title" });
    this.subtitle = make("p", { class: "note" });
    this.list = make("ol", { class: "top" });
    this.sum = make("p", { class: "note sum" });
    this.body = make("tbody");
    this.caption = make("caption");
    this.otherHeader = make("th", { scope: "col" });
    const head = make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "Position"), this.otherHeader, make("th", { scope: "col" }, "Weight")));
    this.details = make("details", { class: "table" }, make("summary", {}, "All numbers as a table"), make("div", { class: "table-scroll", tabindex: "0" }, make("table", {}, this.caption, head, this.body)));
    this.live = make("p", { class: "sr-only", role: "status", "aria-live": "polite" });
    this.element = make("section", { class: "panel", "aria-label": "Numbers" }, this.title, this.subtitle, this.list, this.sum, this.details, this.live);
    this.details.addEventListener("toggle", () => this.fillTable());
    this.list.addEventListener("click", (event) => this.onClick(event));
    this.element.addEventListener("focusout", ({ relatedTarget: to }) => this.element.contains(to) || state.set({ hover: null }));
  }

  name(index) {
    return readable(this.attention.facts.tokens[index].text);
  }

  // The name with its place: a text has many an "a".
  place(index) {
    const name = make("bdi", { dir: "auto" }, this.name(index));
    return make("span", {}, name, make("span", { class: "position" }, String(index)));
  }

  onClick(event) {
    const button = event.target.closest("button");
    if (!button) return;
    const token = { side: button.dataset.side, index: Number(button.dataset.token) };
    if (!button.dataset.pin) {
      this.headView.reveal(token);
      return;
    }
    this.state.set({ pin: token, hover: null });
    // The list makes way for the row, and with it the button that had the focus; a click has no detail from a key.
    this.headView.focusToken(token, event.detail === 0);
  }

  request() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  draw() {
    const { on, at } = this.state.focus();
    if (this.cancel) this.cancel();
    this.element.classList.toggle("of-key", Boolean(on) && on.side === "key");
    this.details.hidden = !on;
    if (!on) this.drawHead();
    else this.drawFocus(on, at);
    this.fillTable();
  }

  drawFocus(on, at) {
    const weights = this.headView.weights();
    const byQuery = on.side === "query";
    const shown = this.state.shown();
    const others = byQuery ? shown.keys : shown.queries;
    const name = make("bdi", { class: "panel-token" }, this.name(on.index));
    this.title.replaceChildren(...(byQuery ? [name, " looks at"] : ["Looking at ", name]));
    this.subtitle.textContent = byQuery
      ? `Row of query ${on.index}: its weights over all keys sum to 1.`
      : `Column of key ${on.index}: one weight from each query; a column need not sum to 1.`;
    let listed = largestAmong(weights, others, STRONGEST);
    if (at) listed = [at.index, ...listed.filter((i) => i !== at.index)];
    this.list.replaceChildren(
      ...listed.map((index) => this.item({ side: byQuery ? "key" : "query", index }, weights[index], [index], at && index === at.index)),
    );
    let total = 0;
    let visible = 0;
    for (const weight of weights) total += weight;
    for (const index of others) visible += weights[index];
    const hidden = total - visible;
    this.sum.textContent =
      others.length < weights.length
        ? `${formatWeight(hidden)} of this ${byQuery ? "row" : "column"} lies on tokens that are not shown. Nothing is renormalised.`
        : byQuery ? "" : `This column sums to ${formatWeight(total)}.`;
    this.announce(on, at, weights, listed);
  }

  // Spoken once the choice has rested: neither a moving pointer nor a held arrow key must chatter.
  announce(on, at, weights, listed) {
    clearTimeout(this.speaking);
    this.speaking = setTimeout(() => {
      const { layer, head } = this.state.values;
      const top = listed.slice(0, 3).map((i) => `${this.name(i)} ${formatWeight(weights[i])}`).join(", ");
      this.live.textContent = at
        ? `${this.name(on.index)} and ${this.name(at.index)}: ${formatWeight(weights[at.index])}`
        : `Layer ${layer}, head ${head}. ${on.side === "query" ? "Query" : "Key"} ${on.index}, ${this.name(on.index)}: ${top}.`;
    }, 250);
  }

  drawHead() {
    const { layer, head } = this.state.values;
    this.title.textContent = "Strongest in this head";
    this.subtitle.textContent = "Query → key, among the tokens that are shown.";
    this.sum.textContent = "Click one to pin its query.";
    const shown = this.state.shown();
    const name = JSON.stringify([layer, head, this.state.values.filter, this.state.values.specials]);
    if (this.scanned && this.scanned.name === name) {
      this.drawStrongest(this.scanned.strongest);
      return;
    }
    const scan = new HeadScan(this.attention, layer, head, shown);
    this.cancel = inIdleTime((deadline) => {
      if (!scan.run(deadline)) return false;
      this.scanned = { name, strongest: scan.strongest };
      this.drawStrongest(scan.strongest);
      return true;
    });
  }

  drawStrongest(strongest) {
    this.list.replaceChildren(
      ...strongest.map(({ query, key, weight }) => {
        const item = this.item({ side: "query", index: query }, weight, [query, key], false);
        item.firstChild.dataset.pin = "yes";
        return item;
      }),
    );
  }

  // One line of the list: tokens, a bar, the number.
  item(token, weight, indices, marked) {
    const label = make("span", { class: "top-name" });
    indices.forEach((index, i) => {
      if (i > 0) label.append(make("span", { class: "arrow" }, " → "));
      label.append(this.place(index));
    });
    const button = make("button", { type: "button", "data-side": token.side, "data-token": String(token.index), class: marked ? "marked" : null }, label, make("span", { class: "top-number" }, formatWeight(weight)));
    button.style.setProperty("--weight", weight);
    return make("li", {}, button);
  }

  // Built only while it is open: for a long text it is the only thing on the page that is long.
  fillTable() {
    const { on } = this.state.focus();
    if (!this.details.open || !on) {
      this.body.replaceChildren();
      return;
    }
    const { layer, head } = this.state.values;
    const weights = this.headView.weights();
    this.caption.textContent = `Layer ${layer}, head ${head}, ${on.side} ${on.index} (${this.name(on.index)})`;
    this.otherHeader.textContent = on.side === "query" ? "Key" : "Query";
    this.body.replaceChildren(
      ...Array.from(weights, (weight, i) =>
        make("tr", {}, make("td", {}, String(i)), make("th", { scope: "row" }, make("bdi", { dir: "auto" }, this.name(i))), make("td", {}, formatWeight(weight))),
      ),
    );
  }
}
