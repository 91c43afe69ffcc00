// From the page's base64 to numbers.

// Ascending numbers as [first, last] of each stretch without a gap.
export function stretches(numbers) {
  const found = [];
  for (const number of numbers) {
    const last = found.at(-1);
    if (last && last[1] === number - 1) last[1] = number;
    else found.push([number, number]);
  }
  return found;
}

// The bytes of a block. Those that a live page has worked out are bytes already.
export function decodeBase64(text) {
  if (typeof text !== "string") return text;
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i += 1) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

// Steps have eight bits of precision: a file holds the upper half of their float32.
function decodeSteps(text) {
  const halves = new Uint16Array(decodeBase64(text).buffer);
  return new Float32Array(Uint32Array.from(halves, (half) => half << 16).buffer);
}

// Float32Array (outer, middle, inner) of { values, steps }: integers times a step for each (outer, inner), or
// float32 as it is. Storing int * step in float32 rounds once, as Python's check does.
export function decodeValues({ values, steps }, readBlock, outer, inner) {
  const raw = decodeBase64(readBlock(values)).buffer;
  if (steps === null) return new Float32Array(raw);
  const integers = new Int16Array(raw);
  const step = decodeSteps(readBlock(steps));
  const out = new Float32Array(integers.length);
  const perOuter = integers.length / outer;
  for (let o = 0; o < outer; o += 1) {
    for (let i = 0; i < inner; i += 1) {
      const by = step[o * inner + i];
      const end = (o + 1) * perOuter;
      for (let at = o * perOuter + i; at < end; at += inner) out[at] = integers[at] * by;
    }
  }
  return out;
}

// The same where each (outer, middle), a row, has a step: a dense bias.
export function decodeRows({ values, steps }, readBlock, rows) {
  const raw = decodeBase64(readBlock(values)).buffer;
  if (steps === null) return new Float32Array(raw);
  const integers = new Int16Array(raw);
  const step = decodeSteps(readBlock(steps));
  const width = integers.length / rows;
  const out = new Float32Array(integers.length);
  for (let at = 0; at < out.length; at += 1) out[at] = integers[at] * step[Math.floor(at / width)];
  return out;
}
