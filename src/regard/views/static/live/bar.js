// What stands above the views of a live page: the text fields, what is edited, and what comes of it.

import { makeButton, makeSelect } from "../base/controls.js";
import { make, readable } from "../base/dom.js";
import { isRead } from "../base/shares.js";
import { notKnown, shownText } from "../base/units.js";
import { fit, makeField } from "../door/field.js";
import { besideSaid, drawBeside } from "../movement/beside.js";
import { makeMoved, makePredicted } from "./found.js";
import { makeSwitch } from "./switch.js";

const WIDTH = 620; // pixels, of a word's way in two sentences

export class LiveBar {
  // live: the page's facts of the model; side: the first sentence; told: { typed, switched, released, undone, kept, chosen }.
  constructor(live, side, told) {
    this.told = told;
    const pair = side.pair !== null;
    this.fields = [makeField(pair ? "First text" : "Type a sentence", side.text ?? "")];
    if (pair) this.fields.push(makeField("Second text", side.pair));
    this.other = makeField("Another sentence, to compare with", "");
    this.status = make("span", { role: "status" }, "Reading the model…");
    this.note = make("span", { class: "live-note" });
    this.off = [];
    this.switch = makeSwitch(() => this.off, told.switched, "");
    this.alike = make("output", { class: "live-alike" });
    this.word = null; // that was chosen to be drawn in both sentences
    this.edited = make("ul", { class: "live-edits", "aria-label": "Edits" });
    this.moved = makeMoved(() => told.kept());
    this.predicted = live.head ? makePredicted(live.head, (at, text) => this.take(at, text)) : null;
    this.compare = live.pooling ? this.makeCompare() : null;
    this.all = [...this.fields, this.other];
    for (const field of this.all) {
      field.addEventListener("input", () => {
        this.fit();
        this.word = null;
        told.typed(field !== this.other);
      });
    }
    this.surface = make("div", { class: "live-texts" }, ...this.fields);
    this.found = make("div", {}, this.moved.element, ...(this.predicted ? [this.predicted.element] : []));
    this.element = make(
      "section",
      { class: "live", "aria-label": "Your sentence" },
      this.surface,
      make(
        "div",
        { class: "live-line" },
        make("p", { class: "live-status" }, this.status, " ", this.note),
        this.edited,
        this.switch.element,
        ...(this.compare ? [this.compare.button] : []),
      ),
      ...(this.compare ? [this.compare.element] : []),
      this.found,
    );
  }

  // The field for another sentence, the button that shows it, and a word's way in both.
  makeCompare() {
    this.drawn = make("div", { class: "live-beside" });
    this.pick = makeSelect("Word", (token) => {
      this.word = Number(token);
      this.told.chosen();
    });
    this.pick.element.hidden = true;
    const line = make("div", { class: "live-line" }, this.other, this.pick.element, this.alike);
    const element = make("div", { class: "live-other", hidden: true }, line, this.drawn);
    const unfold = () => {
      element.hidden = !element.hidden;
      button.setAttribute("aria-expanded", String(!element.hidden));
      if (element.hidden) this.other.value = "";
      else this.other.focus();
      this.told.typed(false);
    };
    const button = makeButton("Compare two sentences", unfold, { "aria-expanded": "false" });
    return { element, button };
  }

  // A word's way in both sentences, and the words to choose from.
  showBeside({ tokens, words }, beside, colours) {
    const options = words.flatMap((name, word) => {
      const first = tokens.findIndex((each) => each.word === word);
      const place = words.indexOf(name) === words.lastIndexOf(name) ? "" : ` ${first}`;
      return first >= 0 && isRead(name) ? [[first, readable(name) + place]] : [];
    });
    this.pick.element.hidden = !beside;
    if (beside) this.pick.update(JSON.stringify(options), () => options, beside.first);
    this.drawn.replaceChildren(...(beside ? [besideSaid(beside), drawBeside(beside, colours, WIDTH)] : []));
  }

  get texts() {
    return this.fields.map(({ value }) => value);
  }

  set texts(texts) {
    this.fields.forEach((field, at) => (field.value = texts[at]));
    this.fit();
  }

  get second() {
    return this.other.value;
  }

  fit() {
    for (const field of this.all) fit(field);
  }

  say(text, isRefused = false) {
    this.rest();
    this.element.classList.toggle("refused", isRefused);
    this.found.hidden = isRefused;
    this.status.textContent = text;
    if (isRefused) this.alike.textContent = "";
  }

  // How the model runs here: shown, and returned.
  opened(how, where, fell) {
    const said = [
      how === "webgpu" && "The GPU works out what comes next.",
      fell && `The GPU cannot be used (${fell}): the processor works out what comes next.`,
      how === "js" && "This browser runs the model without WebAssembly, which is slower.",
      where === "page" && "It allows no worker: the page stands still while it computes.",
    ];
    this.note.textContent = said.filter(Boolean).join(" ");
    for (const field of this.all) field.disabled = false;
    this.fit();
    return this.note.textContent;
  }

  broken(why) {
    this.say(`${why} What Python worked out of this sentence is below; no other can be typed.`, true);
  }

  work() {
    this.element.classList.add("working");
  }

  rest() {
    this.element.classList.remove("working");
  }

  // The head that the button switches off, in views that have none beside the head's name.
  head(values = this.values) {
    this.values = values;
    const { view, layer, head, also } = values;
    const hasOwn = view === "model" || (view === "heads" && also.length === 0);
    this.switch.update(hasOwn ? null : { layer, head });
  }

  edits(edits) {
    this.off = edits.off;
    this.head();
    this.edited.replaceChildren(...this.chips(edits));
  }

  // What is changed in the model, each as a button that undoes it.
  chips({ off, weights }) {
    const chip = (text, take) => make("li", {}, makeButton([text, " ×"], take, { class: "live-chip", title: "Undo" }));
    const chips = [
      ...off.map(([layer, head]) => chip(`head ${layer}.${head} off`, () => this.told.switched(layer, head))),
      ...weights.map((each) => {
        const [query, key] = [each.query, each.key].map((token) => this.name(token));
        const said = `${query} → ${key} = ${each.value.toFixed(2)} in head ${each.layer}.${each.head}`;
        return chip(said, () => this.told.released(each));
      }),
    ];
    return chips.length > 1 ? [...chips, chip("all edits", () => this.told.undone())] : chips;
  }

  name(token) {
    return readable(shownText(this.tokens?.[token] ?? { text: String(token) }));
  }

  // What has come of it.
  show({ encoded, milliseconds, likeness, beside, predicted }, moved, colours) {
    this.tokens = encoded.tokens;
    const missing = notKnown(encoded.tokens);
    const count = `${encoded.ids.length} token${encoded.ids.length === 1 ? "" : "s"}`;
    this.say(`${count}, ${Math.round(milliseconds)} ms.${missing && ` ${missing}`}`);
    const edits = this.edited.children.length > 0;
    const now = this.texts.join(" ");
    this.moved.show(moved, now, edits || moved.text !== now);
    this.predicted?.show(predicted, encoded, edits && moved.text === now ? moved.predicted : []);
    this.alike.textContent =
      likeness === null
        ? ""
        : typeof likeness === "number"
          ? `${likeness.toFixed(2)} alike (cosine)`
          : likeness.refused;
    if (this.compare) this.showBeside(encoded, beside, colours);
  }

  // A predicted word is written into the text: at its end, or in the place of a [MASK].
  take(span, text) {
    const field = this.fields[this.fields.length - 1];
    if (span) field.setRangeText(text, span[0], span[1], "end");
    else field.value += text;
    field.dispatchEvent(new Event("input"));
  }
}
