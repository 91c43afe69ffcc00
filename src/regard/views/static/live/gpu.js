// The next word of a text that goes on, worked out on a GPU where there is one: the weights lie there as Python packed them,
// keys and values are kept there, and of a pass what the head says and what the last word took come back. workspace.js and
// model.js do the same without.

import { capped } from "./arithmetic.js";
import { LANES, MOST_KEYS, NONE, STEPS, shader, TOLD, WIDE } from "./shaders.js";

/**
 * @typedef {import("./model.js").Description} Description
 * @typedef {typeof TOLD[number]} Name
 * @typedef {{ at: number, stride: number }} Area rows of float32, one a token, in floats
 * @typedef {object} Step
 * @property {typeof STEPS[number]} name
 * @property {string} block of the weights
 * @property {Partial<Record<Name, number>>} told
 * @property {(tokens: number) => number[]} groups of lanes, in up to three directions
 */

const FLOATS = new Set(/** @type {Name[]} */ (["scale", "cap", "eps"]));
// As WebGPU numbers what a buffer is for, how it is mapped, and what sees it.
const [MAP_READ, COPY_SRC, COPY_DST, UNIFORM, STORAGE, READ, COMPUTE] = [1, 4, 8, 64, 128, 1, 4];
const APART = 256; // bytes from what one step is told to the next

/** @param {number} count @param {number} to */
const upTo = (count, to) => to * Math.ceil(count / to);
/** @param {number} count */
const inLanes = (count) => Math.ceil(count / LANES);

/** Whether a pass of such a model is written here. @param {Description} description */
export function isKnown({ head, norm, causal, positions, tensors }) {
  const isWhole = head === "next" && norm === "pre" && causal && positions <= MOST_KEYS;
  return isWhole && Boolean(tensors["norm.weight"]) && !tensors["head.output.bias"];
}

export class Gpu {
  /**
   * The weights, on the GPU; null where there is none that computes itself. It may have failed.
   * @param {Description} description
   * @param {(name: string) => Uint8Array} bytes of a block
   * @param {boolean} [isAny] an adapter too that is software
   * @returns {Promise<Gpu | null>}
   */
  static async open(description, bytes, isAny = false) {
    if (!isKnown(description)) return null;
    const adapter = await globalThis.navigator?.gpu?.requestAdapter();
    if (!adapter || (adapter.info.isFallbackAdapter && !isAny)) return null;
    const plan = new Plan(description);
    const largest = Math.max(4 * plan.size, ...Object.values(description.blocks).map((each) => each.bytes));
    const { maxStorageBufferBindingSize, maxBufferSize } = adapter.limits;
    if (largest > Math.min(maxStorageBufferBindingSize, maxBufferSize)) return null;
    const device = await adapter.requestDevice({ requiredLimits: { maxStorageBufferBindingSize, maxBufferSize } });
    device.pushErrorScope("out-of-memory");
    device.pushErrorScope("validation");
    const gpu = new Gpu(device, description, plan, bytes);
    for (let scope = 0; scope < 2; scope += 1) gpu.failed ||= (await device.popErrorScope())?.message ?? "";
    return gpu;
  }

  /** @param {GPUDevice} device @param {Description} description @param {Plan} plan @param {(name: string) => Uint8Array} bytes */
  constructor(device, description, plan, bytes) {
    this.device = device;
    this.plan = plan;
    this.failed = ""; // and why
    device.lost.then(({ message }) => (this.failed ||= message || "it was lost"));
    device.onuncapturederror = ({ error }) => (this.failed ||= error.message);
    const buffer = (/** @type {number} */ size, /** @type {number} */ usage) => device.createBuffer({ size, usage });
    this.memory = buffer(4 * plan.size, STORAGE | COPY_DST | COPY_SRC);
    this.now = buffer(8, UNIFORM | COPY_DST);
    this.back = buffer(4 * (description.vocabulary + plan.reach + 1), MAP_READ | COPY_DST);
    for (const [at, table] of plan.tables) device.queue.writeBuffer(this.memory, 4 * at, table);
    const told = buffer(APART * plan.steps.length, UNIFORM | COPY_DST);
    device.queue.writeBuffer(told, 0, plan.told());

    const types = /** @type {const} */ (["uniform", "uniform", "storage", "read-only-storage"]);
    const layout = device.createBindGroupLayout({
      entries: types.map((type, binding) => ({
        binding,
        visibility: COMPUTE,
        buffer: { type, hasDynamicOffset: binding === 1 },
      })),
    });
    const module = device.createShaderModule({ code: shader(description.activation) });
    const whole = device.createPipelineLayout({ bindGroupLayouts: [layout] });
    this.pipelines = Object.fromEntries(
      STEPS.map((entryPoint) => [
        entryPoint,
        device.createComputePipeline({ layout: whole, compute: { module, entryPoint } }),
      ]),
    );
    this.groups = Object.fromEntries(
      Object.entries(description.blocks).map(([name, { bytes: size }]) => {
        const weights = buffer(upTo(size, 4) + 4, STORAGE | COPY_DST); // the last word may be read across two
        device.queue.writeBuffer(weights, 0, bytes(name));
        const bound = [this.now, told, this.memory, weights].map((each, binding) => ({
          binding,
          resource: { buffer: each, size: binding === 1 ? 4 * TOLD.length : undefined },
        }));
        return [name, device.createBindGroup({ layout, entries: bound })];
      }),
    );
  }

