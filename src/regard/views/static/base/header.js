// What stands around every view: above it the texts, the model, how exact the numbers are and the help.

import { makeButton, makeCopyLink, makeMenu } from "./controls.js";
import { formatDifference, make, readable } from "./dom.js";
import { heldOf, makeHeld } from "./held.js";
import { quantities } from "./measures.js";
import { runsOf } from "./source.js";
import { THEMES } from "./state.js";
import { makeTitle } from "./title.js";
import { notKnown } from "./units.js";

const HELP = [
  ["← → on the tabs", "another view"],
  ["Escape", "lets go of what was chosen; closes a menu"],
  ["?", "this help"],
];
const ABOUT = () => ["Each query divides a weight of 1 among the keys. Layers and heads count from 0."];
export const KIND_NAMES = { encoder: "Encoder", decoder: "Decoder", cross: "Decoder → encoder" };

function counted(count, one) {
  return `${count} ${one}${count === 1 ? "" : "s"}`;
}

// The texts, for makeTitle: of a pair A and B, of two stacks what each reads.
function textsOf(source, run) {
  const { movement, compared, senses, sides, messages } = source.facts;
  const several = movement ? movement.texts : compared?.between === "texts" ? compared.names : null;
  if (several) {
    // Of several runs, only that on show has its tokens here; of two that are compared, run 0 is their difference.
    const shown = movement ? run : run - 1;
    return several.map((text, i) => ({
      badge: String(i + 1),
      text,
      stack: i === shown ? "encoder" : null,
      sequence: 0,
      asked: movement?.words[i],
    }));
  }
  if (senses) {
    const { label, title } = runsOf(source.facts)[run];
    const said = `${senses.word}, ${counted(senses.total, "use")}, ${counted(senses.groups.length, "group")}`;
    return [
      { badge: "Word", text: said, stack: null, sequence: 0 },
      { badge: label, text: title, stack: "encoder", sequence: 0 },
    ];
  }
  if (messages?.length > 0)
    return messages.map(({ role, ...each }) => ({ badge: role, ...each, stack: "decoder", sequence: 0 }));
  const { encoder, decoder } = sides;
  const stack = encoder ? "encoder" : "decoder";
  const side = encoder || decoder;
  const plain = ({ text, tokens }) => (text === null ? `${counted(tokens.length, "token id")}, without a text` : text);
  const texts =
    side.pair === null
      ? [{ badge: "", text: plain(side), stack, sequence: 0 }]
      : [plain(side), side.pair].map((text, sequence) => ({ badge: "AB"[sequence], text, stack, sequence }));
  if (!encoder || !decoder) return texts;
  const read = decoder.text === "" || decoder.text === null ? null : decoder.text;
  return [
    ...texts.map((each) => ({ ...each, badge: each.badge || "Encoder reads" })),
    { badge: "Decoder reads", text: read ?? "only its start token", stack: read && "decoder", sequence: 0 },
  ];
}

// How exact the numbers are.
function exactSaid(source) {
  const { facts } = source;
  const share = facts.every > 1 ? `, in a sample of one query in ${facts.every}` : "";
  const differs = source.kinds.every((kind) => quantities(source, kind)[0] === "difference");
  const origin = differs
    ? "are subtracted here, the second less the first; largest difference from Python"
    : source.kinds.every((kind) => source.computed(kind))
      ? "computed here from q and k; largest difference from Python"
      : "as they were given; largest difference from them";
  if (facts.kernel) return "Python works every number out when you look at it.";
  return facts.here || `Weights ${origin} ${formatDifference(facts.difference)}${share}.`;
}

// The same in a word, and on a click in full; on the front door the help says it.
function makeExact(source) {
  const { facts } = source;
  const of = make("span", { class: "in-full" }, " of the model");
  return makeMenu(
    facts.kernel ? "from Python" : facts.here ? make("span", {}, facts.copy, of) : "checked",
    "exact",
    make("p", { class: "difference" }, exactSaid(source)),
    ...source.kinds.map((kind) => make("p", {}, `${sizeOf(source, kind)}.`)),
  );
}

/**
 * @param {import("./types").Source} source
 * @param {import("./state.js").State} state
 * @param {import("./types").Offer[]} views
 * @param {import("./types").Host} host
 */
