// Puts the parts together inside `root`. `attention` is all that it knows of the page it is on.

function markWords(tokens) {
  tokens.forEach((token, i) => {
    const above = tokens[i - 1];
    token.continues = Boolean(above) && token.word !== null && above.word === token.word && above.sequence === token.sequence;
    token.continued = false;
    if (token.continues) above.continued = true;
  });
}

function mount(root, attention) {
  const { facts } = attention;
  markWords(facts.tokens);
  document.title = `${readable(facts.text).slice(0, 60)} · regard`;
  const state = new State(facts);
  root.dataset.theme = state.values.theme;

  const grid = new HeadGrid(attention, state);
  const headView = new HeadView(attention, state);
  const panel = new Panel(attention, state, headView);
  const where = make("h2", { class: "where" });
  const showWhere = () => (where.textContent = `Layer ${state.values.layer}, head ${state.values.head}`);
  showWhere();

  root.append(
    makeHeader(facts, state),
    make("main", { class: "main" },
      make("section", { class: "picker", "aria-label": "Layers and heads" },
        make("p", { class: "axes" }, make("span", {}, "Layer ↓"), make("span", {}, "Head →")),
        grid.element,
        make("p", { class: "note" }, "Each thumbnail is scaled to its own largest weight."),
      ),
      make("section", { class: "view", "aria-label": "Attention of one head" },
        make("div", { class: "view-top" }, where, makeControls(facts, state)),
        make("div", { class: "sides", "aria-hidden": "true" }, make("span", { class: "side-query" }, "Query, looking"), make("span", { class: "side-key" }, "Key, looked at")),
        headView.element,
      ),
      panel.element,
    ),
  );

  state.listen((changed) => {
    const has = (...names) => names.some((name) => changed.has(name));
    if (has("theme")) {
      root.dataset.theme = state.values.theme;
      headView.themeChanged();
      grid.repaint();
    }
    if (has("specials", "filter")) {
      headView.layout();
      grid.restart();
    }
    if (has("layer", "head")) {
      headView.headChanged();
      grid.mark();
      showWhere();
    }
    headView.request();
    panel.request();
  });

  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
    state.set({ pin: null, hover: null });
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    headView.themeChanged();
    grid.repaint();
  });
  preparePrint(root, headView, grid);

  headView.layout();
  headView.draw();
  panel.draw();
  const { pin } = state.values;
  if (pin) headView.reveal(pin);
  return { state, headView, panel, grid };
}

// On paper there is no scrolling and no dark: the whole text is drawn, black on white.
function preparePrint(root, headView, grid) {
  const redraw = () => {
    headView.themeChanged();
    headView.draw();
    grid.repaint();
  };
  const view = headView.element.parentElement;
  let place = 0;
  window.addEventListener("beforeprint", () => {
    place = headView.stage.scrollTop;
    root.classList.add("printing");
    // In one piece, so that tokens and lines stay side by side from page to page.
    Object.assign(view.style, { height: `${view.offsetHeight}px`, contain: "size" });
    redraw();
  });
  window.addEventListener("afterprint", () => {
    root.classList.remove("printing");
    Object.assign(view.style, { height: "", contain: "" });
    headView.stage.scrollTop = place;
    redraw();
  });
}
