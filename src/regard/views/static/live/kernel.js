// A block of memory, and the loops of a forward pass over it: in WebAssembly where the browser allows it, else in
// JavaScript. Addresses and strides are bytes.

import { moduleBytes } from "./wasm.js";

/**
 * @typedef {object} Kernel
 * @property {"wasm" | "js"} how
 * @property {() => ArrayBuffer} buffer the memory, as it is now
 * @property {(bytes: number) => void} grow makes the memory at least so large; it may then be another buffer
 * @property {Record<string, (from: number, to: number, end: number) => void>} unpack
 *   from blocks of a type to float32, until `to` is `end`
 * @property {(x: number, end: number, w: number, bias: number, y: number, last: number, xStride: number,
 *   wStride: number, yStride: number) => void} product
 *   y[t][r] = x[t] . w[r] + bias[r]: of four rows r, and of t two at a time, until y is `last`; the first row of x ends
 *   at `end`, and holds a multiple of eight numbers
 */

const PAGE = 65536;

/** Bytes of a block of 32 numbers, by the names of GGUF files. @type {Record<string, number>} */
export const BLOCK_BYTES = { Q8_0: 34, Q4_1: 20 };

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
  const { unpack8, unpack4, product } = /** @type {any} */ (instance.exports);
  return {
    how: "wasm",
    buffer: () => memory.buffer,
    grow: (wanted) => {
      const missing = wanted - memory.buffer.byteLength;
      if (missing > 0) memory.grow(Math.ceil(missing / PAGE));
    },
    unpack: { Q8_0: unpack8, Q4_1: unpack4 },
    product,
  };
}

/** The 16-bit float at a place. @param {Int8Array} bytes @param {number} at */
function half(bytes, at) {
  const high = bytes[at + 1];
  const [exponent, part] = [(high >> 2) & 31, ((high & 3) << 8) | (bytes[at] & 255)];
  const size = exponent ? (1 + part / 1024) * 2 ** (exponent - 15) : part * 2 ** -24;
  return high < 0 ? -size : size;
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
    unpack: {
      Q8_0(from, to, end) {
        const floats = new Float32Array(memory.buffer);
        for (let [at, out] = [from, to / 4]; out < end / 4; at += 34, out += 32) {
          const scale = half(memory, at);
          for (let i = 0; i < 32; i += 1) floats[out + i] = memory[at + 2 + i] * scale;
        }
      },
      Q4_1(from, to, end) {
        const floats = new Float32Array(memory.buffer);
        for (let [at, out] = [from, to / 4]; out < end / 4; at += 20, out += 32) {
          const [scale, least] = [half(memory, at), half(memory, at + 2)];
          for (let i = 0; i < 16; i += 1) {
            const two = memory[at + 4 + i];
            floats[out + i] = Math.fround((two & 15) * scale) + least;
            floats[out + 16 + i] = Math.fround(((two >> 4) & 15) * scale) + least;
          }
        }
      },
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
