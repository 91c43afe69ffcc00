// Where all this is shown: what is different in a file of its own and in a notebook's cell.
//
//   address        { read, write, listen }: read() and write(text, step) of "#layer=3&head=5", as a step that Back
//                  undoes or in its place; listen(listener) is told that somebody else has changed it
//   addressed      what the help says of it
//   keys           whose keys are meant for the page: an element, or the whole document
//   theme(chosen)  "auto", "light" or "dark" to what the style sheets know
//   surroundings   (listener) => called when the colours around have changed
//   landmark       the element around the views: "main" where the page is ours
//   title(text)    names the window, where it is ours
//   printing       (print) => calls print(true) before and print(false) after printing, where that can be known
//   restart()      begins anew, with what the address says

// The state's text in the address bar.
const bar = {
  read: () => location.hash,
  write(text, step = false) {
    bar.written = text;
    try {
      if (step) history.pushState(null, "", text);
      else history.replaceState(null, "", text);
    } catch {
      // A page inside a sandboxed frame may not touch its address; the view works without.
    }
  },
  listen: (listener) => window.addEventListener("hashchange", () => location.hash !== bar.written && listener()),
};

export const pageHost = {
  address: bar,
  addressed: "The address of this page keeps what you chose: copy it to show someone else the same view.",
  keys: document,
  theme: (chosen) => chosen,
  surroundings: (listener) => matchMedia("(prefers-color-scheme: dark)").addEventListener("change", listener),
  landmark: "main",
  title: (text) => (document.title = text),
  printing(print) {
    window.addEventListener("beforeprint", () => print(true));
    window.addEventListener("afterprint", () => print(false));
  },
  restart: () => location.reload(),
};
