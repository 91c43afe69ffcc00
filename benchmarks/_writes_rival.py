"""SmolLM2 in a browser as others would run it: onnxruntime-web, in WebAssembly, with a cache.

The graphs are made here, of the weights that regard's page has, with the operators that ONNX Runtime has for
such models: grouped-query attention with its cache and rotary positions, norms fused with the residual sum.

float32  Each matrix unpacked, for MatMul.
blocks   MatMulNBits, in the file's own blocks of 32. It counts 4-bit numbers from 8 and knows no least number
         of a block, which Q4_1 has: that times the sum of what is multiplied by the block is added. The
         embeddings, in 8 bits, are there once.

Both give Python's logits. With activations in 8 bits, by `accuracy_level` 4 or MatMulInteger, ONNX Runtime
does not (they differ by 0.6 and 9), and it was slower than in float32.
"""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper, numpy_helper, save
from playwright.sync_api import Browser, Page

import regard
from regard.blocks import unpacked

FORMS = ("float32", "blocks")
VERSION = "1.30.0"
BUILD = Path(__file__).parent.parent / "build"

OPEN = """async ({ web, model, shape }) => {
    const ort = await import(`${web}ort.wasm.min.mjs`);
    ort.env.wasm.numThreads = 1;
    ort.env.wasm.wasmPaths = web;
    const start = performance.now();
    const session = await ort.InferenceSession.create(model, { executionProviders: ["wasm"] });
    const pasts = session.inputNames.filter(name => name.startsWith("past"));
    const whole = numbers =>
        new ort.Tensor("int64", BigInt64Array.from(numbers, BigInt), [1, numbers.length]);
    let [past, total, logits] = [{}, 0, null];
    const read = async ids => {
        total += ids.length;
        const out = await session.run({ ...past, ids: whole(ids), mask: whole(new Array(total).fill(1)) });
        for (const name of pasts) past[name] = out[name.replace("past", "present")];
        logits = out.logits.data;
    };
    window.prompt = async ids => {
        const start = performance.now();
        for (const name of pasts) past[name] = new ort.Tensor("float32", new Float32Array(0), shape);
        total = 0;
        await read(ids);
        return performance.now() - start;
    };
    window.logits = () => Array.from(logits);
    window.written = async count => {
        const [ids, times] = [[], []];
        while (times.length < count) {
            const start = performance.now();
            ids.push(logits.reduce((best, each, id) => (each > logits[best] ? id : best), 0));
            await read(ids.slice(-1));
            times.push(performance.now() - start);
        }
        return { ids, times };
    };
    return performance.now() - start;
}"""


def installed() -> Path:
    """The folder of the package from npm."""
    folder = BUILD / f"onnxruntime-web-{VERSION}"
    if not (folder / "node_modules").exists():
        npm = [str(Path(sys.executable).with_name("npm")), "install", "--ignore-scripts", "--silent"]
        subprocess.run([*npm, "--prefix", str(folder), f"onnxruntime-web@{VERSION}"], check=True)
    return folder


@contextmanager
def rival(browser: Browser, model: regard.Model, form: str, place: Path) -> Iterator[Page]:
    """A page that has `prompt(ids)`, which takes milliseconds, then `logits()` and `written(count)`."""
    exported(model, form, place / f"{form}.onnx")
    if not (place / "web").exists():
        (place / "web").symlink_to(installed() / "node_modules/onnxruntime-web/dist")
    (place / "index.html").write_text("<!doctype html><title>onnxruntime-web</title>")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(place)))
    Thread(target=server.serve_forever, daemon=True).start()
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{server.server_port}/index.html")
    config: Any = model.loaded.network.config
    shape = [1, config.num_kv_heads, 0, config.head_dim]
    page.evaluate(OPEN, {"web": "/web/", "model": f"/{form}.onnx", "shape": shape})
    yield page
    page.close()
    server.shutdown()
    server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