  /**
   * What the head says after some tokens, and what the last took from each; null where the GPU failed.
   * @param {Float32Array} x their embeddings, in the rows of a Workspace
   * @param {number} tokens
   * @param {number} first position; those before were read
   * @returns {Promise<{ logits: Float32Array, taken: Float64Array, rests: number } | null>}
   */
  async read(x, tokens, first) {
    try {
      const { device, memory, back, plan } = this;
      device.queue.writeBuffer(memory, 4 * plan.x.at, x);
      device.queue.writeBuffer(this.now, 0, new Uint32Array([first, tokens]));
      const encoder = device.createCommandEncoder();
      const pass = encoder.beginComputePass();
      for (const [place, { name, block, groups }] of plan.steps.entries()) {
        pass.setPipeline(this.pipelines[name]);
        pass.setBindGroup(0, this.groups[block], [APART * place]);
        const [across, down, deep] = groups(tokens);
        pass.dispatchWorkgroups(across, down, deep);
      }
      pass.end();
      const said = 4 * plan.vocabulary;
      encoder.copyBufferToBuffer(memory, 4 * plan.logits.at, back, 0, said);
      encoder.copyBufferToBuffer(memory, 4 * plan.taken.at, back, said, back.size - said);
      device.queue.submit([encoder.finish()]);
      await back.mapAsync(READ);
      const found = new Float32Array(back.getMappedRange().slice(0));
      back.unmap();
      const taken = found.subarray(plan.vocabulary);
      return this.failed
        ? null
        : {
            logits: found.slice(0, plan.vocabulary).map((each) => capped(each, plan.softcap)),
            taken: Float64Array.from(taken.subarray(0, first + tokens)),
            rests: taken[plan.reach],
          };
    } catch (error) {
      this.failed ||= error.message;
      return null;
    }
  }
}

/** Where everything is in the memory, and the steps of a pass. */
class Plan {
  /** @param {Description} description */
  constructor(description) {
    this.description = description;
    const { dim, layers, positions, vocabulary, tensors, output, gated } = description;
    const rowsOf = (/** @type {string} */ name) => tensors[name].rows;
    const widest = (/** @type {string} */ part) =>
      Math.max(...layers.map((_, layer) => rowsOf(`layers.${layer}.${part}.weight`)));
    this.size = 0;
    this.reach = positions;
    this.vocabulary = vocabulary;
    this.softcap = description.softcap;
    /** @type {Step[]} */
    this.steps = [];
    /** @type {[number, Float32Array<ArrayBuffer>][]} */
    this.tables = [];
    const [wide, inside] = [widest("attention.q"), widest(gated ? "ffn.gate" : "ffn.hidden")];
    const x = (this.x = this.area(dim));
    const [y, q, context] = [dim, wide, wide].map((width) => this.area(width));
    const [inner, gate] = [inside, gated ? inside : 0].map((width) => this.area(width));
    this.logits = this.area(rowsOf(output), 4);
    const all = layers.reduce((sum, { heads }) => sum + heads, 0);
    const collected = this.area(positions + 1, all, 1).at;
    let shares = collected;
    this.taken = this.area(positions + 1, 1);

    for (const [number, { heads, kvHeads, scale, softcap, rotary }] of layers.entries()) {
      const name = `layers.${number}`;
      const [width, kvWidth] = [heads, kvHeads].map((_, i) => rowsOf(`${name}.attention.${["q", "k"][i]}.weight`));
      const columns = width / heads;
      const [k, v] = [this.area(kvWidth, positions + 4), this.area(kvWidth, positions + 4)];
      const norms = this.area(positions, heads, 1).at;
      const table = rotary && this.table(rotary);
      const own = { heads, columns, group: heads / kvHeads, norms, reach: positions };
      const kept = { k: k.at, v: v.at, kvStride: k.stride };
      const after = (/** @type {Area} */ from, /** @type {string} */ part, /** @type {string} */ norm) => {
        const isNormed = Boolean(tensors[`${name}.${norm}.after.weight`]);
        this.linear(`${name}.${part}`, from, isNormed ? y : x, { isAdded: Number(!isNormed) });
        if (isNormed) this.norm(`${name}.${norm}.after`, y, x, { isAdded: 1 });
      };

      this.norm(`${name}.attention_residual.norm`, x, y);
      for (const [part, to, of] of /** @type {[string, Area, number][]} */ ([
        ["q", q, heads],
        ["k", k, kvHeads],
        ["v", v, kvHeads],
      ])) {
        const isKept = Number(part !== "q");
        const normed = `${name}.attention.${part}_norm`;
        this.linear(`${name}.attention.${part}`, y, to, { isKept });
        if (tensors[`${normed}.weight`]) this.norm(normed, to, to, { heads: of, isKept, columns, isRms: 1 });
        if (!table || part === "v") continue;
        const told = { ...table, heads: of, columns, y: to.at, yStride: to.stride, isKept };
        this.add("turn", name, told, (tokens) => [inLanes(tokens * of * table.pairs)]);
      }
      const byHead = (/** @type {number} */ tokens) => [tokens * heads];
      const triangles = tensors[`${name}.attention.triangles`];
      this.add("lengths", triangles.block, { ...own, ...kept, at: triangles.at }, byHead);
      const told = { ...own, ...kept, shares, scale, cap: softcap ?? 0, x: q.at, xStride: q.stride };
      this.add("attend", name, { ...told, y: context.at, yStride: context.stride }, byHead);
      shares += heads * (positions + 1);
      after(context, "attention.output", "attention_residual");
      this.norm(`${name}.ffn_residual.norm`, x, y);
      this.linear(`${name}.ffn.${gated ? "gate" : "hidden"}`, y, inner);
      if (gated) this.linear(`${name}.ffn.up`, y, gate);
      const { columns: of } = tensors[`${name}.ffn.output.weight`];
      const opened = { x: gate.at, y: inner.at, yStride: inner.stride, columns: of, isGated: Number(gated) };
      this.add("gate", name, opened, (tokens) => [inLanes(of), tokens]);
      after(inner, "ffn.output", "ffn_residual");
    }
    const { block } = tensors["norm.weight"];
    this.norm("norm", x, y, { isLast: 1 });
    this.linear(output, y, this.logits, {}, () => 1);
    const told = { shares: collected, heads: all, reach: positions, y: this.taken.at };
    this.add("collect", block, told, () => [inLanes(positions + 1)]);
  }

