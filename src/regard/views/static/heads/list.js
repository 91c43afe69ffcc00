// The largest weights as a list of buttons: tokens, their number as a bar, the way to the calculation.

import { make } from "../base/dom.js";
import { makeWhy } from "./why.js";

export class WeightList {
  // name(token): how a token or a span is called.
  constructor({ source, state, colours }, weights, name) {
    this.source = source;
    this.state = state;
    this.colours = colours;
    this.weights = weights;
    this.name = name;
    this.element = make("ol", { class: "top" });
  }

  // entries: [{ tokens, weight, head, marked, pin }]; pin: a click pins the first token. Elements are made once and written anew: making
  // ten of them in every frame takes longer than all else that the panel does.
  fill(entries) {
    const several = this.weights.heads.length > 1;
    const shape = `${several}.${entries.length > 0 ? entries[0].tokens.length : 0}`;
    if (shape !== this.shape) this.items = [];
    this.shape = shape;
    while (this.items.length < entries.length) this.items.push(this.makeItem(entries[0].tokens.length, several));
    entries.forEach((entry, i) => this.fillItem(this.items[i], entry));
    const wanted = this.items.slice(0, entries.length).map(({ element }) => element);
    if (
      wanted.length !== this.element.children.length ||
      wanted.some((element, i) => element !== this.element.children[i])
    )
      this.element.replaceChildren(...wanted);
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
    number.firstChild.data = marked ? said : this.weights.percent(weight);
    number.title = said;
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
}
