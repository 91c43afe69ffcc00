// Numbers to be read, and rows of numbers to be seen.

import { printedIn } from "../base/equations.js";

// Four decimals, fewer where it is large, a power of ten where four decimals would show nothing; or some `more`.
export function formatNumber(value, more = 0) {
  if (!Number.isFinite(value)) return value < 0 ? "−∞" : "∞";
  const size = Math.abs(value);
  const small = size > 0 && size < 5e-5;
  const text = size >= 1e6 || small ? value.toExponential(2 + more) : value.toFixed((size >= 1000 ? 2 : 4) + more);
  return text.replace(/^-/, "−");
}

const MORE = [0, 1, 2, 3, 4, 5, 6, 7, 8];
const readNumber = (text) => Number(text.replace("−", "-").replace("∞", "Infinity"));

// How many decimals more than usual the operands of equations, [operands, result], need for all to hold as they are
// printed; a result has `deep` more.
export function decimals(equations, compute, deep = 0) {
  const read = (value, more) => readNumber(formatNumber(value, more));
  const said = equations.map(([, result]) => formatNumber(result, deep)).join();
  const worked = (more) =>
    equations.map(([each]) => formatNumber(compute(...each.map((value) => read(value, more))), deep)).join();
  return printedIn(MORE, () => said, worked);
}

// The operands of one as texts, and what stands before its result.
export function printed(operands, compute, result) {
  const { way, equals } = decimals([[operands, result]], compute);
  return { texts: operands.map((value) => formatNumber(value, way)), equals };
}

export const times = (a, b) => a * b;

// The scale of the scores: where it is what it mostly is, a root to divide by, since its digits would not end.
export function scaleOf({ scale, dim }) {
  const root = Math.abs(scale * Math.sqrt(dim) - 1) < 1e-9;
  return root ? { root, said: `/ √${dim}` } : { root, said: `× ${Number(scale.toPrecision(7))}` };
}

export function largestSize(...lists) {
  let largest = 0;
  for (const list of lists) for (const value of list) largest = Math.max(largest, Math.abs(value));
  return largest;
}

// A strip of bars: above the middle for what is positive, below it for what is negative, so that a sign is seen
// without its colour. `largest` is the value of a full bar.
export function drawBars(canvas, values, { largest, width, height, colours }) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const middle = height / 2;
  context.fillStyle = colours.of("--rule");
  context.fillRect(0, middle - 0.5, width, 1);
  if (!(largest > 0)) return;
  const step = width / values.length;
  const gap = step > 4 ? 1 : step > 2.5 ? 0.5 : 0;
  for (const sign of [1, -1]) {
    context.fillStyle = colours.of(sign > 0 ? "--more" : "--less");
    for (let i = 0; i < values.length; i += 1) {
      const size = (values[i] * sign * (middle - 1)) / largest;
      if (size <= 0) continue;
      const bar = Math.max(size, 0.4);
      context.fillRect(i * step, sign > 0 ? middle - bar : middle, Math.max(step - gap, 0.5), bar);
    }
  }
}
