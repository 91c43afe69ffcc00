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
//   gone           aborted when another page takes the place of this one; undefined where none ever does
//   slot           an element of the root that stays, between the header and the rest; undefined for none

// The page of a file. A live one begins anew with every sentence: `gone` then takes away what the one before listens to.
/** @returns {import("./types").Host} */
export function pageHost(gone) {
  const on = (target, type, listener) => target.addEventListener(type, listener, { signal: gone });
  let written = null;
  return {
    // The state's text in the address bar.
    address: {
      read: () => location.hash,
      write(text, step = false) {
        written = text;
        try {
          if (step) history.pushState(null, "", text);
          else history.replaceState(null, "", text);
        } catch {
          // A page inside a sandboxed frame may not touch its address; the view works without.
        }
      },
      listen: (listener) => on(window, "hashchange", () => location.hash !== written && listener()),
    },
    addressed:
      "The address of this page keeps what you see; where the page is a file, send the file with it. With #bare in it, a frame on another page shows the view alone.",
    keys: { addEventListener: (type, listener) => on(document, type, listener) },
    theme: (chosen) => chosen,
    surroundings: (listener) => on(matchMedia("(prefers-color-scheme: dark)"), "change", listener),
    landmark: "main",
    title: (text) => (document.title = text),
    printing(print) {
      on(window, "beforeprint", () => print(true));
      on(window, "afterprint", () => print(false));
    },
    height: () => window.innerHeight,
    resized: (listener) => on(window, "resize", listener),
    link: () => ({
      address: location.href,
      said:
        location.protocol === "file:"
          ? "It leads to this file on this computer: others need the file too, or a place on the web where it lies."
          : "It opens the page as it is now.",
    }),
    restart: () => location.reload(),
    gone,
  };
}
