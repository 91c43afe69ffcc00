// The bar between the header and the view: which view, and which attention where a model has several.

import { make, readable } from "./dom.js";
import { KIND_NAMES } from "./header.js";
import { runsOf } from "./source.js";

// Tabs as people know them from the keyboard: one stop for Tab, arrows move and choose.
function makeTabs(views, state, panelId) {
  const list = make("div", { class: "tabs", role: "tablist", "aria-label": "Views" });
  const tabs = views.map(({ name, label }) =>
    make("button", { type: "button", role: "tab", class: "tab", "data-view": name, "aria-controls": panelId }, label),
  );
  const show = () => {
    for (const tab of tabs) {
      const on = tab.dataset.view === state.values.view;
      tab.setAttribute("aria-selected", String(on));
      tab.tabIndex = on ? 0 : -1;
    }
  };
  list.append(...tabs);
  list.addEventListener("click", (event) => {
    const tab = event.target.closest("[data-view]");
    if (tab) state.set({ view: tab.dataset.view, hover: null });
  });
  list.addEventListener("keydown", (event) => {
    const at = tabs.indexOf(event.target);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (at < 0 || to === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const tab = tabs[(to + tabs.length) % tabs.length];
    tab.focus();
    state.set({ view: tab.dataset.view, hover: null });
  });
  state.listen((changed) => changed.has("view") && show());
  show();
  return list;
}

function makeKinds(source, state) {
  const group = make("fieldset", { class: "filter kinds" }, make("legend", { class: "sr-only" }, "Which attention"));
  for (const kind of source.kinds) {
    const radio = make("input", { type: "radio", name: "regard-kind", value: kind });
    radio.addEventListener("change", () => state.set({ kind, pin: null, hover: null }));
    const update = () => (radio.checked = state.values.kind === kind);
    state.listen((changed) => changed.has("kind") && update());
    update();
    group.append(make("label", {}, radio, make("span", {}, KIND_NAMES[kind])));
  }
  return group;
}

// Of several runs, whose attention is shown. Another run has other tokens: the page starts anew with it.
function makeRuns(source, state, host) {
  const runs = runsOf(source.facts);
  const group = make("fieldset", { class: "filter runs" }, make("legend", { class: "sr-only" }, "Whose attention"));
  runs.forEach(({ label, title }, i) => {
    const radio = make("input", { type: "radio", name: "regard-run", value: String(i) });
    radio.checked = i === state.values.run;
    radio.addEventListener("change", () => {
      state.set({ run: i, pin: null, hover: null, also: [] });
    });
    group.append(make("label", { title: readable(title) }, radio, make("span", {}, label)));
  });
  const update = () => (group.hidden = ["movement", "difference"].includes(state.values.view));
  state.listen((changed) => {
    if (changed.has("view")) update();
    if (changed.has("run")) setTimeout(() => host.restart()); // once the address says it
  });
  update();
  return group;
}

// saves: the buttons that save what is shown.
export function makeBar(source, views, state, panelId, host, saves) {
  const parts = [];
  if (views.length > 1) parts.push(makeTabs(views, state, panelId));
  if (runsOf(source.facts).length > 0) parts.push(makeRuns(source, state, host));
  if (source.kinds.length > 1) parts.push(makeKinds(source, state));
  parts.push(make("span", { class: "saves" }, ...saves));
  return make("nav", { class: "choose", "aria-label": "What is shown" }, ...parts);
}
