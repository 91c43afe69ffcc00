// The row or column on show, in numbers: the largest ones as a list, all of them as a table, and one sentence for a
// screen reader. Without a row, the strongest weights of the chosen heads.

import { make, onceAFrame } from "../base/dom.js";
import { quantityOf } from "../base/measures.js";
import { STRONGEST } from "./strongest.js";
import { makeWhy } from "./why.js";

export class Panel {
  // strongest: see strongest.js; form(): what is drawn beside it; drawn(): the list is.
  constructor(page, weights, strongest, form, drawn) {
    this.source = page.source;
    this.state = page.state;
    this.colours = page.colours;
    this.weights = weights;
    this.strongest = strongest;
    this.form = form;
    this.drawn = drawn;
    this.request = onceAFrame(() => this.draw());
    this.title = make("h2", { class: "panel-title" });
    this.subtitle = make("p", { class: "note" });
    this.list = make("ol", { class: "top" });
    this.sum = make("p", { class: "note sum" });
    this.body = make("tbody");
    this.caption = make("caption");
    this.head = make("thead");
    this.details = make(
      "details",
      { class: "table" },
      make("summary", {}, "All numbers as a table"),
      make("div", { class: "table-scroll", tabindex: "0" }, make("table", {}, this.caption, this.head, this.body)),
    );
    this.live = make("p", { class: "sr-only", role: "status", "aria-live": "polite" });
    this.element = make(
      "section",
      { class: "panel", "aria-label": "Numbers" },
      this.title,
      this.subtitle,
      this.list,
      this.sum,
      this.details,
      this.live,
    );
    this.details.addEventListener("toggle", () => this.fillTable());
    this.list.addEventListener("click", (event) => this.onClick(event));
    this.element.addEventListener(
      "focusout",
      ({ relatedTarget: to }) => this.element.contains(to) || this.state.set({ hover: null }),
    );
  }

  // A unit's name; of a span, its first and last.
  name({ side, index, to = index }) {
    const units = this.state.units(side);
    if (to === index) return units.name(index);
    return to === index + 1 ? `${units.name(index)} ${units.name(to)}` : `${units.name(index)} … ${units.name(to)}`;
  }

  // Which head, or what of several heads.
  where() {
    const named = this.weights.named();
    return named[0].toUpperCase() + named.slice(1);
  }

  several() {
    return this.weights.heads.length > 1;
  }

  onClick(event) {
    const button = event.target.closest("button");
    if (!button) return;
    const token = { side: button.dataset.side, index: Number(button.dataset.token) };
    if (!button.dataset.pin) {
      this.form().reveal(token);
      return;
    }
    this.state.set({ pin: token, hover: null });
    // The list makes way for the row, and with it the button that had the focus; a click has no detail from a key.
    this.form().focusToken(token, event.detail === 0);
  }

  draw() {
    const { on, at } = this.state.focus();
    this.element.classList.toggle("of-key", Boolean(on) && on.side === "key");
    this.details.hidden = !on;
    if (!on) this.drawHead();
    else this.drawFocus(on, at);
    this.fillTable();
    this.drawn();
  }

  // The rows or columns of what has the focus, one for each head whose numbers are there: [{ head, weights }].
  series(on) {
    return this.weights.heads
      .map((head) => ({ head, weights: this.weights.focused(head, on) }))
      .filter(({ weights }) => weights);
  }

  drawFocus(on, at) {
    const series = this.series(on);
    const byQuery = on.side === "query";
    const shown = this.state.shown();
    const side = byQuery ? "key" : "query";
    const others = (byQuery ? shown.keys : shown.queries).filter((index) => this.isCompared(side, index));
    const there = others.filter((index) => this.weights.isThere(on, index));
    const name = make("bdi", { class: "panel-token" }, this.name(on));
    this.title.replaceChildren(
      ...(byQuery ? [name, on.to === undefined ? " looks at" : " look at"] : ["Looking at ", name]),
    );
    this.subtitle.textContent = this.describe(on, byQuery);
    if (series.length === 0) {
      this.fillList([]);
      this.sum.textContent = "The numbers are on their way.";
      return;
    }
    const entries = strongestOf(series, there, STRONGEST);
    const listed = at ? [...ofUnit(series, at.index), ...entries.filter(({ index }) => index !== at.index)] : entries;
    this.fillList(
      listed.map(({ index, weight, head }) => ({
        tokens: [{ side, index }],
        weight,
        head,
        marked: Boolean(at) && index === at.index,
      })),
    );
    this.sum.textContent =
      this.several() || (!byQuery && this.state.values.row !== null)
        ? ""
        : this.sumUp(series[0].weights, others, byQuery, side);
    this.announce(on, at, series, listed, side);
  }

