// Puts the parts together inside an element. The source is all that it knows of the model.

import { Colours } from "./colours.js";
import { make } from "./dom.js";
import { makeFooter, makeHeader, makeOpener } from "./header.js";
import { makeRefusal } from "./held.js";
import { makeSave } from "./save.js";
import { sheetOf } from "./sheet.js";
import { State } from "./state.js";
import { makeBar } from "./tabs.js";
import { makeTrainingBar } from "./training_bar.js";

const WHOLE = 720; // CSS pixels
const HIGH = 900;

/**
 * @param {HTMLElement} root
 * @param {import("./types").Source} source
 * @param {import("./types").Host} host
 * @param {import("./types").Offer[]} offered
 */
export function mount(root, source, host, offered) {
  const views = offered.filter(({ fits }) => !fits || fits(source));
  const state = new State(source, views, host.address);
  state.gone = host.gone;
  root.dataset.theme = host.theme(state.values.theme);
  const colours = new Colours(root);
  // A window that is high enough is filled, and the parts of a view scroll in it; in a low one the header is a line.
  const fit = () => {
    const { bare, view } = state.values;
    const isHome = view === state.home;
    root.classList.toggle("at-door", isHome);
    root.classList.toggle("bare", bare);
    root.classList.toggle("whole", !isHome && (bare || host.height() >= WHOLE));
    root.classList.toggle("low", !isHome && host.height() < HIGH);
  };
  fit();
  host.resized(fit);
  const panel = make("div", { class: "shown", id: "regard-view", role: views.length > 1 ? "tabpanel" : null });
  const bar = makeBar(source, views, state, panel.id, host);
  const refusal = makeRefusal(source, state);
  const place = make(host.landmark, { class: "place" }, ...[panel, refusal].filter(Boolean));
  // What stays in its place keeps the focus.
  for (const old of [...root.children]) if (old !== host.slot) old.remove();
  root.prepend(makeHeader(source, state, views, host));
  const training = source.runs ? [makeTrainingBar(source, state, colours, host, picture)] : [];
  root.append(bar, ...training, place, makeFooter(state, host, makeSave(picture)), makeOpener(host, source, state));

  const open = new Map(); // name to { view, missed }
  let current = null;
  const show = () => {
    const { name, label } = views.find((each) => each.name === state.values.view);
    if (current) current.view.element.hidden = true;
    if (!open.has(name)) {
      const made = views.find((each) => each.name === name).open({ source, state, colours, link: host.link });
      open.set(name, { view: made, missed: new Set() });
      panel.append(made.element);
      current = open.get(name);
      if (made.start) made.start();
    }
    current = open.get(name);
    current.view.element.hidden = false;
    panel.setAttribute("aria-label", label);
    if (current.missed.size > 0) current.view.changed(current.missed);
    current.missed = new Set();
  };
  const tell = (names) => {
    for (const each of open.values()) {
      if (each === current) each.view.changed(names);
      else names.forEach((name) => each.missed.add(name));
    }
  };
  const look = () => {
    root.dataset.theme = host.theme(state.values.theme);
    colours.forget();
    tell(new Set(["look"]));
  };

  state.listen((changed) => {
    if (changed.has("theme")) look();
    if (changed.has("bare") || changed.has("view")) fit();
    if (changed.has("view")) show();
    // Which view is on is nothing to a view: it is shown, or it is not told.
    const names = new Set([...changed].filter((name) => name !== "view"));
    if (names.size > 0) tell(names);
  });
  source.listen(() => tell(new Set(["rows"])));
  host.keys.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !root.querySelector("dialog[open]")) state.letGo();
  });
  host.surroundings(look);
  // On paper there is no scrolling and no dark: the whole text is drawn, black on white.
  const print = (on) => {
    const draw = current.view.print?.(on);
    root.classList.toggle("printing", on);
    colours.forget();
    if (draw) draw();
  };
  host.printing(print);
  // A view that draws no picture of itself is saved as it is printed.
  async function picture() {
    if (current.view.picture) return current.view.picture();
    const { name, label } = views.find((each) => each.name === state.values.view);
    print(true);
    const sheet = sheetOf(
      current.view.element,
      { title: `${source.facts.model}: ${label.toLowerCase()}`, name },
      colours,
    );
    print(false);
    return sheet;
  }
  show();
  return { state };
}
