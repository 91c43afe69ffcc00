// What comes next, by a GPU where there is one that says what the processor says; of tokens that were read before, only
// what is new is worked out.

import { Past } from "./past.js";

/**
 * @typedef {import("./request.js").Request} Request
 * @typedef {import("./gpu.js").Gpu} Gpu
 * @typedef {{ logits: Float32Array, taken: Float64Array, rests: number }} Said taken: of each token, over all heads; rests: the
 *   share of attention on the first, the mean of all heads
 */

const CLOSE = 1e-2; // of logits

export class NextWord {
  /** @param {import("./model.js").LiveModel} model @param {Gpu | null} gpu */
  constructor(model, gpu) {
    this.model = model;
    this.past = new Past(model.description);
    /** @type {Gpu | null} */
    this.gpu = gpu;
    this.gpuPast = new Past(model.description);
    this.isSame = false; // whether the GPU has said the same as this processor
    this.fell = ""; // why the GPU is not asked any more
    if (gpu?.failed) this.fall();
  }

  /** From here on without the GPU. */
  fall() {
    this.fell = this.gpu.failed.split("\n", 1)[0];
    this.gpu.device.destroy();
    this.gpu = null;
    return null;
  }

  /** Who works it out. @returns {"webgpu" | "wasm" | "js"} */
  get how() {
    return this.gpu ? "webgpu" : this.model.work.kernel.how;
  }

  /** @param {Required<Request>} asked @returns {Generator<number | Promise<void>, Said>} waits for what it yields */
  *read(asked) {
    const isEdited = [asked.off, asked.unseen, asked.weights].some((edits) => edits.length > 0);
    return (this.gpu && !isEdited && (yield* this.onGpu(asked))) || (yield* this.here(asked));
  }

  /**
   * The same on the GPU; null where it failed. What it says first is compared with what is worked out here.
   * @param {Required<Request>} asked
   * @returns {Generator<number | Promise<void>, Said | null>}
   */
  *onGpu(asked) {
    const { model, gpu, gpuPast: past } = this;
    const { work } = model;
    const { ids } = asked;
    const first = past.begin(ids, "");
    if (past.logits) return this.said(past);
    work.take(ids.length - first);
    model.embed({ ...asked, ids: ids.slice(first) }, first);
    /** @type {Awaited<ReturnType<Gpu["read"]>>} */
    let read = null;
    yield gpu.read(work.whole(work.x), ids.length - first, first).then((found) => {
      read = found;
    });
    if (read && !this.isSame) {
      const { logits } = yield* this.here(asked);
      const apart = read.logits.reduce((most, each, id) => Math.max(most, Math.abs(each - logits[id])), 0);
      this.isSame = apart <= CLOSE;
      if (!this.isSame) gpu.failed = `its logits differed by ${apart.toPrecision(2)}`;
    }
    if (gpu.failed) return this.fall();
    past.end(ids);
    Object.assign(past, read);
    return this.said(past);
  }

  /** @param {Required<Request>} asked @returns {Generator<number, Said>} */
  *here(asked) {
    const { model, past } = this;
    const { work } = model;
    const { layers, tensors, dim } = model.description;
    const { ids, off, unseen, weights } = asked;
    const first = past.begin(ids, JSON.stringify([off, unseen, weights]));
    if (first < ids.length || !past.logits) {
      work.take(ids.length - first, ids.length);
      model.embed({ ...asked, ids: ids.slice(first) }, first);
      for (let layer = 0; layer < layers.length; layer += 1) {
        model.layer(layer, asked, past);
        yield layer;
      }
      past.end(ids);
      const x = work.read(work.x).slice(-dim);
      work.take(1);
      work.write(work.x, x);
      if (tensors["norm.weight"]) work.norm(work.x, "norm");
      past.logits = model.logits(work.x);
    }
    return this.said(past);
  }

  /** @param {Past} past @returns {Said} */
  said({ logits, taken, rests }) {
    const heads = this.model.description.layers.reduce((sum, each) => sum + each.heads, 0);
    return { logits, taken, rests: rests / heads };
  }
}