export function makeHeader(source, state, views, host) {
  const { facts } = source;
  const dialog = makeHelp(source, views, state, host.addressed);
  const ask = makeButton("?", dialog.show, { "aria-label": "Help", "aria-haspopup": "dialog" });
  host.keys.addEventListener("keydown", (event) => {
    const typing = /** @type {Element} */ (event.target).matches?.("input[type=text], textarea");
    if (event.key === "?" && !dialog.element.open && !typing) dialog.show();
  });
  const texts = textsOf(source, state.values.run);
  const name = readable(texts[0].text);
  host.title(`${name.length > 60 ? `${name.slice(0, 59).trimEnd()}…` : name} · regard`);
  const title = makeTitle(source, state, texts);
  if (facts.senses) {
    // The line whose attention is shown elsewhere would be taken for the one that is read.
    const [, part] = title.querySelectorAll(".part");
    state.follow(["view"], () => part.toggleAttribute("hidden", state.values.view === "senses"));
  }
  const { compared } = facts;
  const models =
    compared && compared.between === "models" ? compared.names.map((name, i) => `${i + 1} ${name}`) : [facts.model];
  const said = make(
    "p",
    { class: "facts" },
    ...models.map((model) => {
      const [, owner, name] = /^(.*\/)?(.*)$/s.exec(model);
      return make("span", { class: "model", title: model }, make("span", { class: "owner" }, owner ?? ""), name);
    }),
  );
  for (const kind of source.kinds) said.append(make("span", { class: "size" }, sizeOf(source, kind)));
  const sides = facts.here ? [] : Object.values(facts.sides).filter(Boolean); // a live page says it where one types
  const unknown = sides
    .map(({ tokens }) => notKnown(tokens))
    .join(" ")
    .trim();
  if (unknown) said.append(make("span", { class: "not-known" }, unknown));
  const held = makeHeld(source, state);
  return make(
    "header",
    { class: "header" },
    make(
      "div",
      { class: "inside" },
      makeBrand(state),
      title,
      said,
      make("span", { class: "buttons" }, source.links ?? "", makeExact(source), ask, ...makeWayIn(state)),
      ...(held ? [held] : []),
    ),
    dialog.element,
  );
}

// The name, which leads back to the front door where there is one; and the way from there into the views.
function makeBrand(state) {
  if (!state.home) return make("span", { class: "brand" }, "regard");
  const click = (event) => {
    event.preventDefault();
    state.set({ view: state.home, hover: null });
  };
  const brand = make("a", { class: "brand", title: "Back to the sentence", click }, "regard");
  state.follow(["view"], () => {
    if (state.values.view === state.home) brand.removeAttribute("href");
    else brand.setAttribute("href", `#view=${state.home}`);
  });
  return brand;
}

function makeWayIn(state) {
  if (!state.home) return [];
  return [makeButton("All views", () => state.set({ view: state.main, hover: null }), { class: "button way-in" })];
}

// What stands below every view: a caution, and what can be done with the page.
export function makeFooter(state, host, saves) {
  const next = () => THEMES[(THEMES.indexOf(state.values.theme) + 1) % THEMES.length];
  const link = host.link && makeCopyLink(host.link);
  const theme = makeButton("", () => state.set({ theme: next() }), { class: "button theme" });
  state.follow(["theme"], () => (theme.textContent = `Theme: ${state.values.theme}`));
  return make(
    "footer",
    { class: "footer" },
    make("p", { class: "caution" }, "Attention is not explanation (Jain and Wallace 2019, arXiv 1902.10186)."),
    make("span", { class: "buttons" }, ...(link ? [link.told, link.button] : []), ...saves, theme),
  );
}

// All that a page says of itself inside another one (#bare), where there is the view and nothing around it.
export function makeOpener(host, source, state) {
  const link = make("a", { class: "opener", target: "_blank", rel: "noopener" }, `regard · ${source.facts.model}`);
  const update = () => {
    link.hidden = !state.values.bare;
    if (!link.hidden && host.link) link.href = host.link().address.replace(/#bare&?/, "#");
  };
  link.addEventListener("pointerenter", update);
  link.addEventListener("focus", update);
  state.follow(["bare"], update);
  return link;
}

function sizeOf(source, kind) {
  const layers = source.layers(kind);
  const heads = layers.map((layer) => source.heads(kind, layer));
  const [least, most] = [Math.min(...heads), Math.max(...heads)];
  const each = least === most ? counted(most, "head") : `${least} to ${most} heads`;
  const { only } = source.facts.held ?? {};
  const held = layers.reduce((sum, layer) => sum + heldOf(source, kind, layer).length, 0);
  const sizes = only ? `${held} of ${counted(only, "head")}` : `${counted(layers.length, "layer")} × ${each}`;
  // Of two texts that are compared, the tokens that both have.
  const count = (side) => source.tokens(kind, side).filter(({ sink, only }) => !sink && only === undefined).length;
  const [queries, keys] = [count("query"), count("key")];
  const both = source.tokens(kind, "query").some(({ only }) => only !== undefined) ? " in both" : "";
  const tokens = (kind === "cross" ? `${queries} × ${counted(keys, "token")}` : counted(queries, "token")) + both;
  return source.kinds.length === 1 ? `${sizes}, ${tokens}` : `${KIND_NAMES[kind]}: ${sizes}, ${tokens}`;
}

// What the view on show can do, and what every view can.
function makeHelp(source, views, state, addressed) {
  const about = make("div", {});
  const list = make("dl", { class: "shortcuts" });
  const title = make("h2", { tabindex: "-1" }, "Reading this page");
  const close = makeButton("Close", () => element.close());
  const element = make(
    "dialog",
    { class: "help", "aria-label": "Help" },
    title,
    about,
    list,
    make("p", {}, addressed),
    close,
  );
  const show = () => {
    const { help = [], about: says = ABOUT } = views.find(({ name }) => name === state.values.view);
    const exact = state.values.view === state.home ? [exactSaid(source)] : [];
    about.replaceChildren(...[...says(source), ...exact].map((each) => make("p", {}, each)));
    list.replaceChildren(
      ...[...help, ...HELP].flatMap(([key, meaning]) => [make("dt", {}, key), make("dd", {}, meaning)]),
    );
    element.showModal();
    title.focus();
  };
  return { element, show };
}
