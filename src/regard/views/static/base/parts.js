// How the page is put together, and how to add a view.
//
// Every other file here holds calls of `part` and `view`, and nothing else; none imports another. Python joins
// them (views/_assets.py says in which order), and so the same files work from disk under a strict policy, in a
// notebook and behind a server.
//
//   part((shared) => { const { make } = shared; ...; return { Thing }; });
//
// is handed all that the parts before it returned, and adds to it.
//
//   view((shared) => ({ name, label, fields, help, open(page) }));
//
// is a tab of the page:
//   name      its word in the address ("view=heads"); label: what its tab says
//   fields    what it keeps in the state and in the address beside the shared fields (see state.js)
//   help      [[what to do, what it does], ...] for the help dialog
//   fits      (source) => whether there is something for it to show; without it, always
//   open      called once, when the view is first shown, with page = { source, state, colours }; returns
//               element           what to show; the tab bar hides it while another view is on
//               changed(names)    the state changed (a Set of names of fields), or the row source has new rows
//                                 ("rows" is in it), or the size or the theme of the page ("look" is in it).
//                                 Not called while the view is hidden: the names are gathered for its return.
//               start()           the element is in the page, and can be measured; optional
//               print(on)         before (true) and after (false) printing; returns a function that draws for
//                                 the paper, or again for the screen, once the style for it is on; optional
//
// What a view may use: `make` and the other words of dom.js, the state (state.js), colours (colours.js), units
// (units.js: words or pieces), and of the model only the row source (source.js).

const shared = {};
const views = [];
const handed = new Proxy(shared, {
  get(parts, name) {
    if (!(name in parts)) throw new Error(`no part before this one returns ${String(name)}`);
    return parts[name];
  },
});

function part(define) {
  Object.assign(shared, define(handed));
}

shared.offered = (source) => views.filter(({ fits }) => !fits || fits(source));

function view(define) {
  views.push(define(handed));
}
