import { make, onClicks } from "../base/dom.js";
import { finePercent } from "../base/said.js";

const LISTED = 12; // parts of their own: the largest, and the chosen one
const NAMED = 0.09; // of the whole: parts that are wide enough for their word

// A row of weights as one bar of 100 %, a part for each key, in the order of the text. By keyboard and in words there is the list of keys.
export function makeShares(chosen, choose) {
  const { weights } = chosen.steps;
  const bySize = Array.from(weights, (_, key) => key).sort((a, b) => weights[b] - weights[a]);
  const listed = new Set([...bySize.slice(0, LISTED), chosen.key].filter((key) => weights[key] > 0));
  const others = bySize.filter((key) => weights[key] > 0 && !listed.has(key));
  const bar = make("div", { class: "shares", "aria-hidden": "true" });
  const append = (part, share) => {
    part.style.flexGrow = String(share);
    bar.append(part);
  };
  for (const key of [...listed].sort((a, b) => a - b)) {
    const name = chosen.nameOf("key", key);
    const part = make(
      "span",
      {
        class: key === chosen.key ? "share on" : "share",
        title: `${name}, token ${key}, ${finePercent(weights[key])}`,
        "data-key": String(key),
      },
      ...(weights[key] < NAMED
        ? []
        : [make("bdi", { dir: "auto" }, name), make("span", {}, `${Math.round(100 * weights[key])} %`)]),
    );
    append(part, weights[key]);
  }
  const rest = others.reduce((sum, key) => sum + weights[key], 0);
  if (rest > 0)
    append(make("span", { class: "share", title: `${others.length} others together ${finePercent(rest)}` }), rest);
  onClicks(bar, "[data-key]", ({ dataset }) => choose(Number(dataset.key)));
  return bar;
}
