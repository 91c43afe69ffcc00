// What each head does, by the names that `regard heads` gives it: beside a title, under a thumbnail, and as a filter.

import CLAIMS from "../claims.json" with { type: "json" };
import { makeButton, makeSlider } from "./controls.js";
import { make, makeNote } from "./dom.js";
import { allHeads } from "./held.js";

export const UNNAMED = "unnamed"; // in the address
const LEAST = CLAIMS.effect; // no head that has a name has a smaller one
const STEPS = 18; // of the slider, from there to 1

const patternsOf = ({ facts }) => facts.names?.patterns || [];

// Which heads stand out of the grids: those of a name ("" for all), named by effects from `least` up.
export const NAME_FIELDS = {
  does: {
    initial: "",
    read: (text, { source }) =>
      text === UNNAMED || patternsOf(source).some(({ name }) => name === text) ? text : undefined,
    write: (does) => does || null,
  },
  effect: {
    initial: LEAST,
    read: (text) => (/^[01](\.\d{1,2})?$/.test(text) ? Math.max(LEAST, Math.min(1, Number(text))) : undefined),
    write: (effect) => (effect > LEAST ? String(effect) : null),
  },
};

export const hasNames = (source, kind) => Boolean(source.names?.(kind));

// What a head does most, { name, detail, effect }; null where it has no name.
export function nameOf(source, { kind, effect }, { layer, head }) {
  const best = source.names?.(kind)?.[source.layers(kind).indexOf(layer)]?.[head]?.[0];
  return best && best.effect >= effect ? best : null;
}

// As one says it; of others the name of `regard heads`.
const SAID = {
  previous: "looks at the word before",
  next: "looks at the word after",
  self: "looks at itself",
  "positional stride": "looks a fixed way off",
  "duplicate token": "looks at the same word",
  induction: "looks at what came next",
  "delimiter sink": "rests on marks",
  "delimiter sink first word": "rests on the first word",
  broadcast: "all look at the same words",
  [UNNAMED]: "something else",
};
export const saidOf = (found) => SAID[whole(found)] || SAID[found.name] || found.name;

// As one says it of all heads of a name: "rests on the first word or on marks".
function saidOfAll(name, heads) {
  const [first, ...others] = new Set((name === UNNAMED || heads.length === 0 ? [{ name }] : heads).map(saidOf));
  return [first, ...others.map((each) => each.replace(/^rests /, ""))].join(" or ");
}

// Under a thumbnail there is room for one word, and for a number.
const SHORT = { "delimiter sink": "sink", "duplicate token": "duplicate", "positional stride": "stride" };

export const whole = ({ name, detail }) => (detail ? `${name} ${detail}` : name);
export const inShort = ({ name, detail = "" }) =>
  [SHORT[name] || name, ...(/\d/.test(detail) ? [detail] : [])].join(" ");
export const withEffect = (found) => (found ? `${saidOf(found)} (${Math.round(100 * found.effect)} %)` : "");

// Whether a head is among those that were asked for.
export function isAsked(source, values, cell) {
  const { does, kind } = values;
  if (!does || !hasNames(source, kind)) return true;
  return (nameOf(source, values, cell)?.name || UNNAMED) === does;
}

// The names as buttons with their counts; folded away, a slider of the least effect and `more` elements.
export function makeNames({ source, state }, ...more) {
  const { names } = source.facts;
  const folded = make("details", { class: "names-more" }, make("summary", {}, "More"), ...more);
  if (!names || source.facts.held?.only) return more.length > 0 ? folded : null;
  const chips = make("div", { class: "name-chips", role: "group", "aria-label": "Heads by what they do" });
  const slider = makeSlider("Effect from", (place) => state.set({ effect: Number((LEAST + place / 20).toFixed(2)) }));
  const note = makeNote(names.said);
  folded.querySelector("summary").after(slider.element, note);
  const element = make("div", { class: "names" }, chips, folded);
  const buttons = [...patternsOf(source), { name: UNNAMED, says: "What they do has no name." }].map(
    ({ name, says }) => {
      const [said, count] = [make("span", {}, ""), make("span", { class: "name-count" }, "")];
      const choose = () => state.set({ does: name === state.values.does ? "" : name });
      const element = makeButton([said, count], choose, { "data-name": name, title: says });
      return { name, said, count, element };
    },
  );
  chips.append(...buttons.map((each) => each.element));
  state.follow(["kind", "does", "effect"], () => {
    const { kind, does, effect } = state.values;
    const all = allHeads(source, kind).map((head) => nameOf(source, { kind, effect: 0 }, head));
    const known = all.some(Boolean);
    chips.hidden = !known;
    slider.element.hidden = !known;
    for (const { name, said, count, element } of buttons) {
      const heads = all.filter((found) => (found?.effect >= effect ? found.name : UNNAMED) === name);
      said.textContent = saidOfAll(name, heads);
      count.textContent = ` ${heads.length}`;
      element.hidden = heads.length === 0 && name !== does;
      element.setAttribute("aria-pressed", String(name === does));
    }
    slider.update(Math.round(20 * (effect - LEAST)), STEPS + 1, effect.toFixed(2));
  });
  return element;
}

// The name of the head under the cursor, after its title.
export function makeHeadName({ source, state }) {
  const element = make("span", { class: "head-name" }, "");
  state.follow(["kind", "layer", "head", "also"], () => {
    const { also } = state.values;
    const found = also.length > 0 ? null : nameOf(source, { ...state.values, effect: 0 }, state.values);
    element.hidden = !found;
    element.textContent = withEffect(found);
    element.title = found ? patternsOf(source).find(({ name }) => name === found.name).says : "";
  });
  return element;
}
