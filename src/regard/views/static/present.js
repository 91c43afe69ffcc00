// Shows a source in the page, and offers its numbers to whoever wants to check them.

import { mount } from "./base/app.js";
import { pageHost } from "./base/host.js";
import { fileSource } from "./base/source.js";

// The page of a file, with what its data blocks hold; found: told of the source before anything is shown.
export function presentFile(views, found = (_source) => {}) {
  const source = fileSource((name) => document.getElementById(`regard-${name}`).textContent);
  found(source);
  present(source, pageHost(), views);
  performance.mark("regard-interactive");
}

export function present(source, host, views) {
  const app = mount(document.getElementById("regard"), source, host, views);
  // Not with :has(): every text that changes then costs the browser a walk through the whole page.
  app.state.follow(["theme"], () => (document.body.dataset.theme = app.state.values.theme));
  window.regard = {
    facts: source.facts,
    source,
    // Float64Array over the keys; over the queries for a column.
    weightsRow: (layer, head, query, kind = app.state.values.kind) => source.row(kind, layer, head, query),
    weightsColumn: (layer, head, key, kind = app.state.values.kind) => source.column(kind, layer, head, key),
    state: () => ({ ...app.state.values }),
    interactiveMs: performance.now(),
    ready: true,
  };
  return app;
}
