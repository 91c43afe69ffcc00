// The model of a page that holds it in a file of its own: asked for when somebody wants it, with how much is there, and kept in
// the browser's cache, so that it comes once.

import { makeButton } from "../base/controls.js";
import { make } from "../base/dom.js";

/** @typedef {{ name: string, bytes: number, crc: number }} Beside the file's name, beside the page, and what it must be */

const CACHE = "regard";

export class BesidePage {
  /** @param {Beside} file @param {(bytes: Uint8Array) => void} done */
  constructor(file, done) {
    this.file = file;
    this.done = done;
    // Another model is another address.
    this.url = new URL(`${file.name}?${file.crc}`, location.href).href;
    this.bar = make("progress", { max: "1", "aria-label": "The model" });
    this.said = make("span", { role: "status" });
    const size = `${Math.round(file.bytes / 1e6)} MB`;
    this.button = makeButton(`Load the model (${size})`, () => this.load(), { class: "button writer-go" });
    this.element = make("div", { class: "live-load" }, this.button, this.said);
    // What was kept comes by itself.
    this.kept().then((response) => response && this.load());
  }

  /** What an earlier visit has kept; null where there is none, or the browser keeps nothing. */
  async kept() {
    try {
      return (await (await caches.open(CACHE)).match(this.url)) ?? null;
    } catch {
      return null;
    }
  }

  async load() {
    this.button.replaceWith(this.bar);
    try {
      const kept = await this.kept();
      const bytes = await this.read(kept ?? (await fetch(this.url)));
      if (!kept) this.keep(bytes);
      this.element.remove();
      this.done(bytes);
    } catch (error) {
      const isFile = location.protocol === "file:";
      const why = isFile ? "A browser reads it from a server alone, not from a folder." : error.message;
      this.element.replaceChildren(this.button, `The model did not come: ${why} `);
    }
  }

  /** @param {Response} response */
  async read(response) {
    const { bytes } = this.file;
    if (!response.ok || !response.body) throw new Error(`the server answers ${response.status}.`);
    const all = new Uint8Array(bytes);
    const reader = response.body.getReader();
    let there = 0;
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      if (there + value.length > bytes) throw new Error("the file is another one.");
      all.set(value, there);
      there += value.length;
      this.bar.value = there / bytes;
      this.said.textContent = `${Math.round(there / 1e6)} of ${Math.round(bytes / 1e6)} MB`;
    }
    if (there < bytes) throw new Error(`it was cut short, at ${there} of ${bytes} bytes.`);
    return all;
  }

  /** @param {Uint8Array<ArrayBuffer>} bytes */
  async keep(bytes) {
    try {
      await (await caches.open(CACHE)).put(this.url, new Response(new Blob([bytes])));
    } catch {
      // No room, or not allowed: it comes again another time.
    }
  }
}
