// The concordance of a server: a sentence with a word in it, and the places where the word means the same, as lines.

import { make, readable } from "../base/dom.js";
import { makePost } from "../live/post.js";

const K = 40; // lines

const root = document.getElementById("regard");
const { index } = JSON.parse(document.getElementById("regard-facts").textContent);
const post = makePost();

/** @param {string} name @param {string} label @param {string} placeholder */
function makeField(name, label, placeholder) {
  const field = make("input", {
    type: "text",
    name,
    placeholder,
    autocomplete: "off",
    spellcheck: "false",
    dir: "auto",
  });
  return make("label", { class: `usages-field usages-${name}` }, make("span", {}, label), field);
}

const form = make(
  "form",
  { role: "search", class: "usages-form" },
  makeField("sentence", "A sentence, its word marked", "She sat on the *bank* of the stream."),
  makeField("word", "or a word", "bank"),
  makeField("where", "where", "genre=news"),
  make("button", { class: "button" }, "Search"),
);
const status = make("p", { class: "note", role: "status" }, "");
const list = make("ol", { class: "usages-lines" });
root.append(
  make(
    "header",
    { class: "usages-top" },
    make("h1", {}, "Concordance"),
    make("span", { class: "note" }, index),
    make("a", { href: "./" }, "Look at a sentence"),
  ),
  make("main", {}, form, post.element, status, list),
);

let newest = new AbortController();
/** @type {{ more: number[], less: number[] }} uses that are what is looked for, and that are not */
const judged = { more: [], less: [] };

const typed = (/** @type {string} */ name) => form.elements[name].value.trim();

async function search() {
  newest.abort();
  const { signal } = (newest = new AbortController());
  const [sentence, word] = [typed("sentence"), typed("word")];
  if (!sentence && !word) return;
  const where = typed("where")
    .split(";")
    .map((each) => each.trim())
    .filter(Boolean);
  location.hash = String(new URLSearchParams({ sentence, word, where: where.join("; ") }));
  root.classList.add("working");
  status.textContent = "Searching…";
  const asked = { ...(sentence && { sentence }), ...(word && { word }), where, k: K, ...judged };
  const answer = await post.send("v1/usages/search", asked, signal);
  if (signal.aborted) return;
  root.classList.remove("working");
  show(answer);
}

/** @param {any} answer */
function show({ refused, total, about, lines = [] }) {
  status.textContent =
    refused ?? `${lines.length.toLocaleString("en")} of ${total.toLocaleString("en")} uses, ${about}.`;
  list.replaceChildren(...lines.map(makeLine));
}

/** @param {Record<string, any>} line */
function makeLine({ use, left, node, right, source, place, date, similarity, probability, answer }) {
  const side = (/** @type {string} */ name, /** @type {string} */ text) =>
    make("span", { class: name }, make("bdi", { dir: "auto" }, text.replace(/\s+/g, " ")));
  const likely =
    typeof probability === "number"
      ? `${answer}, ${Math.round(100 * probability)} %`
      : typeof similarity === "number"
        ? similarity.toFixed(2)
        : "";
  const said = [likely, `${place} of ${source}`, date].filter(Boolean).join(" · ");
  const judges = make("span", { class: "usages-judges" }, makeJudge("more", use), makeJudge("less", use));
  return make(
    "li",
    {},
    make("p", { class: "usages-line" }, side("left", left), make("b", {}, readable(node)), side("right", right)),
    make("p", { class: "note" }, said, ...(similarity === undefined ? [] : [judges])),
  );
}

/** @param {"more" | "less"} how @param {number} use */
function makeJudge(how, use) {
  const isOn = judged[how].includes(use);
  const said = how === "more" ? "like this" : "not this";
  const button = make("button", { type: "button", class: "usages-judge", "aria-pressed": String(isOn) }, said);
  button.addEventListener("click", () => {
    for (const each of ["more", "less"])
      judged[each] = judged[each].filter((/** @type {number} */ other) => other !== use);
    if (!isOn) judged[how].push(use);
    search();
  });
  return button;
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  Object.assign(judged, { more: [], less: [] });
  search();
});
for (const [name, value] of new URLSearchParams(location.hash.slice(1))) {
  if (form.elements[name]) form.elements[name].value = value;
}
search();