  describe(on, byQuery) {
    const { what } = this.state.values;
    if (what !== "weights") return this.describeMeasure(on, byQuery, quantityOf(what));
    const units = this.state.values.units === "words" ? "words" : "tokens";
    const [combined] = this.weights.heads.filter(({ of }) => of);
    if (combined) {
      const sums = combined.name === "mean" && byQuery ? ", which sums to 1" : ", which need not sum to 1";
      return `${byQuery ? "Row of query" : "Column of key"} ${on.index}: ${this.weights.named()}${sums}.`;
    }
    if (on.to !== undefined) {
      return byQuery
        ? `Queries ${on.index} to ${on.to}: the mean of their rows, which sums to 1.`
        : `Keys ${on.index} to ${on.to}: the sum of their columns, one weight from each query.`;
    }
    if (units === "words") {
      return byQuery
        ? "The mean row of the word's pieces, added up over the pieces of each key."
        : "What goes to all pieces of the word: one weight from each query.";
    }
    const whole = this.source.computed(this.state.values.kind)
      ? "its weights over all keys sum to 1"
      : "its weights, as they were given";
    return byQuery
      ? `Row of query ${on.index}: ${whole}.`
      : `Column of key ${on.index}: one weight from each query; a column need not sum to 1.`;
  }

  // Whether there is a number at a unit: of two texts, both must have it.
  isCompared(side, index) {
    return this.state.units(side).at(index).only === undefined;
  }

  describeMeasure(on, byQuery, { label }) {
    if (on.to === undefined && !this.isCompared(on.side, on.index))
      return "This token is in one of the texts only: there is no difference to show.";
    const [rows, kept] = byQuery ? ["row", "the mean of the rows of"] : ["column", "the sum of the columns of"];
    const several = on.to !== undefined ? "several" : this.state.values.units === "words" ? "its pieces" : null;
    return several
      ? `${label}: ${kept} ${several === "several" ? `tokens ${on.index} to ${on.to}` : several}.`
      : `${label}: the ${rows} of ${on.side} ${on.index}.`;
  }

  sumUp(weights, others, byQuery, side) {
    if (this.state.values.what !== "weights" || this.weights.heads[0].name === "largest") return "";
    let total = 0;
    let visible = 0;
    for (const { first } of this.state.units(side).all) total += weights[first];
    for (const index of others) visible += weights[index];
    if (byQuery && total === 0 && !this.source.computed(this.state.values.kind))
      return "Every weight of this query is 0.";
    if (byQuery && total === 0) return "This query may attend to nothing: the mask hides every key.";
    if (others.length < this.state.units(side).all.length) {
      return `${this.weights.format(total - visible)} of this ${byQuery ? "row" : "column"} lies on tokens that are not shown. Nothing is renormalised.`;
    }
    return byQuery ? "" : `This column sums to ${this.weights.format(total)}.`;
  }

  // Spoken once the choice has rested: neither a moving pointer nor a held arrow key must chatter.
  announce(on, at, series, listed, side) {
    const several = this.several();
    const where = several ? `${series.length} heads.` : `${this.where()}.`;
    const number = ({ weight, head: of }) =>
      several ? `${this.weights.format(weight)} in ${of.layer}.${of.head}` : this.weights.format(weight);
    const said = at
      ? `${this.name(on)} and ${this.name(at)}: ${ofUnit(series, at.index).map(number).join(", ")}`
      : `${where} ${on.side === "query" ? "Query" : "Key"} ${on.index}, ${this.name(on)}: ${listed
          .slice(0, 3)
          .map((each) => `${this.name({ side, index: each.index })} ${number(each)}`)
          .join(", ")}.`;
    clearTimeout(this.speaking);
    this.speaking = setTimeout(() => (this.live.textContent = said), 250);
  }

  drawHead() {
    this.title.textContent = this.weights.chosen.length > 1 ? "Strongest in these heads" : "Strongest in this head";
    this.subtitle.textContent = "Query → key, among the tokens that are shown.";
    const { list } = this.strongest;
    this.sum.textContent = list ? "Click one to pin its query." : "The numbers are on their way.";
    this.drawStrongest(list || []);
  }

  drawStrongest(strongest) {
    this.fillList(
      strongest.map(({ query, key, weight, head }) => ({
        tokens: [
          { side: "query", index: query },
          { side: "key", index: key },
        ],
        weight,
        head,
        pin: true,
      })),
    );
  }

  // The lines of the list, [{ tokens, weight, head, marked, pin }]. Elements are made once and written anew: making
  // ten of them in every frame takes longer than all else that the panel does.
  fillList(entries) {
    const several = this.several();
    const shape = `${several}.${entries.length > 0 ? entries[0].tokens.length : 0}`;
    if (shape !== this.shape) this.items = [];
    this.shape = shape;
    while (this.items.length < entries.length) this.items.push(this.makeItem(entries[0].tokens.length, several));
    entries.forEach((entry, i) => this.fillItem(this.items[i], entry));
    const wanted = this.items.slice(0, entries.length).map(({ element }) => element);
    if (wanted.length !== this.list.children.length || wanted.some((element, i) => element !== this.list.children[i]))
      this.list.replaceChildren(...wanted);
  }

