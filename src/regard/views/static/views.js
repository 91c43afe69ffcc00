// The views, in the order of their tabs, and how to add one.
//
// **Adding a view** is adding a folder with a view.js, a line here or in usual.js, and, for its style, one in style.css. The view is
//
//   export const VIEW = { name, label, fields, guide, help, fits, open };
//
//   name      its word in the address ("view=heads"); label: what its tab says
//   fields    what it keeps in the state and in the address beside the shared fields (see state.js)
//   help      [[what to do, what it does], ...] for the help dialog
//   about     (source) => the paragraphs above it, where they are its own
//   guide     one plain sentence on what is to be seen, or (source, values) => such a sentence
//   home      whether it is the front door: what an address without a word opens, and no tab leads to
//   fits      (source) => whether there is something for it to show; without it, always
//   open      called once, when the view is first shown, with page = { source, state, colours, link }; returns
//               element           what to show; the tab bar hides it while another view is on
//               changed(names)    the state changed (a Set of names of fields), or the row source has new rows
//                                 ("rows" is in it), or the size or the theme of the page ("look" is in it).
//                                 Not called while the view is hidden: the names are gathered for its return.
//               start()           the element is in the page, and can be measured; optional
//               picture()         what is saved, as a sheet of shapes (base/save.js) or a promise of it; without it, the
//                                 view as it is printed
//               print(on)         before (true) and after (false) printing; returns a function that draws for
//                                 the paper, or again for the screen, once the style for it is on; optional
//
// What a view may use: `make` and the other words of dom.js, the state (state.js), colours (colours.js), link (host.js), units
// (units.js: words or pieces), and of the model only the row source (source.js).

import { VIEW as DIFFERENCE } from "./difference/view.js";
import { VIEW as MOVEMENT } from "./movement/view.js";
import { VIEW as SENSES } from "./senses/view.js";
import { VIEW as TRAINING } from "./training/view.js";
import { USUAL } from "./usual.js";
import { VIEW as WRITING } from "./writing/view.js";

// A page opens with the first that fits it.
/** @type {import("./base/types").Offer[]} */
export const VIEWS = [WRITING, TRAINING, MOVEMENT, DIFFERENCE, SENSES, ...USUAL];
