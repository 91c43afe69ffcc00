// The page: reads the data blocks, starts the view, and offers the numbers to whoever wants to check them.

const readBlock = (name) => document.getElementById(`regard-${name}`).textContent;
const attention = new Attention(JSON.parse(readBlock("facts")), readBlock);
const app = mount(document.getElementById("regard"), attention);

performance.mark("regard-interactive");
window.regard = {
  facts: attention.facts,
  // Float64Array over the keys; over the queries for a column.
  weightsRow: (layer, head, query) => attention.row(layer, head, query),
  weightsColumn: (layer, head, key) => attention.column(layer, head, key),
  state: () => ({ ...app.state.values }),
  interactiveMs: performance.now(),
  ready: true,
};
