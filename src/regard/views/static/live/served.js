// The page's side of a server that runs its model: as client.js, it asks one question at a time, and the newest wins.

import { makeSelect } from "../base/controls.js";
import { make } from "../base/dom.js";
import { decodeBase64 } from "../base/numbers.js";
import { hashOf } from "./address.js";
import { Asker, servers } from "./client.js";
import { makePost } from "./post.js";

/**
 * @typedef {Omit<import("./worker.js").Asked, "number">} Asked
 * @typedef {{ model: string, models: string[], usages: boolean }} Served
 */

class ServedClient extends Asker {
  /**
   * @param {Served} served
   * @param {(answer: any) => void} listener told { opened }, an Answer or { refused }; of old questions nothing
   */
  constructor(served, listener) {
    super(listener);
    this.model = served.model;
    this.how = "server";
    this.post = makePost();
    this.element = make("div", { class: "live-served" }, ...linksOf(served), this.post.element);
    this.newest = new AbortController();
    queueMicrotask(() => listener({ opened: this.how }));
  }

  async send(asked) {
    this.newest.abort(); // the server hears that nobody waits any more
    const { signal } = (this.newest = new AbortController());
    const answer = await this.post.send("v1/page", { model: this.model, ...asked }, signal);
    if (signal.aborted) return;
    if (answer.contextual) answer.contextual = new Float32Array(decodeBase64(answer.contextual).buffer);
    this.answered(answer);
  }
}

servers.client = (served, listener) => new ServedClient(served, listener);

/** The other models, and the concordance. @param {Served} served */
function linksOf({ model, models, usages }) {
  const links = [];
  if (models.length > 1) {
    const choose = makeSelect("Model", (/** @type {string} */ name) => {
      const text = new URLSearchParams(hashOf(location).slice(1)).get("text"); // the other model reads it too
      location.assign(`?model=${encodeURIComponent(name)}${text === null ? "" : `#${new URLSearchParams({ text })}`}`);
    });
    choose.update("models", () => models.map((name) => [name, name]), model);
    links.push(choose.element);
  }
  if (usages) links.push(make("a", { href: "usages" }, "Concordance"));
  return links;
}
