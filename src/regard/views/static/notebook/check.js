// The causal check: the run without one head, worked out in the kernel, beside the run with it.

import { makeButton } from "../base/controls.js";
import { make, makeNote, readable } from "../base/dom.js";
import { makeHeadPicks } from "../base/held.js";
import { arrived } from "../base/source.js";

const HELP = [
  ["Causal check", "sets one head's output to zero, runs the model again, and shows how far each token's output moves"],
];

const figure = (value) => (value !== 0 && Math.abs(value) < 0.001 ? value.toExponential(2) : value.toFixed(4));

function open({ source, state }) {
  const results = new Map(); // "kind.layer.head" to what came
  const nameOf = ({ kind, layer, head }) => `${kind}.${layer}.${head}`;
  const picks = makeHeadPicks({ source, state });
  const button = make("button", { type: "button", class: "button" }, "Run without this head");
  const back = makeButton("Show in the head view", () => state.set({ view: "heads" }));
  const said = make("p", { class: "check-said", role: "status" });
  const body = make("div", {});
  const note = makeNote(
    "Moved: |h′ − h| / |h|, where h is the token’s last hidden state with the head and h′ without it. One head at zero is a coarse question: other heads may do the same work.",
  );
  const element = make(
    "div",
    { class: "check" },
    make(
      "p",
      {},
      "A weight says where a head looks. Whether the model needs it is another question: set the head’s output to zero, run the model again, and see what changes.",
    ),
    make("div", { class: "check-top" }, picks.layer, picks.head, button, back),
    said,
    body,
    note,
  );

  const running = new Set();
  button.addEventListener("click", async () => {
    const { kind, layer, head } = state.values;
    const name = nameOf(state.values);
    running.add(name);
    draw();
    results.set(name, await arrived(source, () => source.check(kind, { layer, head })));
    running.delete(name);
    draw();
  });

  function draw() {
    const { layer, head } = state.values;
    picks.update();
    const name = nameOf(state.values);
    const found = results.get(name);
    button.disabled = running.has(name);
    said.className = found?.error ? "check-said error" : "check-said";
    if (running.has(name)) said.textContent = "The model is running without this head.";
    else if (!found) said.textContent = `Layer ${layer}, head ${head}: not run yet.`;
    else said.textContent = found.error || summary(found, layer, head);
    note.hidden = !found || Boolean(found.error) || running.has(name);
    body.replaceChildren(...(found && !found.error && !running.has(name) ? [tableOf(found)] : []));
  }

  function summary({ tokens, moved, before, after }, layer, head) {
    const most = moved.indexOf(Math.max(...moved));
    const mean = moved.reduce((sum, value) => sum + value, 0) / moved.length;
    const other = before ? before.filter((each, i) => each.token !== after[i].token).length : 0;
    const tops = before ? ` The likeliest token is another one after ${other} of ${tokens.length}.` : "";
    return `Without layer ${layer}, head ${head}, outputs move by ${(100 * mean).toFixed(2)}% of their length on average, most at “${readable(tokens[most])}” (${(100 * moved[most]).toFixed(2)}%).${tops}`;
  }

  function tableOf({ tokens, moved, cosine, before, after }) {
    const largest = Math.max(...moved) || 1;
    const titles = [
      ["Token"],
      ["Moved, as a part of its length", 2],
      ["Cosine"],
      ...(before ? [["Likeliest, with the head"], ["Without it"]] : []),
    ];
    const rows = tokens.map((token, i) => {
      const bar = make("span", { class: "moved-bar", "aria-hidden": "true", "--size": moved[i] / largest });
      const top = ({ token: text, probability }) => [
        make("bdi", { dir: "auto" }, readable(text)),
        ` ${probability.toFixed(4)}`,
      ];
      const tops = before
        ? [
            make("td", {}, ...top(before[i])),
            make("td", { class: before[i].token === after[i].token ? null : "other" }, ...top(after[i])),
          ]
        : [];
      return make(
        "tr",
        {},
        make("th", { scope: "row" }, make("bdi", { dir: "auto" }, readable(token))),
        make("td", { class: "figure-of" }, figure(moved[i])),
        make("td", { class: "moved" }, bar),
        make("td", {}, cosine[i].toFixed(4)),
        ...tops,
      );
    });
    return make(
      "div",
      { class: "check-scroll" },
      make(
        "table",
        { class: "check-table" },
        make("caption", { class: "sr-only" }, "What moves without the head"),
        make(
          "thead",
          {},
          make(
            "tr",
            {},
            ...titles.map(([title, columns = null]) => make("th", { scope: "col", colspan: columns }, title)),
          ),
        ),
        make("tbody", {}, ...rows),
      ),
    );
  }

  const changed = (names) => {
    if (["kind", "layer", "head", "look"].some((name) => names.has(name))) draw();
  };
  return { element, start: draw, changed };
}

export const VIEW = {
  name: "check",
  label: "Causal check",
  fits: (source) => Boolean(source.facts.check),
  help: HELP,
  open,
};
