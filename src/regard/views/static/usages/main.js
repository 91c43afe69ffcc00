// The concordance of a server: a word, or a sentence with a word in it, and the places where the word means the same, as
// lines.

import { makeButton } from "../base/controls.js";
import { make, readable } from "../base/dom.js";
import { makePost } from "../live/post.js";

const K = 40; // lines
const MOST = 1000; // that the server gives
const NOTED = 4; // fields beside a line
const SHORT = 8; // of the example
const ENOUGH = 3; // of them have the sense that is asked for
const EXAMPLES = [
  "The *play* was shown in a small theatre.",
  "She wrote a long *letter* to her mother.",
  "He was elected to the highest *office* in the land.",
];

const root = document.getElementById("regard");
const { index, size, fields } = JSON.parse(document.getElementById("regard-facts").textContent);
const post = makePost();

/** @param {string} name @param {string} label @param {string} placeholder */
function makeField(name, label, placeholder) {
  const said = { type: "text", name, placeholder, "aria-label": label };
  return make("input", { ...said, autocomplete: "off", spellcheck: "false", dir: "auto" });
}

const narrow = make(
  "details",
  {},
  make("summary", {}, "In some texts only"),
  makeField("where", "where", fields.length > 0 ? `${fields[0]}=…` : "text~…"),
  make(
    "p",
    { class: "note" },
    `Fields: ${[...new Set([...fields, "source", "date", "year", "decade", "form", "text"])].join(", ")}.`,
  ),
);
const form = make(
  "form",
  { role: "search", class: "usages-form" },
  makeField("asked", "A word, or a sentence with the word in it", "A word, or a sentence with it"),
  make("button", { class: "button" }, "Search"),
  narrow,
);
const choice = make("p", { class: "usages-choice", hidden: true });
const status = make("p", { class: "usages-said", role: "status" }, "");
const list = make("ol", { class: "usages-lines" });
const order = make("p", { class: "usages-choice", hidden: true });
const foot = make("p", { class: "usages-choice", hidden: true });
root.append(
  make(
    "header",
    { class: "usages-top" },
    make("a", { class: "brand", href: "./", title: "Look at a sentence" }, "regard"),
    make("h1", { class: "note" }, `Concordance of ${index}: ${size}`),
  ),
  make("main", {}, form, choice, post.element, status, order, list, foot),
);

let newest = new AbortController();
/** @type {{ more: number[], less: number[] }} uses that are what is looked for, and that are not */
const judged = { more: [], less: [] };
// By which words around it the lines of a word stand: as in a concordance, those beside it and next to these.
const SORTS = { "": "as in the corpus", "L1,L2,L3": "by the words before", "R1,R2,R3": "by the words after" };
let sort = "";

const typed = (/** @type {string} */ name) => form.elements[name].value.trim();

// What was typed, as the server takes it: a word, or a sentence whose word stands between asterisks.
const asWord = (/** @type {string} */ text) =>
  /\*\S.*\*/s.test(text) && /\s/.test(text) ? { sentence: text } : { word: text };

/** @param {{ sentence?: string, word?: string }} asked */
async function search(asked, k = K) {
  newest.abort();
  const { signal } = (newest = new AbortController());
  const where = typed("where")
    .split(";")
    .map((each) => each.trim())
    .filter(Boolean);
  choice.hidden = true;
  for (const each of [order, foot]) each.hidden = true;
  root.classList.add("working");
  status.textContent = "Searching…";
  const answer = await post.send(
    "v1/usages/search",
    { ...asked, where, k, sort: sort ? sort.split(",") : [], ...judged },
    signal,
  );
  if (signal.aborted) return null;
  root.classList.remove("working");
  return { ...answer, asked };
}

async function find(/** @type {{ sentence?: string, word?: string }} */ asked, k = K) {
  // What has a meaning comes in the order of that.
  if (asked.sentence || judged.more.length > 0) sort = "";
  location.hash = String(new URLSearchParams({ ...asked, where: typed("where"), ...(sort && { sort }) }));
  const answer = await search(asked, k);
  if (answer) show(answer);
}

