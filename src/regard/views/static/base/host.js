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
//   height()       how many CSS pixels high the room for the page is
//   resized        (listener) => called when it has another size
//   link           () => { address, said }: the address of what is on show and what to know of it; null where there is none
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
  addressed:
    "The address of this page keeps what you chose; 'Copy link' takes it with you. With #bare in it, a frame on another page shows the view alone.",
  keys: document,
  theme: (chosen) => chosen,
  surroundings: (listener) => matchMedia("(prefers-color-scheme: dark)").addEventListener("change", listener),
  landmark: "main",
  title: (text) => (document.title = text),
  printing(print) {
    window.addEventListener("beforeprint", () => print(true));
    window.addEventListener("afterprint", () => print(false));
  },
  height: () => window.innerHeight,
  resized: (listener) => window.addEventListener("resize", listener),
  link: () => ({
    address: location.href,
    said:
      location.protocol === "file:"
        ? "It leads to this file on this computer: others need the file too, or a place on the web where it lies."
        : "It opens the page as it is now.",
  }),
  restart: () => location.reload(),
};
