// Questions to a server, and the field for its key.

import { make } from "../base/dom.js";

/** Sends questions to the server; where it wants a key, a field asks for it once. */
export function makePost() {
  let key = "";
  const field = make("input", {
    type: "password",
    "aria-label": "API key",
    placeholder: "API key",
    autocomplete: "off",
  });
  const button = make("button", { class: "button" }, "Use this key");
  const element = make("form", { class: "live-key", hidden: true }, field, button);
  /** @type {Promise<void> | null} until a key is given, for all questions that wait for one */
  let asking = null;
  let given = () => {};
  element.addEventListener("submit", (event) => {
    event.preventDefault();
    key = field.value;
    asking = null;
    given();
  });

  /**
   * @param {string} path @param {any} asked @param {AbortSignal} signal
   * @returns {Promise<any>} what is answered, or { refused }
   */
  async function send(path, asked, signal) {
    const sent = key;
    try {
      const headers = { "content-type": "application/json", ...(key && { authorization: `Bearer ${key}` }) };
      const response = await fetch(path, { method: "POST", headers, body: JSON.stringify(asked), signal });
      const told = await response.json();
      element.hidden = response.status !== 401;
      if (response.ok) return told;
      if (response.status === 401) {
        // Where another key was given meanwhile, it is tried; one that is being typed stays.
        if (sent === key) {
          if (field.value === sent) field.value = "";
          field.placeholder = key ? "That key is not known" : "API key";
          field.focus();
          await (asking ??= new Promise((resolve) => (given = resolve)));
        }
        return signal.aborted ? {} : send(path, asked, signal);
      }
      return { refused: told.error.message };
    } catch {
      return { refused: "The server does not answer." };
    }
  }
  return { element, send };
}