class _Graph:
    """Nodes and constants, as they come."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def keep(self, name: str, array: npt.ArrayLike) -> str:
        self.constants.setdefault(name, numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def sizes(self, *numbers: int) -> str:
        return self.keep(f"sizes {numbers}", np.array(numbers, np.int64))

    def add(self, op: str, *inputs: str, into: Sequence[str] = (), **attributes: Any) -> str:
        """The name of the first output."""
        own = op in ("MatMulNBits", "GatherBlockQuantized", "GroupQueryAttention") or op.startswith("Skip")
        names = list(into) or [f"{op} {len(self.nodes)}"]
        domain = "com.microsoft" if own else ""
        self.nodes.append(helper.make_node(op, inputs, names, domain=domain, **attributes))
        return names[0]


class _Float32(_Graph):
    def __init__(self, network: Any) -> None:
        super().__init__()
        named = dict(unpacked(network).named_parameters())
        self.numbers = {name: each.detach().float().numpy() for name, each in named.items()}

    def embedded(self, name: str) -> str:
        return self.add("Gather", self.keep(name, self.numbers[name]), "ids")

    def linear(self, x: str, name: str) -> str:
        return self.add("MatMul", x, self.keep(name, self.numbers[name].T))

    def head(self, x: str, name: str) -> str:
        row = self.add("Reshape", x, self.sizes(1, -1))
        return self.add("Gemm", row, name, into=["logits"], transB=1)


class _Blocks(_Float32):
    def __init__(self, network: Any) -> None:
        super().__init__(network)
        modules = network.named_modules()
        self.packed = {f"{name}.weight": each.packed for name, each in modules if hasattr(each, "packed")}
        self.sums: dict[str, str] = {}

    def embedded(self, name: str) -> str:
        blocks = self.of(name, "Q8_0")
        scales = blocks[..., :2].copy().view(np.float16)[..., 0].astype(np.float32)
        integers = (blocks[..., 2:].view(np.int8).astype(np.int16) + 128).astype(np.uint8)
        table = self.keep(name, integers.reshape(len(integers), -1))
        attributes = {"gather_axis": 0, "quantize_axis": 1, "block_size": 32, "bits": 8}
        return self.add(
            "GatherBlockQuantized", table, "ids", self.keep(f"{name} scales", scales), **attributes
        )

    def linear(self, x: str, name: str) -> str:
        blocks = self.of(name, "Q4_1")
        rows, count, _ = blocks.shape
        scales, least = np.moveaxis(blocks[..., :4].copy().view(np.float16).astype(np.float32), -1, 0)
        numbers = np.concatenate([blocks[..., 4:] & 15, blocks[..., 4:] >> 4], axis=-1)
        halves = self.keep(name, numbers[..., ::2] | numbers[..., 1::2] << 4)
        sizes = {"K": 32 * count, "N": rows, "bits": 4, "block_size": 32}
        y = self.add("MatMulNBits", x, halves, self.keep(f"{name} scales", scales), **sizes)
        if x not in self.sums:
            apart = self.add("Reshape", x, self.sizes(0, 0, count, 32))
            self.sums[x] = self.add("ReduceSum", apart, self.sizes(-1), keepdims=0)
        more = self.add("MatMul", self.sums[x], self.keep(f"{name} least", (least + 8 * scales).T))
        return self.add("Add", y, more)

    def head(self, x: str, name: str) -> str:
        rows, count, _ = self.of(name, "Q8_0").shape
        table = self.add("Reshape", name, self.sizes(rows, count, 32))
        row = self.add("Reshape", x, self.sizes(1, -1))
        sizes = {"K": 32 * count, "N": rows, "bits": 8, "block_size": 32}
        return self.add("MatMulNBits", row, table, f"{name} scales", into=["logits"], **sizes)

    def of(self, name: str, kind: str) -> npt.NDArray[np.uint8]:
        """(rows, blocks, bytes of a block)."""
        packed = self.packed[name]
        if packed.kind.name != kind:
            raise SystemExit(f"{name}: wanted blocks of {kind}, got {packed.kind.name}")
        blocks: npt.NDArray[np.uint8] = packed.blocks.numpy()
        return blocks.reshape(len(blocks), -1, {"Q4_1": 20, "Q8_0": 34}[kind])


def exported(model: regard.Model, form: str, path: Path) -> None:
    """Write the graph: ids, a mask and what was read before give the last token's logits and what to keep."""
    network = model.loaded.network
    config: Any = network.config
    graph = {"float32": _Float32, "blocks": _Blocks}[form](network)
    keys, dim, eps = config.num_kv_heads, config.head_dim, float(config.norm_eps)
    frequencies = config.rotary.base ** (-np.arange(0, dim, 2) / dim)
    angles = np.outer(np.arange(1024), frequencies).astype(np.float32)
    turns = graph.keep("cos", np.cos(angles)), graph.keep("sin", np.sin(angles))
    length = graph.add(
        "Cast", graph.add("ReduceSum", "mask", graph.sizes(1), keepdims=0), to=TensorProto.INT32
    )
    before = graph.add("Sub", length, graph.keep("one", np.array([1], np.int32)))
    total = graph.add("Reshape", length, graph.keep("scalar", np.array([], np.int64)))
    attention = {"num_heads": config.num_heads, "kv_num_heads": keys, "do_rotary": 1, "scale": dim**-0.5}
    kind = TensorProto.FLOAT
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, [1, name]) for name in ("ids", "mask")]
    outputs = [helper.make_tensor_value_info("logits", kind, [1, config.vocab_size])]

    def normed(stream: str, more: str, name: str) -> tuple[str, str]:
        """The norm of a sum, and the sum."""
        weight = graph.keep(name, graph.numbers[f"{name}.weight"])
        names = [f"{name} of", "", "", f"{name} sum"]
        graph.add("SkipSimplifiedLayerNormalization", stream, more, weight, into=names, epsilon=eps)
        return names[0], names[3]

    table = "decoder.embeddings.tokens.weight"
    stream = graph.embedded(table)
    more = graph.add("Sub", stream, stream)  # nothing is added yet
    for number in range(config.num_layers):
        name = f"decoder.layers.{number}"
        entering, stream = normed(stream, more, f"{name}.attention_residual.norm")
        heads = [graph.linear(entering, f"{name}.attention.{part}.weight") for part in "qkv"]
        past, present = ([f"{when}.{number}.{part}" for part in "kv"] for when in ("past", "present"))
        context = graph.add(
            "GroupQueryAttention",
            *(*heads, *past, before, total, *turns),
            into=[f"{name} context", *present],
            **attention,
        )
        inputs += [helper.make_tensor_value_info(each, kind, [1, keys, "past", dim]) for each in past]
        outputs += [helper.make_tensor_value_info(each, kind, [1, keys, "mask", dim]) for each in present]
        more = graph.linear(context, f"{name}.attention.output.weight")
        between, stream = normed(stream, more, f"{name}.ffn_residual.norm")
        gate, up = (graph.linear(between, f"{name}.ffn.{part}.weight") for part in ("gate", "up"))
        opened = graph.add("Mul", graph.add("Mul", gate, graph.add("Sigmoid", gate)), up)
        more = graph.linear(opened, f"{name}.ffn.output.weight")
    hidden, _ = normed(stream, more, "decoder.norm")
    graph.head(graph.add("Gather", hidden, graph.sizes(-1), axis=1), table)
    made = helper.make_graph(graph.nodes, "smollm2", inputs, outputs, list(graph.constants.values()))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    save(helper.make_model(made, opset_imports=opsets, ir_version=8), path)
