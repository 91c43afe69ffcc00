// Questions of the front door, each a button that unfolds what answers it.

import { make } from "../base/dom.js";

/**
 * @param {import("../base/state.js").State} state
 * @param {{ name: string, label: string }[]} questions
 * @param {(question: any) => (Node | string)[]} answer asked while it is open
 */
export function makeQuestions(state, questions, answer) {
  return questions.map((question) => {
    const { name, label } = question;
    const body = make("div", { class: `door-answer answer-${name}`, id: `regard-${name}` });
    const attributes = { type: "button", class: "door-ask", "aria-controls": body.id };
    const button = make("button", attributes, make("span", {}, label));
    button.addEventListener("click", () => {
      const { asks } = state.values;
      state.set({ asks: asks.includes(name) ? asks.filter((each) => each !== name) : [...asks, name] });
    });
    const update = () => {
      const isOpen = state.values.asks.includes(name);
      button.setAttribute("aria-expanded", String(isOpen));
      body.hidden = !isOpen;
      body.replaceChildren(...(isOpen ? answer(question) : []));
    };
    return { element: make("section", { class: "door-question" }, make("h2", {}, button), body), update };
  });
}

/** Which are open, as a field of the state. @param {{ name: string }[]} questions */
export const asksOf = (questions) => ({
  initial: [],
  read: (text) => questions.map(({ name }) => name).filter((name) => text.split(",").includes(name)),
  write: (value) => (value.length > 0 ? value.join(",") : null),
});
