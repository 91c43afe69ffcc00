// The widget: one mount of the page in a shadow root, so that no style gets in or out, with the kernel as its row
// source and a trait as its address.

let opened = 0;

function render({ model, el }) {
  opened += 1;
  const client = `${Date.now()}-${opened}-${Math.random()}`; // several views of one widget share its messages
  const { runs } = JSON.parse(model.get("facts"));
  const stops = [];
  const listenTo = (name, listener) => {
    model.on(name, listener);
    stops.push(() => model.off(name, listener));
  };

  // A notebook has keys of its own (B makes a cell): those that are pressed in here are not for it.
  const outer = shared.make("div", { class: "regard-widget", "data-lm-suppress-shortcuts": "true" });
  for (const name of ["keydown", "keypress", "keyup"]) outer.addEventListener(name, (event) => event.stopPropagation());
  el.append(outer);
  const shadow = outer.attachShadow({ mode: "open" });
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(STYLE);
  shadow.adoptedStyleSheets = [sheet];

  let source = null;
  const start = () => {
    if (source) source.close();
    const room = shared.make("div", { class: "regard-room" });
    const root = shared.make("div", { class: "regard" });
    const note = shared.make("p", { class: "kernel-note", role: "status" });
    room.append(root, note);
    shadow.replaceChildren(room);
    const wanted = Number(new URLSearchParams(model.get("address").replace(/^#/, "")).get("run") || 0);
    const run = runs[wanted] ? wanted : 0;
    const channel = {
      send: (message) => model.send({ client, ...message }),
      listen: (listener) => listenTo("msg:custom", (message, buffers) => message.client === client && listener(message, buffers)),
    };
    const facts = { ...runs[run].facts, movement: runs[0].facts.movement };
    source = new shared.KernelSource({ facts, blocks: runs[run].blocks }, run, channel, (text) => {
      note.textContent = text;
      note.hidden = text === "";
    });
    note.hidden = true;
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
    const app = shared.mount(root, source, {
      address,
      addressed: "Python can read and set what is chosen here: widget = trace.widget(), then widget.address.",
      keys: room,
      theme: (chosen) => (chosen === "auto" ? (shared.isDark(el) ? "dark" : "light") : chosen),
      surroundings: (listener) => stops.push(shared.watchTheme(listener)),
      landmark: "div", // the notebook has a main of its own
      title: () => {},
      printing: () => {},
      restart: () => {
        stops.splice(0).forEach((stop) => stop());
        start();
      },
    });
    outer.regard = { source, state: () => ({ ...app.state.values }) };
  };
  start();
  return () => {
    source.close();
    stops.forEach((stop) => stop());
    outer.remove();
  };
}

export default { render };