  /**
   * @param {number} width
   * @param {number} [rows] of all tokens, by fours
   * @param {number} [to] what strides are a multiple of
   * @returns {Area}
   */
  area(width, rows = upTo(this.reach, 4), to = 32) {
    const found = { at: this.size, stride: upTo(width, to) };
    this.size += upTo(rows * found.stride, 4);
    return found;
  }

  /** The cosines and sines of all positions. @param {import("./model.js").Rotary} rotary */
  table({ frequencies, layout, amplitude }) {
    const pairs = frequencies.length;
    const turns = new Float32Array(2 * pairs * this.reach);
    for (let at = 0; at < turns.length; at += 2) {
      const angle = Math.fround(Math.floor(at / 2 / pairs) * frequencies[(at / 2) % pairs]);
      turns[at] = Math.fround(Math.cos(angle)) * amplitude;
      turns[at + 1] = Math.fround(Math.sin(angle)) * amplitude;
    }
    const { at } = this.area(turns.length, 1);
    this.tables.push([at, turns]);
    const [apart, step] = layout === "half" ? [pairs, 1] : [1, 2];
    return { table: at, pairs, apart, step };
  }

  /** @param {Step["name"]} name @param {string} block @param {Step["told"]} told @param {Step["groups"]} groups */
  add(name, block, told, groups) {
    this.steps.push({ name, block, told, groups });
  }

  /**
   * @param {string} name of a weight, with its bias
   * @param {Area} from @param {Area} to @param {Step["told"]} [more] @param {(tokens: number) => number} [count]
   */
  linear(name, from, to, more = {}, count = (tokens) => tokens) {
    const { tensors } = this.description;
    const { block, at, rows, columns, type } = tensors[name] ?? tensors[`${name}.weight`];
    const bias = tensors[`${name}.bias`]?.at ?? NONE;
    const told = { ...placed(from, to), at, rows, columns, isQ8: Number(type === "Q8_0"), bias, ...more };
    const fours = rows / 4 > WIDE ? [WIDE, Math.ceil(rows / 4 / WIDE)] : [Math.ceil(rows / 4), 1];
    this.add("linear", block, told, (tokens) => [...fours, Math.ceil(count(tokens) / 4)]);
  }

  /** @param {string} name @param {Area} from @param {Area} to @param {Step["told"]} [more] */
  norm(name, from, to, more = {}) {
    const { tensors, rms, eps, dim } = this.description;
    const { block, at } = tensors[`${name}.weight`];
    const bias = tensors[`${name}.bias`]?.at ?? NONE;
    const told = { ...placed(from, to), at, bias, columns: dim, heads: 1, isRms: Number(rms), eps, ...more };
    this.add("norm", block, told, (tokens) => [more.isLast ? 1 : tokens * told.heads]);
  }

  /** What all steps are told, as a GPU reads it. */
  told() {
    const out = new DataView(new ArrayBuffer(APART * this.steps.length));
    for (const [place, { told }] of this.steps.entries())
      for (const [i, name] of TOLD.entries()) {
        const [at, value] = [APART * place + 4 * i, told[name] ?? 0];
        if (FLOATS.has(name)) out.setFloat32(at, value, true);
        else out.setUint32(at, value, true);
      }
    return out;
  }
}

/** @param {Area} from @param {Area} to */
const placed = (from, to) => ({ x: from.at, xStride: from.stride, y: to.at, yStride: to.stride });
