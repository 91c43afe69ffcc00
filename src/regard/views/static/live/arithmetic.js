// What a forward pass does to numbers one by one, in float64, over rows of float32.

// erf by Abramowitz and Stegun 7.1.26, within 1.5e-7: less than float32 keeps of a GELU.
/** @param {number} x */
function erf(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const sum = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  const found = 1 - sum * Math.exp(-x * x);
  return x < 0 ? -found : found;
}

const ROOT_HALF = Math.sqrt(0.5);
const ROOT_OF_2_OVER_PI = Math.sqrt(2 / Math.PI);

/** @param {number} x */
const gelu = (x) => 0.5 * x * (1 + erf(x * ROOT_HALF));
/** @param {number} x */
const tanhGelu = (x) => 0.5 * x * (1 + Math.tanh(ROOT_OF_2_OVER_PI * (x + 0.044715 * x * x * x)));

/** @param {number} x */
const silu = (x) => x / (1 + Math.exp(-x));

/** The activations that Python packs, by the names of regard.blocks. @type {Record<string, (x: number) => number>} */
export const ACTIVATIONS = {
  gelu,
  gelu_python: gelu,
  gelu_new: tanhGelu,
  gelu_pytorch_tanh: tanhGelu,
  gelu_fast: tanhGelu,
  relu: (x) => Math.max(0, x),
  silu,
  swish: silu,
};

/** Kept softly within a bound, where there is one. @param {number} x @param {number | null} cap */
export const capped = (x, cap) => (cap === null ? x : cap * Math.tanh(x / cap));

/**
 * LayerNorm of each row, in place.
 * @param {Float32Array} x rows one after the other
 * @param {number} width numbers in a row
 * @param {number} stride from row to row
 * @param {Float32Array} weight
 * @param {Float32Array} bias
 * @param {number} eps
 */
export function layerNorm(x, width, stride, weight, bias, eps) {
  for (let at = 0; at < x.length; at += stride) {
    let mean = 0;
    for (let i = 0; i < width; i += 1) mean += x[at + i];
    mean /= width;
    let variance = 0;
    for (let i = 0; i < width; i += 1) variance += (x[at + i] - mean) ** 2;
    const factor = 1 / Math.sqrt(variance / width + eps);
    for (let i = 0; i < width; i += 1) x[at + i] = (x[at + i] - mean) * factor * weight[i] + bias[i];
  }
}

/**
 * The same without a mean and a bias: RMSNorm.
 * @param {Float32Array} x @param {number} width @param {number} stride @param {Float32Array} weight @param {number} eps
 */
export function rmsNorm(x, width, stride, weight, eps) {
  for (let at = 0; at < x.length; at += stride) {
    let square = 0;
    for (let i = 0; i < width; i += 1) square += x[at + i] ** 2;
    const factor = 1 / Math.sqrt(square / width + eps);
    for (let i = 0; i < width; i += 1) x[at + i] *= factor * weight[i];
  }
}

/** Softmax of the first numbers of a row, in place. @param {Float64Array} row @param {number} count */
export function softmax(row, count) {
  let largest = -Infinity;
  for (let i = 0; i < count; i += 1) largest = Math.max(largest, row[i]);
  let total = 0;
  for (let i = 0; i < count; i += 1) {
    row[i] = Math.exp(row[i] - largest);
    total += row[i];
  }
  for (let i = 0; i < count; i += 1) row[i] /= total;
}

/**
 * The likeliest of a row of logits.
 * @param {Float32Array} logits
 * @param {number} count
 * @returns {{ id: number, probability: number }[]}
 */
export function likeliest(logits, count) {
  let largest = -Infinity;
  for (const each of logits) largest = Math.max(largest, each);
  let total = 0;
  for (const each of logits) total += Math.exp(each - largest);
  return topOf(logits, count).map((id) => ({ id, probability: Math.exp(logits[id] - largest) / total }));
}

/**
 * Shares of some tokens at a temperature: those of logits that are divided by it; at 0 the likeliest has all.
 * @param {Float32Array} logits @param {number} temperature @param {{ id: number, probability: number }[]} best
 */
export function tempered(logits, temperature, best) {
  let [largest, total] = [-Infinity, 0];
  for (const each of logits) largest = Math.max(largest, each);
  const odds = (/** @type {number} */ logit) => Math.exp((logit - largest) / temperature);
  if (temperature > 0) for (const each of logits) total += odds(each);
  return best.map((each, at) => ({
    ...each,
    tempered: temperature > 0 ? odds(logits[each.id]) / total : Number(at === 0),
  }));
}

/**
 * The token at which the shares before it, at a temperature, come to `drawn`; and how far into its own share that is, by which
 * another one can be drawn.
 * @param {Float32Array} logits @param {number} temperature above 0 @param {number} drawn from 0 to 1
 */
export function sampled(logits, temperature, drawn) {
  let largest = -Infinity;
  for (const each of logits) largest = Math.max(largest, each);
  const odds = Float64Array.from(logits, (each) => Math.exp((each - largest) / temperature));
  let left = drawn * odds.reduce((sum, each) => sum + each, 0);
  const id = odds.findIndex((each) => {
    left -= each;
    return left < 0;
  });
  if (id < 0) return { id: odds.lastIndexOf(1), inside: 0 }; // by rounding
  return { id, inside: 1 + left / odds[id] };
}

/** The places of the largest numbers, of equals the first. @param {Float32Array} numbers @param {number} count */
export function topOf(numbers, count) {
  /** @type {number[]} */
  const best = [];
  let least = -Infinity; // of them, once there are as many as wanted
  for (let at = 0; at < numbers.length; at += 1) {
    if (best.length === count && numbers[at] <= least) continue;
    const place = best.findIndex((other) => numbers[other] < numbers[at]);
    best.splice(place < 0 ? best.length : place, 0, at);
    best.length = Math.min(best.length, count);
    least = numbers[best[best.length - 1]];
  }
  return best;
}
