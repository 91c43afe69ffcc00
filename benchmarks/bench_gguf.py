"""A GGUF file's weights left in their blocks: writing beside llama.cpp, and traces of 1 to 8 billion weights.

    python benchmarks/bench_gguf.py [--parts write trace] [--shapes 1B 3B 8B] [--keep]

write    SmolLM2-135M-Instruct (Q4_1), 64 tokens after a short prompt, greedily: from its blocks, unpacked to
         float32, by llama.cpp on the same file (`pip install xllamacpp`), and by transformers in float32;
         in turns, on one thread, by the processor's clock, which a busy machine disturbs less.
trace    files of the shapes of Llama 3 (Q4_K; the table, which is the head too, and values Q6_K) with random
         blocks, made here: a trace of 512 tokens in a process of its own, from the blocks in float32 and in
         bfloat16, and of the same network held in memory in bfloat16; and the memory of each.

The answers are checked first: the tokens are the same, and so are the hidden states of the two in bfloat16.
The last line is the result as JSON; --keep writes it into benchmarks/results/.
"""

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from _harness import finish, machine
from gguf import GGML_QUANT_SIZES
from gguf import GGMLQuantizationType as Kind

PROMPT, NEW = "The three primary colours are", 64  # and no end before

SHAPES: dict[str, dict[str, int]] = {
    "1B": {"layers": 16, "width": 2048, "inner": 8192, "heads": 32, "kv": 8, "vocabulary": 128_256},
    "3B": {"layers": 28, "width": 3072, "inner": 8192, "heads": 24, "kv": 8, "vocabulary": 128_256},
    "8B": {"layers": 32, "width": 4096, "inner": 14_336, "heads": 32, "kv": 8, "vocabulary": 128_256},
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--parts", nargs="+", choices=("write", "trace"), default=["write", "trace"])
    arguments.add_argument("--shapes", nargs="+", choices=SHAPES, default=["1B", "3B"])
    arguments.add_argument("--tokens", type=int, default=512)
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--threads", type=int, default=1, help="of the writing")
    arguments.add_argument(
        "--folder", type=Path, help="where the large files are made; by default a temporary one"
    )
    arguments.add_argument("--child", nargs=3, metavar=("FILE", "HOW", "TOKENS"), help=argparse.SUPPRESS)
    arguments.add_argument("--keep", action="store_true", help="keep the result in benchmarks/results/")
    options = arguments.parse_args()
    if options.child:
        child(Path(options.child[0]), options.child[1], int(options.child[2]))
        return
    rows: list[dict[str, Any]] = []
    if "write" in options.parts:
        rows += list(write(options))
    if "trace" in options.parts:
        rows += list(trace(options))
    finish("gguf", machine("transformers", "gguf", "llvmlite"), rows, keep=options.keep)


def write(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Tokens a second."""
    from regard.checkpoints import DEFAULT_DECODER, find

    torch.set_num_threads(options.threads)
    file = find(DEFAULT_DECODER).folder
    ways = {
        "blocks": ours(file, packed=True),
        "float32": ours(file, packed=False),
        "transformers": theirs(file),
    }
    if importlib.util.find_spec("xllamacpp"):
        ways["llama.cpp"] = llama_cpp(file, options.threads)
    clock = time.process_time if options.threads == 1 else time.perf_counter
    texts = {name: way() for name, way in ways.items()}  # which warms up, too
    assert texts["blocks"] == texts["float32"] == texts["transformers"], texts
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.repeats):
        for name, way in ways.items():
            start = clock()
            way()
            times[name].append(clock() - start)
    rates = {name: NEW / sorted(each)[len(each) // 2] for name, each in times.items()}
    for name, rate in rates.items():
        same = texts[name] == texts["blocks"]
        print(f"{name:>13} {rate:7.1f} tokens/s{'' if same else '   (another text)'}")
        yield {"part": "write", "way": name, "tokens_per_second": round(rate, 2), "same_text": same}
    if "llama.cpp" in rates:
        print(f"blocks / llama.cpp {rates['blocks'] / rates['llama.cpp']:.2f}")


def ours(file: Path, *, packed: bool) -> Callable[[], str]:
    import regard

    model = regard.load(file, packed=packed)
    return lambda: model.generate(PROMPT, min_length=NEW, max_length=NEW).text


def theirs(file: Path) -> Callable[[], str]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name).eval()
    given = tokenizer(PROMPT, return_tensors="pt")

    def run() -> str:
        made = model.generate(**given, min_new_tokens=NEW, max_new_tokens=NEW, do_sample=False)
        text: str = tokenizer.decode(made[0, given["input_ids"].shape[1] :])
        return text

    return run


def llama_cpp(file: Path, threads: int) -> Callable[[], str]:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(file)
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.n_ctx, params.warmup = 256, False
    server = xllamacpp.Server(params)
    asked = {"prompt": PROMPT, "n_predict": NEW, "ignore_eos": True, "temperature": 0, "top_k": 1}
    asked |= {"cache_prompt": False}

    def run() -> str:
        answer = server.handle_completions(asked)
        answer = json.loads(answer) if isinstance(answer, str) else answer
        return str(answer["choices"][0]["text"] if "choices" in answer else answer["content"])

    return run


def trace(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Seconds and memory of a trace."""
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for name in options.shapes:
            file = Path(folder) / f"{name}.gguf"
            make(file, SHAPES[name])
            found: dict[str, dict[str, Any]] = {}
            for how in ("blocks", "blocks-bfloat16", "bfloat16"):
                command = [sys.executable, __file__, "--child", str(file), how, str(options.tokens)]
                run = subprocess.run(command, capture_output=True, text=True, check=False)
                lines = run.stdout.splitlines()
                found[how] = (
                    json.loads(lines[-1]) if not run.returncode and lines else {"failed": run.stderr[-300:]}
                )
            size = file.stat().st_size / 1e9
            for how, each in found.items():
                print(f"{name} ({size:.1f} GB) {how:>16}: {each}")
                yield {"part": "trace", "shape": name, "file_gb": round(size, 2), "how": how, **each}
            mine, held = found["blocks-bfloat16"], found["bfloat16"]
            if "sum" in mine and "sum" in held:
                assert abs(mine["sum"] - held["sum"]) < 1e-3 * abs(held["sum"]), (mine, held)
                print(
                    f"{name}: blocks in bfloat16 / bfloat16 in memory {mine['seconds'] / held['seconds']:.2f}"
                )
            file.unlink()


def child(file: Path, how: str, tokens: int) -> None:
    """One trace, the second of two, in this process."""
    import regard

    model = regard.load(file, packed=how != "bfloat16", dtype=None if how == "blocks" else torch.bfloat16)
    ids = [(7 * place) % model.config.vocab_size for place in range(tokens)]
    model.trace(token_ids=ids)
    start = time.perf_counter()
    made = model.trace(token_ids=ids)
    seconds = time.perf_counter() - start
    status = dict(
        line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line
    )
    memory = {key: int(status[key].split()[0]) / 1e6 for key in ("RssAnon", "RssFile", "VmHWM")}
    total = made.embeddings().double().abs().sum().item()
    print(
        json.dumps(
            {
                "seconds": round(seconds, 2),
                "own_gb": round(memory["RssAnon"], 2),
                "file_gb_read": round(memory["RssFile"], 2),
                "peak_gb": round(memory["VmHWM"], 2),
                "sum": total,
            }
        )
    )


def make(file: Path, shape: dict[str, int]) -> None:
    """A file of a shape, its blocks drawn once for each size of matrix and written again for each layer."""
    writer = gguf.GGUFWriter(str(file), "llama")
    width, inner, head = shape["width"], shape["inner"], shape["width"] // shape["heads"]
    writer.add_block_count(shape["layers"])
    writer.add_context_length(131_072)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(shape["heads"])
    writer.add_head_count_kv(shape["kv"])
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(500_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    kept: dict[tuple[int, int, Kind], Any] = {}

    def add(name: str, rows: int, columns: int, kind: Kind) -> None:
        key = (rows, columns, kind)
        if key not in kept:
            kept[key] = drawn(*key)
        writer.add_tensor(name, kept[key], raw_dtype=kind)

    norm = np.ones(width, dtype=np.float32)
    add("token_embd.weight", shape["vocabulary"], width, Kind.Q6_K)
    writer.add_tensor("output_norm.weight", norm)
    for layer in range(shape["layers"]):
        start = f"blk.{layer}"
        writer.add_tensor(f"{start}.attn_norm.weight", norm)
        writer.add_tensor(f"{start}.ffn_norm.weight", norm)
        add(f"{start}.attn_q.weight", width, width, Kind.Q4_K)
        add(f"{start}.attn_k.weight", head * shape["kv"], width, Kind.Q4_K)
        add(f"{start}.attn_v.weight", head * shape["kv"], width, Kind.Q6_K)
        add(f"{start}.attn_output.weight", width, width, Kind.Q4_K)
        add(f"{start}.ffn_gate.weight", inner, width, Kind.Q4_K)
        add(f"{start}.ffn_up.weight", inner, width, Kind.Q4_K)
        add(f"{start}.ffn_down.weight", width, inner, Kind.Q4_K)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def drawn(rows: int, columns: int, kind: Kind) -> Any:
    """Random blocks whose numbers are as large as those of a trained matrix."""
    entries, size = GGML_QUANT_SIZES[kind]
    draw = np.random.default_rng(rows + columns)
    blocks = draw.integers(0, 256, (rows, columns // entries, size), dtype=np.uint8)
    # Half of the largest scale: entries of some columns^-.5.
    scale = np.float16(columns**-0.5 / (300 if kind == Kind.Q4_K else 2000))
    places = {Kind.Q4_K: (0, 2), Kind.Q6_K: (208,)}[kind]
    for at, factor in zip(places, (1.0, 7.5), strict=False):
        blocks[:, :, at : at + 2] = np.frombuffer(np.float16(scale * factor).tobytes(), dtype=np.uint8)
    return blocks.reshape(rows, -1)


if __name__ == "__main__":
    main()
