// The steps of a pass on a GPU, in WGSL: over one memory of float32 and the bytes of a block of weights, as Python packed them.

/** What a step is told, each a number of 32 bits; places and strides are floats, but `at` is bytes. */
export const TOLD = /** @type {const} */ ([
  ...["x", "xStride", "y", "yStride"],
  ...["rows", "columns"], // of a matrix; of a vector its numbers are columns
  ...["at", "bias", "isQ8", "isAdded"], // a matrix, vector or one after the other; a bias, NONE for none
  ...["heads", "group", "k", "v", "kvStride", "norms", "shares", "reach"],
  ...["isKept", "isLast", "isRms", "isGated"], // rows stand behind those of the tokens before; the last token alone
  ...["table", "pairs", "apart", "step"],
  ...["scale", "cap", "eps"], // floats
]);

export const NONE = 0xffffffff;
export const MOST_KEYS = 1024; // for which a workgroup has room
export const WIDE = 32768; // workgroups side by side
export const LANES = 64;

const TANH = "0.5 * x * (1 + tanh(clamp(0.7978845608 * (x + 0.044715 * x * x * x), -15, 15)))";
const GELU = "0.5 * x * (1 + erf(x * 0.7071067812))";
const SILU = "x / (1 + exp(-max(x, -80)))";
/** As in arithmetic.js. @type {Record<string, string>} */
const ACTIVATIONS = { gelu: GELU, gelu_python: GELU, relu: "max(0, x)", silu: SILU, swish: SILU };

/** Steps of so many workgroups: of a product 4 rows and 4 tokens, else of a token, of a head, or of LANES numbers. */
export const STEPS = /** @type {const} */ (["linear", "norm", "turn", "lengths", "attend", "gate", "collect"]);

