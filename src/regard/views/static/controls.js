// The header, the switches and the help.

function makeHeader(facts, state) {
  const theme = make("button", { type: "button", class: "button theme" });
  const showTheme = () => {
    theme.textContent = { auto: "Theme: auto", light: "Theme: light", dark: "Theme: dark" }[state.values.theme];
  };
  theme.addEventListener("click", () => {
    state.set({ theme: THEMES[(THEMES.indexOf(state.values.theme) + 1) % THEMES.length] });
  });
  state.listen((changed) => changed.has("theme") && showTheme());
  showTheme();
  const help = makeHelp();
  const ask = make("button", { type: "button", class: "button", "aria-label": "Help", "aria-haspopup": "dialog" }, "?");
  ask.addEventListener("click", () => help.showModal());
  document.addEventListener("keydown", (event) => {
    if (event.key === "?" && !help.open) help.showModal();
  });
  const long = facts.text.length + (facts.pair || "").length > 240;
  const sentence = make("h1", { class: long ? "sentence long" : "sentence", tabindex: long ? "0" : null });
  if (facts.pair === null) sentence.append(make("bdi", { dir: "auto" }, facts.text));
  else {
    for (const [name, text] of [["A", facts.text], ["B", facts.pair]]) {
      sentence.append(make("span", { class: "part" }, make("span", { class: "badge" }, name), make("bdi", { dir: "auto" }, text)));
    }
  }
  const facts_ = make("p", { class: "facts" },
    make("span", { class: "model" }, facts.model),
    make("span", {}, `${facts.layers} ${facts.layers === 1 ? "layer" : "layers"} × ${facts.heads} ${facts.heads === 1 ? "head" : "heads"}`),
    make("span", {}, `${facts.size} ${facts.size === 1 ? "token" : "tokens"}`),
  );
  const honest = make("p", { class: "honest" },
    make("span", { class: "difference" }, `Weights computed here from q and k; largest difference from Python ${formatDifference(facts.difference)}.`),
    " ",
    make("span", { class: "caution" }, "Attention shows where a head looks. On its own it does not explain what the model does."),
  );
  return make("header", { class: "header" },
    make("div", { class: "bar" }, make("span", { class: "brand" }, "regard"), make("span", { class: "buttons" }, theme, ask)),
    sentence, facts_, honest, help,
  );
}

function makeHelp() {
  const keys = [
    ["Point at a token", "shows its row (left) or column (right), in numbers"],
    ["Click, Enter or Space", "pins a token; then point at the other side, or tap it, to read one weight"],
    ["↑ ↓", "next token; ← → changes side"],
    ["Arrow keys in the grid", "choose layer and head"],
    ["Escape", "lets go of the pinned token"],
    ["?", "this help"],
  ];
  const list = make("dl", { class: "shortcuts" });
  for (const [key, meaning] of keys) list.append(make("dt", {}, key), make("dd", {}, meaning));
  const close = make("button", { type: "button", class: "button" }, "Close");
  const dialog = make("dialog", { class: "help", "aria-label": "Help" },
    make("h2", {}, "Reading this page"),
    make("p", {}, "Each query (left) divides a weight of 1 among the keys (right). A thicker line is a larger weight. Layers and heads count from 0."),
    make("p", {}, "A thumbnail has a row for each query and a column for each key, and is scaled to its own largest weight. Long texts are sampled in thumbnails only."),
    list,
    make("p", {}, "The address of this page keeps what you chose: copy it to show someone else the same view."),
    close,
  );
  close.addEventListener("click", () => dialog.close());
  return dialog;
}

function makeControls(facts, state) {
  const controls = make("div", { class: "controls" });
  if (facts.tokens.some((token) => token.special)) {
    const box = make("input", { type: "checkbox", id: "regard-specials" });
    const update = () => (box.checked = state.values.specials);
    box.addEventListener("change", () => state.set({ specials: box.checked }));
    state.listen(update);
    update();
    controls.append(make("label", { class: "switch" }, box, make("span", {}, "Special tokens")));
  }
  if (facts.pair !== null) {
    const group = make("fieldset", { class: "filter" }, make("legend", { class: "sr-only" }, "Which text looks at which"));
    for (const { name, label } of PAIR_FILTERS) {
      const radio = make("input", { type: "radio", name: "regard-filter", value: name });
      radio.addEventListener("change", () => state.set({ filter: name }));
      const update = () => (radio.checked = state.values.filter === name);
      state.listen(update);
      update();
      group.append(make("label", {}, radio, make("span", {}, label)));
    }
    controls.append(group);
  }
  if (controls.childElementCount > 0) {
    controls.append(make("span", { class: "note" }, "Hiding only hides: no weight is renormalised."));
  }
  return controls;
}
