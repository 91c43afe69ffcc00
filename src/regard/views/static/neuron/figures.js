// Numbers to be read, and rows of numbers to be seen.

// Four decimals, fewer where it is large, a power of ten where four decimals would show nothing.
export function formatNumber(value) {
  if (!Number.isFinite(value)) return value < 0 ? "−∞" : "∞";
  const size = Math.abs(value);
  const text = size >= 1e6 || (size > 0 && size < 5e-5) ? value.toExponential(2) : value.toFixed(size >= 1000 ? 2 : 4);
  return text.replace(/^-/, "−");
}

export function largestSize(values, from = 0, count = values.length) {
  let largest = 0;
  for (let i = from; i < from + count; i += 1) largest = Math.max(largest, Math.abs(values[i]));
  return largest;
}

// A strip of bars: above the middle for what is positive, below it for what is negative, so that a sign is seen
// without its colour. `largest` is the value of a full bar.
export function drawBars(canvas, values, { from = 0, count = values.length, largest, width, height, colours }) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const middle = height / 2;
  context.fillStyle = colours.of("--rule");
  context.fillRect(0, middle - 0.5, width, 1);
  if (!(largest > 0)) return;
  const step = width / count;
  const gap = step > 4 ? 1 : step > 2.5 ? 0.5 : 0;
  for (const sign of [1, -1]) {
    context.fillStyle = colours.of(sign > 0 ? "--query" : "--key");
    for (let i = 0; i < count; i += 1) {
      const size = (values[from + i] * sign * (middle - 1)) / largest;
      if (size <= 0) continue;
      const bar = Math.max(size, 0.4);
      context.fillRect(i * step, sign > 0 ? middle - bar : middle, Math.max(step - gap, 0.5), bar);
    }
  }
}