  // One line of the list: tokens, each with its place where there are more of it, a bar, the number.
  makeItem(count, several) {
    const label = make("span", { class: "top-name" });
    const names = [];
    for (let i = 0; i < count; i += 1) {
      if (i > 0) label.append(make("span", { class: "arrow" }, " → "));
      const name = { text: make("bdi", { dir: "auto" }, ""), position: make("span", { class: "position" }, "") };
      names.push(name);
      label.append(make("span", {}, name.text, name.position));
    }
    const head = several ? make("span", { class: "top-head" }, "") : null;
    const number = make("span", { class: "top-number" }, "");
    const button = make("button", { type: "button" }, ...(head ? [head] : []), label, number);
    const why = makeWhy(this.state);
    const drag = this.source.makeDrag?.(); // a live page's
    const line = drag ? make("span", { class: "with-drag" }, button, drag.element) : button;
    const element = make("li", {}, line, why.element);
    return { element, button, head, names, number, why, drag };
  }

  fillItem({ button, head, names, number, why, drag }, { tokens, weight, head: of, marked = false, pin = false }) {
    tokens.forEach((token, i) => {
      names[i].text.firstChild.data = this.name(token);
      names[i].position.firstChild.data = String(token.index);
      names[i].position.hidden = !this.state.units(token.side).isRepeated(token.index);
    });
    const said = this.weights.format(weight);
    number.firstChild.data = said;
    const place = this.weightOf(tokens, of);
    why.update(place, said, (side, index) => this.name({ side, index }));
    drag?.update(place, weight, tokens.map((token) => this.name(token)).join(" → "));
    const places = tokens.map((token) => `${this.name(token)}, token ${token.index}`).join(", looks at ");
    button.setAttribute("aria-label", `${places}, ${said}${head ? `, in head ${of.name}` : ""}`);
    Object.assign(button.dataset, { side: tokens[0].side, token: String(tokens[0].index) });
    if (pin) button.dataset.pin = "yes";
    else delete button.dataset.pin;
    button.classList.toggle("marked", marked);
    button.classList.toggle("less", weight < 0);
    button.classList.toggle("more", this.weights.signed && weight > 0);
    button.style.backgroundSize = `${100 * Math.min(1, this.weights.share(weight))}% 100%`;
    if (!head) return;
    head.firstChild.data = this.colours.letter(of.place);
    head.title = `Layer ${of.layer}, head ${of.head}`;
    button.style.setProperty("--ring", this.colours.series(of.place));
  }

  // What the calculation of a line's weight is of; null where it is the mean of a span, or was given.
  weightOf(tokens, { layer, head, of }) {
    const { on } = this.state.focus();
    const { kind, what } = this.state.values;
    if (of || what !== "weights" || !this.source.computed(kind) || (tokens.length < 2 && on.to !== undefined))
      return null;
    const [one, other] = tokens.length > 1 ? tokens : [on, tokens[0]];
    const [query, key] = one.side === "query" ? [one, other] : [other, one];
    return { layer, head, query: query.index, key: key.index };
  }

  // What a number is, as the head of a column.
  oneOf() {
    const { one } = quantityOf(this.state.values.what);
    return one[0].toUpperCase() + one.slice(1);
  }

  // Built only while it is open: for a long text it is the only thing on the page that is long.
  fillTable() {
    const { on } = this.state.focus();
    if (!this.details.open || !on) {
      this.body.replaceChildren();
      return;
    }
    const series = this.series(on);
    const side = on.side === "query" ? "key" : "query";
    const where = this.several() ? `${series.length} heads` : this.where();
    this.caption.textContent = `${where}, ${on.side} ${on.index} (${this.name(on)})`;
    const columns = this.several()
      ? series.map(({ head: of }) => `Layer ${of.layer}, head ${of.head}`)
      : [this.oneOf()];
    const header = ["Position", side === "key" ? "Key" : "Query", ...columns];
    this.head.replaceChildren(make("tr", {}, ...header.map((text) => make("th", { scope: "col" }, text))));
    this.body.replaceChildren(
      ...this.state
        .units(side)
        .all.filter(({ first }) => this.state.isWritten(side, first))
        .map(({ first: index }) =>
          make(
            "tr",
            {},
            make("td", {}, String(index)),
            make("th", { scope: "row" }, make("bdi", { dir: "auto" }, this.name({ side, index }))),
            ...series.map(({ weights }) =>
              make(
                "td",
                {},
                this.isCompared(side, index) && this.weights.isThere(on, index)
                  ? this.weights.format(weights[index])
                  : "–",
              ),
            ),
          ),
        ),
    );
  }
}

// The largest weights of some rows at some places, [{ index, weight, head }], largest first, then as they stand.
function strongestOf(series, places, count) {
  const best = [];
  const before = (a, b) => Math.abs(b.weight) - Math.abs(a.weight) || a.index - b.index || a.head.place - b.head.place;
  for (const { head, weights } of series) {
    for (const index of places) {
      const weight = weights[index];
      if (best.length === count && Math.abs(weight) < Math.abs(best[count - 1].weight)) continue;
      best.push({ index, weight, head });
      best.sort(before);
      if (best.length > count) best.pop();
    }
  }
  return best;
}

function ofUnit(series, index) {
  return series.map(({ head, weights }) => ({ index, weight: weights[index], head }));
}
