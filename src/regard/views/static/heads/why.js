// "why?" beside a weight: the way to its calculation.

import { make } from "../base/dom.js";

// what: { layer, head, query, key }, all tokens.
// from: the button that has the focus, which then goes to the calculation.
export function askWhy(state, { layer, head, query, key }, from = null) {
  const root = from?.getRootNode();
  state.set({
    view: "neuron",
    layer,
    head,
    pin: { side: "query", index: query },
    key,
    dim: null,
    vdim: null,
    hover: null,
  });
  const list = root?.querySelector(".neuron-list");
  if (list) list.focus();
}

// A button for one weight; update(what, weight, name) says which, and null that there is nothing to ask; name(side, index): of its tokens.
export function makeWhy(state) {
  const element = make("button", { type: "button", class: "why" }, "why?");
  let asked = null;
  element.addEventListener("click", (event) => {
    event.stopPropagation();
    askWhy(state, asked, event.detail === 0 ? element : null);
  });
  const update = (what, weight, name) => {
    asked = what;
    element.hidden = !what;
    if (!what) return;
    element.setAttribute("aria-label", `Why ${name("query", what.query)} looks at ${name("key", what.key)}, ${weight}`);
  };
  return { element, update };
}
