// The loops in which a forward pass spends its time, as a WebAssembly module with 128-bit vectors, put together
// here byte by byte: 2 kB need no compiler in the build. kernel.js has the same functions in JavaScript.

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

// unpack(from, to, end): blocks of 32 numbers, as GGUF files store them, as floats; `end` of what is written.

/** The same 32 bits four times. @param {number} bits */
const four = (bits) => simd(0x0c, ...[0, 1, 2, 3].flatMap(() => [0, 8, 16, 24].map((by) => (bits >>> by) & 255)));
/** Bits of a vector, moved up. @param {number} of @param {number} bits @param {number} by */
const moved = (of, bits, by) => [...get(of), ...four(bits), ...simd(0x4e), ...constant(by), ...simd(0xab, 1)];
/**
 * The two 16-bit floats at `from`, side by side in a vector: the exponent counts from another zero. @param {number} from
 * @param {number} to
 */
const halves = (from, to) => [
  ...set(to, get(from), simd(0x5c, 0, 0), simd(0xa9, 1)),
  ...set(to, moved(to, 0x7fff, 13), four(0x77800000), FLOAT_MUL, moved(to, 0x8000, 16), simd(0x50)),
];
/** @param {number} of @param {number} lane */
const spread = (of, lane) => [...get(of), ...get(of), ...shuffle(lane, lane, lane, lane)];

// Q8_0: a scale, then 32 numbers of 8 bits.
function unpack8() {
  const [from, to, end, scale, eight] = [0, 1, 2, 3, 4];
  const half = (/** @type {number} */ code, /** @type {number} */ offset) =>
    store(to, offset, get(eight), simd(code, 1), simd(0xfa, 1), get(scale), FLOAT_MUL);
  const parts = [0, 1, 2, 3].flatMap((part) => [
    ...set(eight, get(from), simd(0x01, 0, 2 + 8 * part)), // eight integers, widened to 16 bits
    ...half(0xa7, 32 * part),
    ...half(0xa8, 32 * part + 16),
  ]);
  const scales = [...halves(from, scale), ...set(scale, spread(scale, 0))];
  return body(3, 0, 2, until(to, end, scales, parts, step(from, 34), set(to, get(to), [0x41, 0x80, 1], ADD)));
}

// Q4_1: a scale and a least number, then 32 numbers of 4 bits, the first 16 in the lower halves of the bytes.
function unpack4() {
  const [from, to, end, scale, least, sixteen, nibbles, eight] = [0, 1, 2, 3, 4, 5, 6, 7];
  const quarter = (/** @type {number} */ code, /** @type {number} */ offset) =>
    store(to, offset, get(eight), simd(code, 1), simd(0xfa, 1), get(scale), FLOAT_MUL, get(least), FLOAT_ADD);
  const sides = [
    [...simd(0x0c, ...new Array(16).fill(15)), ...simd(0x4e)], // and
    [...constant(4), ...simd(0x6d)], // shift right
  ];
  const parts = sides.flatMap((taken, side) => [
    ...set(nibbles, get(sixteen), taken),
    ...[0x89, 0x8a].flatMap((code, half) => [
      ...set(eight, get(nibbles), simd(code, 1)),
      ...quarter(0xa9, 64 * side + 32 * half),
      ...quarter(0xaa, 64 * side + 32 * half + 16),
    ]),
  ]);
  const scales = [
    ...halves(from, scale),
    ...set(least, spread(scale, 1)),
    ...set(scale, spread(scale, 0)),
    ...set(sixteen, get(from), simd(0x00, 0, 4)),
  ];
  return body(3, 0, 5, until(to, end, scales, parts, step(from, 20), set(to, get(to), [0x41, 0x80, 1], ADD)));
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

/** The module: it imports regard.memory, and exports the functions by their names. */
export function moduleBytes() {
  const named = { unpack8, unpack4, product };
  const functions = Object.values(named).map((make) => make());
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
      Object.keys(named).map((each, place) => [...name(each), 0, place]),
    ),
    ...section(
      10,
      functions.map(({ bytes }) => bytes),
    ),
  ]);
}
