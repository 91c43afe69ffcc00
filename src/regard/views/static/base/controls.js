// The controls of every view: a switch, a choice of a few or of many, a menu, a slider, numbers as a table.

import { make } from "./dom.js";

// A button that does one thing; more: attributes beside those of all buttons, or in their place.
export const makeButton = (label, click, more = {}) =>
  make("button", { type: "button", class: "button", click, ...more }, ...[label].flat());

/** @param {unknown[]} values what the field is when the box is off, and when it is on */
export function makeSwitch(state, label, name, values = [false, true]) {
  const change = () => state.set({ [name]: values[Number(box.checked)] });
  const box = make("input", { type: "checkbox", change });
  state.follow([name], () => (box.checked = state.values[name] === values[1]));
  return make("label", { class: "switch" }, box, make("span", {}, label));
}

/**
 * One of a few, as buttons side by side. `update` shows what is chosen now.
 * @param {{ name: string, legend: string, options: string[][], value: () => string,
 *   choose: (value: string) => void, classes?: string }} choice options: [value, label, what it is in full]
 */
export function makeChoice({ name, legend, options, value, choose, classes = "" }) {
  const element = make("fieldset", { class: `filter ${classes}` }, make("legend", { class: "sr-only" }, legend));
  const radios = options.map(([each, label, title]) => {
    const radio = make("input", { type: "radio", name: `regard-${name}`, value: each, change: () => choose(each) });
    element.append(make("label", { title }, radio, make("span", {}, label)));
    return radio;
  });
  const update = () => radios.forEach((radio) => (radio.checked = radio.value === value()));
  update();
  return { element, update };
}

// One of many, as a list that unfolds. update(name, options, value): options(), [[value, text]] or elements, is asked
// again only where its name is another. said: what stands before it.
export function makeSelect(label, onChange, said = label) {
  const select = make("select", { "aria-label": label, change: () => onChange(select.value) });
  let filled = null;
  const update = (name, options, value) => {
    if (name !== filled) {
      const made = (each) => (Array.isArray(each) ? make("option", { value: String(each[0]) }, String(each[1])) : each);
      select.replaceChildren(...options().map(made));
      filled = name;
    }
    select.value = String(value);
  };
  return { element: make("label", { class: "pick" }, make("span", {}, said), select), select, update };
}

// A button that copies text(); copied(), refused: what `told` says then.
export function makeCopy(label, { text, copied, refused }) {
  const told = make("span", { class: "told", "aria-live": "polite" });
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text());
      told.textContent = copied();
    } catch {
      told.textContent = refused;
    }
  };
  return { button: makeButton(label, copy), told };
}

// The same of the address of what is on show; link: as of host.js.
export const makeCopyLink = (link) =>
  makeCopy("Copy link", {
    text: () => link().address,
    copied: () => `Copied. ${link().said}`,
    refused: "The browser does not let this page copy: take the link from the address bar.",
  });

// A button with what it unfolds, which lies over the view: a click beside it, or Escape, puts it away.
export function makeMenu(label, classes, ...body) {
  const element = make(
    "details",
    { class: `menu ${classes}` },
    make("summary", { class: "button" }, label),
    make("div", { class: "menu-body" }, ...body),
  );
  const away = (event) => event.composedPath().includes(element) || (element.open = false);
  element.addEventListener("toggle", () => {
    if (element.open) document.addEventListener("pointerdown", away);
    else document.removeEventListener("pointerdown", away);
  });
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !element.open) return;
    event.stopPropagation();
    element.open = false;
    /** @type {HTMLElement} */ (element.firstChild).focus();
  });
  return element;
}

// update(value, count, text, from): of so many values, the first of which is `from`; text: how it is said, or parts of it.
export function makeSlider(label, onInput, attributes = {}) {
  const range = make("input", { type: "range", min: "0", step: "1", "aria-label": label, ...attributes });
  const output = make("output", {});
  range.addEventListener("input", () => onInput(Number(range.value)));
  /** @param {string | (string | Node)[]} text */
  const update = (value, count, text = String(value), from = 0) => {
    range.min = String(from);
    range.max = String(from + count - 1);
    range.value = String(value);
    output.replaceChildren(...[text].flat());
    range.setAttribute("aria-valuetext", output.textContent);
  };
  return { element: make("label", { class: "slider" }, make("span", {}, label), range, output), range, output, update };
}

// rows: each its first cell, which names it, and its others; texts or elements. of(row): attributes of one of them.
export function makeTable(caption, header, rows, of = (_row) => ({})) {
  return make(
    "table",
    {},
    make("caption", {}, caption),
    make("thead", {}, make("tr", {}, ...header.map((text) => make("th", { scope: "col" }, text)))),
    make(
      "tbody",
      {},
      ...rows.map(([first, ...others], i) =>
        make(
          "tr",
          of(i),
          make("th", { scope: "row" }, first),
          ...others.map((text) => make("td", { dir: "auto" }, text)),
        ),
      ),
    ),
  );
}

// Room for a table that may be longer or wider than it.
export const makeScroll = (label, ...tables) =>
  make("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": label }, ...tables);

// Numbers that most people leave folded: tables() makes them only while it is open, for they may be long.
export function makeTables(summary, tables) {
  const scroll = makeScroll(summary);
  const element = make("details", { class: "table" }, make("summary", {}, summary), scroll);
  const draw = () => scroll.replaceChildren(...(element.open ? tables() : []));
  element.addEventListener("toggle", draw);
  return { element, draw };
}
