// What stands above every view: the texts, the model, what the numbers are; the theme and the help.

import { formatDifference, make, readable } from "./dom.js";
import { makeHeld } from "./held.js";
import { quantities } from "./measures.js";
import { THEMES } from "./state.js";

const LONG = 240; // characters
const HELP = [
  ["← → on the tabs", "another view"],
  ["Escape", "lets go of what is pinned; closes a menu"],
  ["?", "this help"],
];
export const KIND_NAMES = { encoder: "Encoder", decoder: "Decoder", cross: "Decoder → encoder" };

function counted(count, one) {
  return `${count} ${one}${count === 1 ? "" : "s"}`;
}

// The texts as [badge, text]: of a pair A and B, of two stacks what each reads.
function textsOf({ encoder, decoder }) {
  const side = encoder || decoder;
  const plain = ({ text, tokens }) => (text === null ? `${counted(tokens.length, "token id")}, without a text` : text);
  const texts =
    side.pair === null
      ? [["", plain(side)]]
      : [
          ["A", plain(side)],
          ["B", side.pair],
        ];
  if (!encoder || !decoder) return texts;
  const named = texts.map(([badge, text]) => [badge || "Encoder reads", text]);
  return [
    ...named,
    ["Decoder reads", decoder.text === "" || decoder.text === null ? "only its start token" : decoder.text],
  ];
}

export function makeHeader(source, state, views, host) {
  const { facts } = source;
  const theme = make("button", { type: "button", class: "button theme" });
  const showTheme = () => (theme.textContent = `Theme: ${state.values.theme}`);
  theme.addEventListener("click", () =>
    state.set({ theme: THEMES[(THEMES.indexOf(state.values.theme) + 1) % THEMES.length] }),
  );
  state.listen((changed) => changed.has("theme") && showTheme());
  showTheme();
  const dialog = makeHelp(views, state, host.addressed);
  const ask = make("button", { type: "button", class: "button", "aria-label": "Help", "aria-haspopup": "dialog" }, "?");
  ask.addEventListener("click", dialog.show);
  host.keys.addEventListener("keydown", (event) => {
    const typing = event.target.matches?.("input[type=text], textarea");
    if (event.key === "?" && !dialog.element.open && !typing) dialog.show();
  });
  const { movement, compared } = facts;
  const numbered = (names) => names.map((name, i) => [String(i + 1), name]);
  const texts = movement
    ? numbered(movement.texts)
    : compared && compared.between === "texts"
      ? numbered(compared.names)
      : textsOf(facts.sides);
  host.title(`${readable(texts[0][1]).slice(0, 60)} · regard`);
  const long = texts.reduce((sum, [, text]) => sum + text.length, 0) > LONG;
  const sentence = make("h1", { class: long ? "sentence long" : "sentence", tabindex: long ? "0" : null });
  for (const [badge, text] of texts) {
    const words = make("bdi", { dir: "auto" }, text);
    sentence.append(badge ? make("span", { class: "part" }, make("span", { class: "badge" }, badge), words) : words);
  }
  const models =
    compared && compared.between === "models" ? numbered(compared.names).map((each) => each.join(" ")) : [facts.model];
  const sizes = make("p", { class: "facts" }, ...models.map((model) => make("span", { class: "model" }, model)));
  for (const kind of source.kinds) sizes.append(make("span", {}, sizeOf(source, kind)));
  const share = facts.every > 1 ? `, in a sample of one query in ${facts.every}` : "";
  const differs = source.kinds.every((kind) => quantities(source, kind)[0] === "difference");
  const origin = differs
    ? "are subtracted here, the second less the first; largest difference from Python"
    : source.kinds.every((kind) => source.computed(kind))
      ? "computed here from q and k; largest difference from Python"
      : "as they were given; largest difference from them";
  const honest = make(
    "p",
    { class: "honest" },
    make(
      "span",
      { class: "difference" },
      facts.kernel
        ? "Python works every number out when you look at it."
        : `Weights ${origin} ${formatDifference(facts.difference)}${share}.`,
    ),
    " ",
    make("span", { class: "caution" }, "Attention is not explanation (Jain and Wallace 2019, arXiv 1902.10186)."),
  );
  const held = makeHeld(source, state);
  return make(
    "header",
    { class: "header" },
    make(
      "div",
      { class: "bar" },
      make("span", { class: "brand" }, "regard"),
      make("span", { class: "buttons" }, theme, ask),
    ),
    sentence,
    sizes,
    honest,
    ...(held ? [held] : []),
    dialog.element,
  );
}

function sizeOf(source, kind) {
  const layers = source.layers(kind);
  const heads = layers.map((layer) => source.heads(kind, layer));
  const [least, most] = [Math.min(...heads), Math.max(...heads)];
  const each = least === most ? counted(most, "head") : `${least} to ${most} heads`;
  const sizes = `${counted(layers.length, "layer")} × ${each}`;
  // Of two texts that are compared, the tokens that both have.
  const count = (side) => source.tokens(kind, side).filter(({ sink, only }) => !sink && only === undefined).length;
  const [queries, keys] = [count("query"), count("key")];
  const both = source.tokens(kind, "query").some(({ only }) => only !== undefined) ? " in both" : "";
  const tokens = (kind === "cross" ? `${queries} × ${counted(keys, "token")}` : counted(queries, "token")) + both;
  return source.kinds.length === 1 ? `${sizes}, ${tokens}` : `${KIND_NAMES[kind]}: ${sizes}, ${tokens}`;
}

// What the view on show can do, and what every view can.
function makeHelp(views, state, addressed) {
  const list = make("dl", { class: "shortcuts" });
  const title = make("h2", { tabindex: "-1", autofocus: true }, "Reading this page");
  const close = make("button", { type: "button", class: "button" }, "Close");
  const element = make(
    "dialog",
    { class: "help", "aria-label": "Help" },
    title,
    make(
      "p",
      {},
      "Each query (left) divides a weight of 1 among the keys (right). A thicker line is a larger weight. Layers and heads count from 0.",
    ),
    list,
    make("p", {}, addressed),
    close,
  );
  close.addEventListener("click", () => element.close());
  const show = () => {
    const { help = [] } = views.find(({ name }) => name === state.values.view);
    list.replaceChildren(
      ...[...help, ...HELP].flatMap(([key, meaning]) => [make("dt", {}, key), make("dd", {}, meaning)]),
    );
    element.showModal();
  };
  return { element, show };
}
