// All numbers of the calculation as tables; built only while they are open.

import { makeTable, makeTables } from "../base/controls.js";
import { saidOf } from "../base/scorers.js";
import { formatNumber } from "./figures.js";

export class NeuronTables {
  constructor(chosen) {
    this.chosen = chosen;
    const { element, draw } = makeTables("All numbers as tables", () => (chosen.steps ? this.tables() : []));
    element.classList.add("neuron-tables");
    this.element = element;
    this.draw = draw;
  }

  tables() {
    const { chosen } = this;
    const { steps, key, query, layer, head } = chosen;
    const where = `layer ${layer}, head ${head}, query ${query} (${chosen.nameOf("query", query)})`;
    const { v, dim, vDim, products, scaled, capped, bias, allowed, scores, weights, context, sink, scorer } = steps;
    const said = saidOf(scorer);
    const columns = [
      [said.score, products],
      ["Scaled", scaled],
      ["Capped", capped],
      ["Bias", bias],
    ].filter(([, values]) => values);
    const keys = chosen.keys.map((token, j) => {
      const masked = token.sink ? "" : allowed[j] ? "allowed" : "forbidden";
      const score = token.sink ? sink : scores[j];
      const cells = columns.map(([, values]) => (token.sink ? "" : formatNumber(values[j])));
      return [
        String(j),
        chosen.nameOf("key", j),
        ...cells,
        masked,
        score === null ? "" : formatNumber(score),
        formatNumber(weights[j]),
      ];
    });
    const tables = [
      makeTable(
        `Every key: ${where}`,
        ["Position", "Key", ...columns.map(([name]) => name), "Mask", "Score", "Weight"],
        keys,
      ),
    ];
    if (!chosen.isSink()) {
      const terms = chosen.terms();
      const rows = Array.from({ length: dim }, (_, d) => [
        String(d),
        ...chosen.factors(d).map((factor) => formatNumber(factor)),
        formatNumber(terms[d]),
      ]);
      tables.push(
        makeTable(
          `${said.left} and ${said.right} of key ${key} (${chosen.nameOf("key", key)})`,
          ["Dimension", said.left, said.right, `${said.left} × ${said.right}`],
          rows,
        ),
      );
    }
    if (v) {
      const weighted = chosen.weighted();
      const of = weighted ? ["v", "Weight × v"] : [];
      const rows = Array.from({ length: vDim }, (_, d) => [
        String(d),
        ...(weighted ? [formatNumber(v[key * vDim + d]), formatNumber(weighted[d])] : []),
        formatNumber(context[d]),
      ]);
      tables.push(makeTable(`v of key ${key}, and the result of the query`, ["Dimension", ...of, "Result"], rows));
    }
    return tables;
  }
}