/** @param {string} activation @returns {string} */
export const shader = (activation) => /* wgsl */ `
struct Now { first: u32, tokens: u32 }
struct Told { ${TOLD.map((name) => `${name}: u32`).join(", ")} }
@group(0) @binding(0) var<uniform> now: Now;
@group(0) @binding(1) var<uniform> op: Told;
@group(0) @binding(2) var<storage, read_write> m: array<f32>;
@group(0) @binding(3) var<storage, read> w: array<u32>;

fn erf(x: f32) -> f32 { // as arithmetic.js
  let t = 1 / (1 + 0.3275911 * abs(x));
  let sum = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  return sign(x) * (1 - sum * exp(-min(x * x, 80)));
}
fn activated(x: f32) -> f32 { return ${ACTIVATIONS[activation] ?? TANH}; }
fn vector(at: u32, i: u32) -> f32 { return bitcast<f32>(w[at / 4 + i]); }
fn place(token: u32) -> u32 { return token + op.isKept * now.first; }

var<workgroup> lanes: array<f32, ${LANES}>;
fn total(lane: u32, value: f32) -> f32 {
  workgroupBarrier();
  lanes[lane] = value;
  workgroupBarrier();
  for (var half = ${LANES / 2}u; half > 0; half /= 2) {
    if (lane < half) { lanes[lane] += lanes[lane + half]; }
    workgroupBarrier();
  }
  return lanes[0];
}

// The four bytes at a place, which is even.
fn word(at: u32) -> u32 {
  let low = w[at / 4];
  if (at % 4 == 0) { return low; }
  return (low >> 16) | (w[at / 4 + 1] << 16);
}
fn signed(bytes: u32) -> vec4f { return vec4f(vec4i(vec4u(bytes) << vec4u(24, 16, 8, 0)) >> vec4u(24)); }
fn nibbles(bytes: u32) -> vec4f { return vec4f((vec4u(bytes) >> vec4u(0, 8, 16, 24)) & vec4u(15)); }
fn four(at: u32) -> vec4f { return vec4f(m[at], m[at + 1], m[at + 2], m[at + 3]); }

// Of a block of 32 numbers a lane takes eight: four, and four that stand 16 behind.
var<workgroup> sums: array<vec4f, 64>;
@compute @workgroup_size(16, 4) fn linear(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_id) id: vec3u) {
  let row = 4 * (group.x + ${WIDE} * group.y) + id.y;
  let token = 4 * group.z;
  let lane = 16 * id.y + id.x;
  let blocks = (op.columns + 31) / 32;
  var sum = vec4f();
  for (var unit = id.x; unit < 4 * blocks && row < op.rows; unit += 16) {
    let part = 4 * (unit % 4);
    let block = row * blocks + unit / 4;
    var low: vec4f;
    var high: vec4f;
    if (op.isQ8 == 1) {
      let at = op.at + 34 * block;
      let scale = unpack2x16float(word(at)).x;
      low = scale * signed(word(at + 2 + part));
      high = scale * signed(word(at + 18 + part));
    } else {
      let at = op.at + 20 * block;
      let ends = unpack2x16float(word(at));
      low = ends.x * nibbles(word(at + 4 + part)) + ends.y;
      high = ends.x * nibbles(word(at + 4 + part) >> 4) + ends.y;
    }
    for (var i = 0u; i < 4; i++) {
      let x = op.x + (token + i) * op.xStride + 32 * (unit / 4) + part;
      sum[i] += dot(low, four(x)) + dot(high, four(x + 16));
    }
  }
  sums[lane] = sum;
  workgroupBarrier();
  for (var half = 8u; half > 0; half /= 2) {
    if (id.x < half) { sums[lane] += sums[lane + half]; }
    workgroupBarrier();
  }
  if (id.x < 4 && row < op.rows) {
    var found = sums[16 * id.y][id.x];
    if (op.bias != ${NONE}) { found += vector(op.bias, row); }
    let to = op.y + place(token + id.x) * op.yStride + row;
    if (op.isAdded == 1) { found += m[to]; }
    m[to] = found;
  }
}

@compute @workgroup_size(${LANES}) fn norm(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let token = place(group.x / op.heads);
  let within = (group.x % op.heads) * op.columns;
  let start = op.x + (token + op.isLast * (now.tokens - 1)) * op.xStride + within;
  let to = op.y + token * op.yStride + within;
  let count = f32(op.columns);
  var mean = 0.0;
  if (op.isRms == 0) {
    var sum = 0.0;
    for (var i = lane; i < op.columns; i += ${LANES}) { sum += m[start + i]; }
    mean = total(lane, sum) / count;
  }
  var square = 0.0;
  for (var i = lane; i < op.columns; i += ${LANES}) { square += (m[start + i] - mean) * (m[start + i] - mean); }
  let factor = 1 / sqrt(total(lane, square) / count + bitcast<f32>(op.eps));
  for (var i = lane; i < op.columns; i += ${LANES}) {
    var found = (m[start + i] - mean) * factor * vector(op.at, i);
    if (op.bias != ${NONE}) { found += vector(op.bias, i); }
    if (op.isAdded == 1) { found += m[to + i]; }
    m[to + i] = found;
  }
}

@compute @workgroup_size(${LANES}) fn turn(@builtin(global_invocation_id) id: vec3u) {
  let pair = id.x % op.pairs;
  let head = id.x / op.pairs % op.heads;
  let token = id.x / op.pairs / op.heads;
  if (token >= now.tokens) { return; }
  let table = op.table + 2 * ((now.first + token) * op.pairs + pair);
  let one = op.y + place(token) * op.yStride + head * op.columns + pair * op.step;
  let other = one + op.apart;
  let a = m[one];
  let b = m[other];
  m[one] = a * m[table] - b * m[table + 1];
  m[other] = b * m[table] + a * m[table + 1];
}

@compute @workgroup_size(${LANES}) fn lengths(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let head = group.x % op.heads;
  let key = now.first + group.x / op.heads;
  let v = op.v + key * op.kvStride + head / op.group * op.columns;
  var square = 0.0;
  for (var i = lane; i < op.columns; i += ${LANES}) {
    var sum = 0.0;
    for (var j = 0u; j < op.columns; j++) { sum += vector(op.at, (head * op.columns + i) * op.columns + j) * m[v + j]; }
    square += sum * sum;
  }
  let found = sqrt(total(lane, square));
  if (lane == 0) { m[op.norms + head * op.reach + key] = found; }
}

var<workgroup> row: array<f32, ${MOST_KEYS}>;
@compute @workgroup_size(${LANES}) fn attend(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let head = group.x % op.heads;
  let token = group.x / op.heads;
  let keys = now.first + token + 1;
  let q = op.x + token * op.xStride + head * op.columns;
  let within = head / op.group * op.columns;
  let cap = bitcast<f32>(op.cap);
  var largest = -3e38;
  for (var key = lane; key < keys; key += ${LANES}) {
    let k = op.k + key * op.kvStride + within;
    var score = 0.0;
    for (var i = 0u; i < op.columns; i++) { score += m[q + i] * m[k + i]; }
    score *= bitcast<f32>(op.scale);
    if (cap > 0) { score = cap * tanh(clamp(score / cap, -15, 15)); }
    row[key] = score;
    largest = max(largest, score);
  }
  lanes[lane] = largest;
  workgroupBarrier();
  for (var i = 0u; i < ${LANES}; i++) { largest = max(largest, lanes[i]); }
  var sum = 0.0;
  for (var key = lane; key < keys; key += ${LANES}) {
    row[key] = exp(row[key] - largest);
    sum += row[key];
  }
  let all = total(lane, sum);
  for (var i = lane; i < op.columns; i += ${LANES}) {
    var found = 0.0;
    for (var key = 0u; key < keys; key++) { found += row[key] * m[op.v + key * op.kvStride + within + i]; }
    m[op.y + token * op.yStride + head * op.columns + i] = found / all;
  }
  if (token + 1 < now.tokens) { return; }
  let shares = op.shares + head * (op.reach + 1);
  for (var key = lane; key < keys; key += ${LANES}) { m[shares + key] = row[key] / all * m[op.norms + head * op.reach + key]; }
  if (lane == 0) { m[shares + op.reach] = row[0] / all; }
}

@compute @workgroup_size(${LANES}) fn gate(@builtin(global_invocation_id) id: vec3u) {
  if (id.x >= op.columns) { return; }
  let at = id.y * op.yStride + id.x;
  var found = activated(m[op.y + at]);
  if (op.isGated == 1) { found *= m[op.x + at]; }
  m[op.y + at] = found;
}

// What all heads of all layers took from each token; and, behind the last, their weights on the first.
@compute @workgroup_size(${LANES}) fn collect(@builtin(global_invocation_id) id: vec3u) {
  if (id.x > op.reach) { return; }
  var sum = 0.0;
  for (var head = 0u; head < op.heads; head++) { sum += m[op.shares + head * (op.reach + 1) + id.x]; }
  m[op.y + id.x] = sum;
}
`;
