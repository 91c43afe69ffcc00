// The bar between the header and the view: which view, and which attention where a model has several.

import { makeChoice, makeSelect } from "./controls.js";
import { make, onClicks, readable } from "./dom.js";
import { KIND_NAMES } from "./header.js";
import { ACROSS, onKeys, placeIn } from "./keys.js";
import { runsOf } from "./source.js";

// Tabs as people know them from the keyboard: one stop for Tab, arrows move and choose.
function makeTabs(views, state, panelId) {
  const list = make("div", { class: "tabs", role: "tablist", "aria-label": "Views" });
  const tabs = views.map(({ name, label }) =>
    make("button", { type: "button", role: "tab", class: "tab", "data-view": name, "aria-controls": panelId }, label),
  );
  list.append(...tabs);
  onClicks(list, "[data-view]", ({ dataset }) => state.set({ view: dataset.view, hover: null }));
  onKeys(list, (key, { target }) => {
    const at = tabs.indexOf(target);
    const to = at < 0 ? undefined : placeIn(tabs.length, at, key, ACROSS, true);
    if (to === undefined) return false;
    tabs[to].focus();
    state.set({ view: tabs[to].dataset.view, hover: null });
    return true;
  });
  state.follow(["view"], () => {
    for (const tab of tabs) {
      const on = tab.dataset.view === state.values.view;
      tab.setAttribute("aria-selected", String(on));
      tab.tabIndex = on ? 0 : -1;
    }
  });
  return list;
}

function makeKinds(source, state) {
  const { element, update } = makeChoice({
    name: "kind",
    legend: "Which attention",
    options: source.kinds.map((kind) => [kind, KIND_NAMES[kind]]),
    value: () => state.values.kind,
    choose: (kind) => state.set({ ...state.startOf(kind), hover: null }),
  });
  state.listen((changed) => changed.has("kind") && update());
  return element;
}

const SIDE_BY_SIDE = 5;

// Of several runs, whose attention is shown, as buttons or, of many, as a list. Another run has other tokens: the page starts anew with it.
function makeRuns(source, state, host) {
  const runs = runsOf(source.facts);
  const choose = (run) => state.set({ run: Number(run), pin: null, hover: null, also: [] });
  const list = makeSelect("Whose attention", choose, "");
  const buttons = () =>
    makeChoice({
      name: "run",
      legend: "Whose attention",
      options: runs.map(({ label, title }, i) => [String(i), label, readable(title)]),
      value: () => String(state.values.run),
      choose,
    });
  list.update("", () => runs.map(({ label, title }, i) => [i, `${label}: ${readable(title)}`]), state.values.run);
  const { element } = runs.length > SIDE_BY_SIDE ? list : buttons();
  const update = () => (element.hidden = ["movement", "difference", "senses"].includes(state.values.view));
  state.listen((changed) => {
    if (changed.has("view")) update();
    if (changed.has("run")) setTimeout(() => host.restart()); // once the address says it
  });
  update();
  return element;
}

// One sentence on what is on show, for whoever sees it for the first time.
function makeGuide(source, views, state) {
  const line = make("p", { class: "guide" });
  state.follow(["view", "kind", "what", "form"], () => {
    const { guide = "" } = views.find(({ name }) => name === state.values.view);
    line.textContent = typeof guide === "function" ? guide(source, state.values) : guide;
    line.hidden = line.textContent === "";
  });
  return line;
}

export function makeBar(source, views, state, panelId, host) {
  const parts = [];
  const tabbed = views.filter(({ home }) => !home);
  if (tabbed.length > 1) parts.push(makeTabs(tabbed, state, panelId));
  if (runsOf(source.facts).length > 0) parts.push(makeRuns(source, state, host));
  if (source.kinds.length > 1) parts.push(makeKinds(source, state));
  return make("nav", { class: "choose", "aria-label": "What is shown" }, ...parts, makeGuide(source, views, state));
}