// Of some words it is asked which of them is meant, if not all as they stand.
function ask() {
  const text = typed("asked");
  if (!text) return;
  const asked = asWord(text);
  if (asked.sentence || !/\s/.test(text) || /[["/|]/.test(text)) {
    find(asked);
    return;
  }
  const words = [...text.matchAll(/[\p{L}\p{N}\p{M}'’-]+/gu)];
  const mark = ({ 0: word, index: at }) =>
    makeButton(word, () => {
      form.elements.asked.value = `${text.slice(0, at)}*${word}*${text.slice(at + word.length)}`;
      ask();
    });
  choice.replaceChildren(
    "Which word is it about? ",
    ...words.map(mark),
    makeButton("these words, as they stand", () => find(asked)),
  );
  choice.hidden = false;
  status.textContent = "";
  list.replaceChildren();
}

/** @param {any} answer @param {string} before what is said first */
function show({ refused, total, about, lines = [], asked }, before = "") {
  status.textContent =
    refused ?? `${before}${lines.length.toLocaleString("en")} of ${total.toLocaleString("en")} uses, ${about}.`;
  const unsure = lines
    .filter(({ answer }) => answer === "unsure")
    .map(({ probability }) => Math.round(100 * probability));
  if (unsure.length > 0)
    status.textContent += ` Beside each: how likely it has this sense. Of ${unsure.length}, at ${Math.min(...unsure)} to ${Math.max(...unsure)} %, that is left open.`;
  list.replaceChildren(...lines.map((line) => makeLine(line, asked)));
  const more = makeButton("More lines", () => find(asked, Math.min(MOST, 5 * lines.length)));
  foot.replaceChildren(more);
  foot.hidden = !(lines.length < Math.min(total, MOST));
  const sorted = (/** @type {string} */ keys) => () => {
    sort = keys;
    find(asked);
  };
  order.replaceChildren(
    ...Object.entries(SORTS).map(([keys, said]) =>
      makeButton(said, sorted(keys), { "aria-pressed": String(keys === sort) }),
    ),
  );
  order.hidden = !asked.word || judged.more.length > 0 || !(total > 1);
}

/** @param {Record<string, any>} line @param {any} asked */
function makeLine({ use, left, node, right, source, place, date, similarity, probability, answer, ...others }, asked) {
  const side = (/** @type {string} */ name, /** @type {string} */ text) =>
    make("span", { class: name }, make("bdi", { dir: "auto" }, text.replace(/\s+/g, " ")));
  const likely =
    typeof probability === "number"
      ? `${answer === "unsure" ? "" : `${answer}, `}${Math.round(100 * probability)} %`
      : typeof similarity === "number"
        ? similarity.toFixed(2)
        : "";
  const known = Object.entries(others)
    .filter(([name, value]) => name.startsWith("meta.") && value !== null && String(value).length <= 40)
    .map(([name, value]) => `${name.slice(5)} ${value}`);
  const said = [likely, `${place} of ${source}`, date, ...known.slice(0, NOTED)].filter(Boolean).join(" · ");
  const judges = make("span", { class: "usages-judges" }, makeJudge("more", use, asked), makeJudge("less", use, asked));
  return make(
    "li",
    {},
    make("p", { class: "usages-line" }, side("left", left), make("b", {}, readable(node)), side("right", right)),
    make("p", { class: "note" }, said, ...(similarity === undefined ? [] : [judges])),
  );
}

/** @param {"more" | "less"} how @param {number} use @param {any} asked */
function makeJudge(how, use, asked) {
  const isOn = judged[how].includes(use);
  const said = how === "more" ? "like this" : "not this";
  const button = make("button", { type: "button", class: "usages-judge", "aria-pressed": String(isOn) }, said);
  button.addEventListener("click", () => {
    for (const each of ["more", "less"])
      judged[each] = judged[each].filter((/** @type {number} */ other) => other !== use);
    if (!isOn) judged[how].push(use);
    find(asked);
  });
  return button;
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  Object.assign(judged, { more: [], less: [] });
  ask();
});

const given = new URLSearchParams(location.hash.slice(1));
form.elements.where.value = given.get("where") ?? "";
sort = given.get("sort") ?? "";
narrow.open = form.elements.where.value !== "";
form.elements.asked.value = given.get("sentence") || given.get("word") || "";
if (form.elements.asked.value)
  find(given.get("sentence") ? { sentence: given.get("sentence") } : { word: given.get("word") });
else open();

// The first example that the corpus answers well, with its answer.
async function open() {
  for (const sentence of EXAMPLES) {
    const answer = await search({ sentence }, SHORT);
    if (!answer) return;
    const same = (answer.lines ?? []).filter(({ answer: sense = "same" }) => sense === "same");
    if (same.length < ENOUGH) continue;
    form.elements.asked.placeholder = sentence;
    return show(answer, `For example, “${sentence}” `);
  }
  status.textContent = "";
}
