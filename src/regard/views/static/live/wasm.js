// The two loops in which a forward pass spends its time, as a WebAssembly module with 128-bit vectors, put together
// here byte by byte: 1.3 kB need no compiler in the build. kernel.js has the same two functions in JavaScript.

const I32 = 0x7f;
const V128 = 0x7b;

/** @param {number} value @returns {number[]} unsigned LEB128 */
const leb = (value) => (value < 128 ? [value] : [(value & 127) | 128, ...leb(value >>> 7)]);
/** @param {number[][]} items @returns {number[]} */
const vector = (items) => [...leb(items.length), ...items.flat()];
/** @param {number} id @param {number[][]} items @returns {number[]} */
const section = (id, items) => {
  const body = vector(items);
  return [id, ...leb(body.length), ...body];
};
/** @param {string} text @returns {number[]} */
const name = (text) => [text.length, ...text].map((each) => (typeof each === "string" ? each.charCodeAt(0) : each));

/** @param {number} local */
const get = (local) => [0x20, local];
/** @param {number} local @param {...number[]} value */
const set = (local, ...value) => [...value.flat(), 0x21, local];
const ADD = [0x6a];
/** @param {number} value */
const constant = (value) => [0x41, ...leb(value)]; // below 64: the sign bit is not set
/** @param {number} local @param {number} by */
const step = (local, by) => set(local, get(local), constant(by), ADD);
/** @param {number} local @param {number} by */
const stepBy = (local, by) => set(local, get(local), get(by), ADD);
/** Repeats while a pointer is below another. @param {number} at @param {number} end @param {...number[]} body */
const until = (at, end, ...body) => [0x03, 0x40, ...body.flat(), ...get(at), ...get(end), 0x49, 0x0d, 0, 0x0b];

/** @param {...number} code */
const simd = (...code) => [0xfd, ...code];
/** @param {number} at @param {number} offset */
const load = (at, offset) => [...get(at), ...simd(0x00, 4, offset)];
/** @param {number} at @param {number} offset @param {...number[]} value */
const store = (at, offset, ...value) => [...get(at), ...value.flat(), ...simd(0x0b, 4, offset)];
const FLOAT_ADD = simd(0xe4, 1);
const FLOAT_MUL = simd(0xe6, 1);
const ZERO = simd(0x0c, ...new Array(16).fill(0));
/** Picks four floats of two vectors, 0 to 3 of the first and 4 to 7 of the second. @param {...number} lanes */
const shuffle = (...lanes) => simd(0x0d, ...lanes.flatMap((lane) => [0, 1, 2, 3].map((byte) => 4 * lane + byte)));

/**
 * @param {number} parameters all i32
 * @param {number} pointers further locals, i32
 * @param {number} vectors further locals, v128
 * @param {...number[]} code
 */
const body = (parameters, pointers, vectors, ...code) => {
  const bytes = [
    ...vector([
      [...leb(pointers), I32],
      [...leb(vectors), V128],
    ]),
    ...code.flat(),
    0x0b,
  ];
  return { type: [0x60, ...vector(new Array(parameters).fill([I32])), 0], bytes: [...leb(bytes.length), ...bytes] };
};

// unpack(from, scales, to, end): 8-bit numbers, each 32 times a scale of their own, as floats; `end` of what is written.
function unpack() {
  const [from, scales, to, end, scale, eight] = [0, 1, 2, 3, 4, 5];
  const half = (/** @type {number} */ code, /** @type {number} */ offset) =>
    store(to, offset, get(eight), simd(code, 1), simd(0xfa, 1), get(scale), FLOAT_MUL);
  const four = [0, 1, 2, 3].flatMap((part) => [
    ...set(eight, [...get(from), ...simd(0x01, 3, 8 * part)]), // eight integers, widened to 16 bits
    ...half(0xa7, 32 * part),
    ...half(0xa8, 32 * part + 16),
  ]);
  const one = set(scale, [...get(scales), ...simd(0x09, 2, 0)]);
  const loop = until(to, end, one, four, step(from, 32), step(scales, 4), set(to, get(to), [0x41, 0x80, 1], ADD));
  return body(4, 0, 2, loop);
}

// product(x, end, w, bias, y, last, xStride, wStride, yStride): y[t][r] = x[t] . w[r] + bias[r], of four rows r and an
// even number of t, from the two whose first is x and ends at `end`, until y is `last`. All in bytes.
function product() {
  const [x, end, w, bias, y, last, xStride, wStride, yStride] = [0, 1, 2, 3, 4, 5, 6, 7, 8];
  const [one, two, row0] = [9, 10, 11]; // pointers into two rows of x; those into w follow
  const rows = [0, 1, 2, 3].map((row) => row0 + row);
  const [sum0, of1, of2, weight] = [15, 23, 24, 25];
  const start = [
    ...set(one, get(x)),
    ...set(two, get(x), get(xStride), ADD),
    ...rows.flatMap((at, row) => set(at, get(row ? at - 1 : w), row ? [...get(wStride), ...ADD] : [])),
    ...[0, 1, 2, 3, 4, 5, 6, 7].flatMap((sum) => set(sum0 + sum, ZERO)),
  ];
  const added = (/** @type {number} */ sum, /** @type {number} */ of) =>
    set(sum, get(sum), get(of), get(weight), FLOAT_MUL, FLOAT_ADD);
  const four = [0, 16].flatMap((offset) => [
    ...set(of1, load(one, offset)),
    ...set(of2, load(two, offset)),
    ...rows.flatMap((at, row) => [
      ...set(weight, load(at, offset)),
      ...added(sum0 + row, of1),
      ...added(sum0 + 4 + row, of2),
    ]),
  ]);
  const steps = [one, two, ...rows].flatMap((at) => step(at, 32));
  const two_ = (
    /** @type {number} */ a,
    /** @type {number} */ b,
    /** @type {number[]} */ low,
    /** @type {number[]} */ high,
  ) => [...get(a), ...get(b), ...shuffle(...low), ...get(a), ...get(b), ...shuffle(...high), ...FLOAT_ADD];
  // The four sums of each of four vectors, side by side.
  const across = (/** @type {number} */ sum) => [
    ...set(of1, two_(sum, sum + 1, [0, 4, 1, 5], [2, 6, 3, 7])),
    ...set(of2, two_(sum + 2, sum + 3, [0, 4, 1, 5], [2, 6, 3, 7])),
    ...store(y, 0, two_(of1, of2, [0, 1, 4, 5], [2, 3, 6, 7]), load(bias, 0), FLOAT_ADD),
    ...stepBy(y, yStride),
  ];
  const next = [x, x, end, end].flatMap((at) => stepBy(at, xStride));
  return body(9, 6, 11, until(y, last, start, until(one, end, four, steps), across(sum0), across(sum0 + 4), next));
}

/** The module: it imports regard.memory, and exports unpack and product. */
export function moduleBytes() {
  const functions = [unpack(), product()];
  return new Uint8Array([
    ...[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
    ...section(
      1,
      functions.map(({ type }) => type),
    ),
    ...section(2, [[...name("regard"), ...name("memory"), 2, 0, 1]]),
    ...section(
      3,
      functions.map((_, place) => [place]),
    ),
    ...section(
      7,
      ["unpack", "product"].map((each, place) => [...name(each), 0, place]),
    ),
    ...section(
      10,
      functions.map(({ bytes }) => bytes),
    ),
  ]);
}
