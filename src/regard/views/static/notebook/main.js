// The widget: one mount of the page in a shadow root, so that no style gets in or out, with the kernel as its row
// source and a trait as its address.

import { mount } from "../base/app.js";
import { make } from "../base/dom.js";
import { allHeads } from "../base/held.js";
import { chosenRun } from "../base/source.js";
import { fit, makeField, makeReady, write } from "../door/field.js";
import { VIEWS } from "../views.js";
import { VIEW as CHECK } from "./check.js";
import { KernelSource } from "./source.js";
import { makeStrip } from "./strip.js";
import { isDark, watchTheme } from "./theme.js";
import { Writing } from "./writing.js";

const SETTLED = 120; // milliseconds in which the views have asked for what they still need

const TYPED = 300; // milliseconds without a key, after which a text is read

const HEIGHT = 760; // CSS pixels; as in notebook.css

let opened = 0;

function render({ model, el }) {
  opened += 1;
  const client = `${Date.now()}-${opened}-${Math.random()}`; // several views of one widget share its messages
  let { runs } = JSON.parse(model.get("facts"));
  const stops = [];
  const listenTo = (name, listener) => {
    model.on(name, listener);
    stops.push(() => model.off(name, listener));
  };

  // A notebook has keys of its own (B makes a cell): those that are pressed in here are not for it.
  const outer = make("div", { class: "regard-widget", "data-lm-suppress-shortcuts": "true" });
  for (const name of ["keydown", "keypress", "keyup"]) outer.addEventListener(name, (event) => event.stopPropagation());
  el.append(outer);
  const shadow = outer.attachShadow({ mode: "open" });
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(STYLE);
  shadow.adoptedStyleSheets = [sheet];

  // Where a model stands behind it, the sentence on the front door is a field: Python reads what is typed.
  const { typed, sides } = runs[0].facts;
  const field = typed ? makeField("Type a sentence", Object.values(sides)[0].text ?? "") : null;
  const surface = field && make("div", { class: "live-texts" }, field);
  const slot = field && make("section", { class: "live", "aria-label": "Your sentence" }, surface);
  let refused = null;
  let writing = null; // of a decoder, what comes next
  if (field) {
    field.disabled = false;
    let waiting = 0;
    field.addEventListener("input", () => {
      fit(field);
      if (writing && field.closest(".at-door")) return writing.typed();
      slot.classList.add("working");
      clearTimeout(waiting);
      waiting = setTimeout(() => model.send({ client, text: field.value }), TYPED);
    });
  }

  const room = make("div", { class: "regard-room" });
  const root = make("div", { class: "regard" }, ...(slot ? [slot] : []));
  room.append(root);
  shadow.append(room);
  let sources = [];
  const close = () => {
    sources.forEach((source) => source.close());
    sources = [];
    stops.splice(0).forEach((stop) => stop());
  };
  const start = () => {
    let app = null;
    const strip = makeStrip(
      () => refused ?? ((app && sources.map((source) => source.status(app.state.values)).find(Boolean)) || null),
    );
    let telling = 0;
    const tell = () => {
      telling =
        telling ||
        setTimeout(() => {
          telling = 0;
          strip.update();
        }, SETTLED);
    };
    const { movement, compared, senses } = runs[0].facts;
    const source = chosenRun(runs[0].facts, model.get("address"), (place) => {
      const name = `${client}.${place}`;
      const channel = {
        send: (message) => model.send({ client: name, ...message }),
        listen: (listener) =>
          listenTo("msg:custom", (message, buffers) => message.client === name && listener(message, buffers)),
      };
      const { facts, blocks } = runs[place];
      const one = new KernelSource({ facts: { ...facts, movement, compared, senses }, blocks }, place, channel, tell);
      sources.push(one);
      return one;
    });
    const typedAnew = () => {
      ({ runs } = JSON.parse(model.get("facts")));
      refused = null;
      slot?.classList.remove("working");
      const { asks } = app.state.values;
      close();
      model.set("address", `#view=door${asks.length > 0 ? `&asks=${asks}` : ""}`);
      start();
    };
    listenTo("change:facts", typedAnew);
    listenTo("msg:custom", (message) => {
      if (message.client !== client) return;
      writing?.answered(message);
      refused = message.refused ? { text: message.refused, failed: true } : null;
      strip.update();
    });
    if (field)
      Object.assign(source, {
        surface,
        makeReady: () => makeReady(field),
        write: (text) => write(field, text),
        fit: () => fit(field),
      });
    if (runs[0].facts.writes) {
      const send = (message) => model.send({ client, ...message });
      const shown = () => Object.values(runs[0].facts.sides)[0].text;
      writing ??= new Writing(field, allHeads(source, source.kinds[0]).length, send, shown, runs[0].facts.chat);
      source.writer = writing.writer;
    }
    // Jupyter says so when the kernel has been restarted; elsewhere nobody answers any more.
    listenTo("comm_live_update", () => sources.forEach((each) => each.lose()));
    const address = {
      written: null,
      read: () => model.get("address"),
      write(text) {
        address.written = text;
        if (model.get("address") === text) return;
        model.set("address", text);
        model.save_changes();
      },
      listen: (listener) => listenTo("change:address", () => model.get("address") !== address.written && listener()),
    };
    app = mount(
      root,
      source,
      {
        address,
        addressed: "Python can read and set what is chosen here: widget = trace.widget(), then widget.address.",
        keys: room,
        theme: (chosen) => (chosen === "auto" ? (isDark(el) ? "dark" : "light") : chosen),
        surroundings: (listener) => stops.push(watchTheme(listener)),
        landmark: "div", // the notebook has a main of its own
        title: () => {},
        printing: () => {},
        height: () => HEIGHT,
        resized: () => {},
        link: null,
        slot,
        restart: () => {
          close();
          start();
        },
      },
      [...VIEWS, CHECK],
    );
    root.append(strip.element);
    app.state.listen(tell);
    if (field) fit(field);
    if (writing && !writing.writer.written) writing.ask(null);
    outer.regard = { source, state: () => ({ ...app.state.values }) };
  };
  start();
  return () => {
    close();
    outer.remove();
  };
}

export default { render };
