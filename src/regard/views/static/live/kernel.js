// A block of memory, and the two loops of a forward pass over it: in WebAssembly where the browser allows it, else in
// JavaScript. Addresses and strides are bytes.

import { moduleBytes } from "./wasm.js";

/**
 * @typedef {object} Kernel
 * @property {"wasm" | "js"} how
 * @property {() => ArrayBuffer} buffer the memory, as it is now
 * @property {(bytes: number) => void} grow makes the memory at least so large; it may then be another buffer
 * @property {(from: number, scales: number, to: number, end: number) => void} unpack
 *   from 8-bit numbers, each 32 times a float32 of `scales`, to float32, until `to` is `end`
 * @property {(x: number, end: number, w: number, bias: number, y: number, last: number, xStride: number,
 *   wStride: number, yStride: number) => void} product
 *   y[t][r] = x[t] . w[r] + bias[r]: of four rows r, and of t two at a time, until y is `last`; the first row of x ends
 *   at `end`, and holds a multiple of eight numbers
 */

const PAGE = 65536;

/**
 * @param {number} bytes how much memory there must be
 * @param {{ wasm?: boolean }} [options] wasm: false for JavaScript in any case
 * @returns {Promise<Kernel>}
 */
export async function openKernel(bytes, { wasm = true } = {}) {
  if (wasm && typeof WebAssembly === "object") {
    try {
      return await inWasm(bytes);
    } catch {
      // No vectors, or not allowed: JavaScript does it.
    }
  }
  return inJavaScript(bytes);
}

/** @param {number} bytes @returns {Promise<Kernel>} */
async function inWasm(bytes) {
  const memory = new WebAssembly.Memory({ initial: Math.ceil(bytes / PAGE) });
  const { instance } = await WebAssembly.instantiate(moduleBytes(), { regard: { memory } });
  const { unpack, product } = /** @type {any} */ (instance.exports);
  return {
    how: "wasm",
    buffer: () => memory.buffer,
    grow: (wanted) => {
      const missing = wanted - memory.buffer.byteLength;
      if (missing > 0) memory.grow(Math.ceil(missing / PAGE));
    },
    unpack,
    product,
  };
}

/** @param {number} bytes @returns {Kernel} */
function inJavaScript(bytes) {
  let memory = new Int8Array(0);
  const grow = (/** @type {number} */ wanted) => {
    if (wanted <= memory.length) return;
    const larger = new Int8Array(16 * Math.ceil(wanted / 16));
    larger.set(memory);
    memory = larger;
  };
  grow(bytes);
  return {
    how: "js",
    buffer: () => /** @type {ArrayBuffer} */ (memory.buffer),
    grow,
    unpack(from, scales, to, end) {
      const integers = memory;
      const floats = new Float32Array(memory.buffer);
      for (let [at, of, out] = [from, scales / 4, to / 4]; out < end / 4; of += 1) {
        const scale = floats[of];
        for (const stop = at + 32; at < stop; at += 1, out += 1) floats[out] = integers[at] * scale;
      }
    },
    product(x, end, w, bias, y, last, xStride, wStride, yStride) {
      const floats = new Float32Array(memory.buffer);
      const count = (end - x) >> 2;
      const ws = wStride >> 2;
      const xs = xStride >> 2;
      const ys = yStride >> 2;
      for (let p = x >> 2, out = y >> 2; out < last >> 2; p += 2 * xs, out += 2 * ys) {
        for (let row = 0; row < 4; row += 2) {
          // Two by two: six numbers are read for four products, and no sum waits for another.
          let [r, at] = [(w >> 2) + row * ws, p];
          let pr = 0;
          let ps = 0;
          let qr = 0;
          let qs = 0;
          for (const stop = p + count; at < stop; at += 1, r += 1) {
            const one = floats[at];
            const two = floats[at + xs];
            const first = floats[r];
            const second = floats[r + ws];
            pr += one * first;
            ps += one * second;
            qr += two * first;
            qs += two * second;
          }
          const of = (bias >> 2) + row;
          floats[out + row] = pr + floats[of];
          floats[out + row + 1] = ps + floats[of + 1];
          floats[out + ys + row] = qr + floats[of];
          floats[out + ys + row + 1] = qs + floats[of + 1];
        }
      }
    },
  };
}
