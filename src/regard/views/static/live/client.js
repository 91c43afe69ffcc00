// The page's side of the worker: starts it, and asks it one question at a time; the newest wins.

import { serve } from "./worker.js";

/** @typedef {import("./worker.js").Asked} Asked */

/**
 * Where a server runs the model, served.js puts here who asks it: no other page's script has a way to ask anybody.
 * @type {{ client: ((served: any, listener: (answer: any) => void) => any) | null }}
 */
export const servers = { client: null };

/** Asks one question at a time, by send(asked); listener: told of each answer. */
export class Asker {
  /** @param {(answer: any) => void} listener */
  constructor(listener) {
    this.listener = listener;
    this.isAsked = false; // and not answered yet
    /** @type {Omit<Asked, "number"> | null} */
    this.waiting = null;
  }

  /**
   * @param {Omit<Asked, "number">} asked
   * @param {boolean} [isPatient] it waits for the answer before it, so that of many in a row some are answered
   */
  ask(asked, isPatient = false) {
    this.waiting = isPatient && this.isAsked ? asked : null;
    if (this.waiting) return;
    this.isAsked = true;
    this.send(asked);
  }

  /** @param {any} answer */
  answered(answer) {
    this.isAsked = false;
    this.listener(answer);
    if (this.waiting) this.ask(this.waiting);
  }

  /** @param {any} _asked */
  send(_asked) {}
}

export class LiveClient extends Asker {
  /**
   * @param {string} script of the worker
   * @param {any} open what the worker is told first
   * @param {(answer: any) => void} listener told { opened }, { broken }, an Answer or { refused }; of old questions nothing
   */
  constructor(script, open, listener) {
    super(listener);
    this.number = 0;
    /** @type {"worker" | "page"} */
    this.how = "worker";
    try {
      const worker = new Worker(URL.createObjectURL(new Blob([script], { type: "text/javascript" })));
      // Where the browser allows none, it says so here, or throws.
      worker.onerror = () => this.how === "worker" && this.inPage(open);
      this.listen(worker, open);
    } catch {
      this.inPage(open);
    }
  }

  /** Without a worker: the page stands still while it computes. @param {any} open */
  inPage(open) {
    this.how = "page";
    const { port1, port2 } = new MessageChannel();
    serve(port2);
    this.listen(port1, open);
  }

  /** @param {any} port @param {any} open */
  listen(port, open) {
    this.port = port;
    port.onmessage = (/** @type {MessageEvent} */ { data }) => {
      if (data.opened) port.onerror = () => this.listener({ broken: "It stopped; open the file again." });
      if (data.number !== undefined && data.number !== this.number) return;
      this.answered(data);
    };
    port.postMessage({ open });
  }

  send(asked) {
    this.number += 1;
    this.port.postMessage({ number: this.number, ...asked });
  }
}
