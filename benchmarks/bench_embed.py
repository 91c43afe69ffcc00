"""Sentences a second, mean-pooled and normalised, beside the engines that people use, each at its precision.

    python benchmarks/bench_embed.py TEXTS [--shapes default bert-base] [--tokens brown 128 512]
        [--precisions float32 bfloat16 int8] [--limit 2000] [--repeats 3] [--threads 2] [--keep]

TEXTS has one text a line, such as the sentences of the Brown corpus (nltk.org/nltk_data, "brown"). "brown"
embeds them as they are; a number embeds texts of exactly so many tokens, put together from them, every
rival set to that limit. Shapes: the default model, and BERT-base (12 layers, 768) with random weights.
regard's int16 stands with bfloat16, the other type of 16 bits. Bfloat16 is left out where the processor has
no arithmetic for it, and OpenVINO in 8 bits where nncf, which quantises for it, is not installed.

All run in turns, each in a process of its own, so that a slow spell falls on all and no library's waiting
threads on another; the median counts. Beside the rate of each stand what its vectors are worth, of all
texts and against regard's in float32: the smallest cosine, and among the texts themselves how often the
nearest neighbour is the same one, and how much of the nearest ten. Processor seconds are told too: on a
busy machine, and with one thread, their ratios say more than those of the clock. The last line is the
result as JSON.
"""

import argparse
import importlib.util
import multiprocessing
import shutil
import tempfile
import time
import warnings
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from _embed_rivals import RIVALS, rival
from _harness import finish, machine, text_of
from transformers import BertConfig, BertModel

import regard
from regard.blocks import is_native
from regard.embedding import Embedder, Request, Truncate
from regard.models import load_checkpoint

OURS = {
    "float32": ("regard-float32",),
    "bfloat16": ("regard-bfloat16", "regard-int16"),
    "int8": ("regard-int8",),
}
"""regard's own, beside the rivals of each precision."""

BERT_BASE_TEXTS = 4
"""So many times fewer texts for the larger shape."""


def checkpoint(shape: str, folder: Path) -> Path:
    """The folder of a shape; the larger one is written there, with the default model's tokenizer."""
    default = regard.load().loaded.source.folder
    if shape == "default":
        return default
    torch.manual_seed(0)
    config = BertConfig(vocab_size=30522)
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        if (default / name).exists():
            shutil.copy(default / name, folder / name)
    return folder


def texts_of(tokens: str, lines: list[str], limit: int, count: Any) -> list[str]:
    """The texts, as they are or of so many tokens each; of the latter fewer, so that all take as long."""
    if tokens == "brown":
        return lines[:limit]
    length = int(tokens)
    wanted = max(16, limit * 25 // length)
    step = max(1, len(lines) // wanted)
    return [
        text_of(length, count, " ".join(lines[(row * step + place) % len(lines)] for place in range(length)))
        for row in range(wanted)
    ]


def worth(one: np.ndarray[Any, Any], exact: np.ndarray[Any, Any]) -> dict[str, float]:
    """The smallest cosine; the share of texts with the same nearest neighbour, and of the same ten."""
    one, exact = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (one, exact))
    near = []
    for vectors in (one, exact):
        alike = vectors @ vectors.T
        np.fill_diagonal(alike, -1.0)
        near.append(np.argsort(-alike, axis=1)[:, :10])
    same = [len(set(ours) & set(theirs)) / len(ours) for ours, theirs in zip(*near, strict=True)]
    return {
        "smallest_cosine": round(float((one * exact).sum(1).min()), 6),
        "same_nearest": round(float((near[0][:, 0] == near[1][:, 0]).mean()), 4),
        "same_of_ten": round(float(np.mean(same)), 4),
    }


def serve(pipe: Connection, name: str, folder: Path, texts: list[str], limit: int, threads: int) -> None:
    """In a process of its own, where no other library's threads are awake: run whenever asked to."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    if name.startswith("regard"):
        precision: Any = name.removeprefix("regard-")
        request = Request(
            pooling="mean", normalize=True, window=Truncate(limit), threads=threads, precision=precision
        )
        embedder = Embedder(load_checkpoint(folder), request)
        encode: Any = lambda texts: embedder.sentences(texts).vectors  # noqa: E731
    else:
        encode = rival(name, folder, texts, limit=limit, threads=threads)
    while pipe.recv():
        start, of_processor = time.perf_counter(), time.process_time()
        vectors = encode(texts)
        pipe.send((time.perf_counter() - start, time.process_time() - of_processor, vectors))


class Engine:
    """One of those that are compared."""

    def __init__(self, name: str, folder: Path, texts: list[str], limit: int, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        arguments = (theirs, name, folder, texts, limit, threads)
        self._process = context.Process(target=serve, args=arguments, daemon=True)
        self._process.start()

    def vectors(self) -> np.ndarray[Any, Any]:
        """A first run, which also warms up."""
        self._pipe.send(True)
        vectors: np.ndarray[Any, Any] = self._pipe.recv()[2]
        return vectors

    def seconds(self) -> tuple[float, float]:
        """A run: by the clock, and of the processor."""
        self._pipe.send(True)
        clock, processor, _ = self._pipe.recv()
        return clock, processor

    def end(self) -> None:
        """Let the process go."""
        self._pipe.send(False)
        self._process.join()


def measure(
    shape: str, tokens: str, lines: list[str], folder: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """One row of the table."""
    loaded = load_checkpoint(folder)
    limit = 256 if tokens == "brown" else int(tokens)
    fewer = BERT_BASE_TEXTS if shape == "bert-base" else 1
    texts = texts_of(
        tokens,
        lines,
        options.limit // fewer,
        lambda text: len(loaded.require_tokenizer().encode(text).tokens),
    )
    exact = Embedder(loaded, Request(pooling="mean", normalize=True, window=Truncate(limit))).sentences(texts)
    runs = {
        name: Engine(name, folder, texts, limit, options.threads)
        for precision in options.precisions
        for name in (*OURS[precision], *RIVALS[precision])
        if can_run(name)
    }
    quality = {name: worth(run.vectors(), exact.vectors) for name, run in runs.items()}
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for _ in range(options.repeats):
        for name, run in runs.items():
            taken[name].append(run.seconds())
    for run in runs.values():
        run.end()
    rates = {
        name: [len(texts) / median(own) for own in zip(*each, strict=True)] for name, each in taken.items()
    }
    lengths = exact.report.tokens
    print(f"{shape}, {tokens}: {len(texts)} texts of {lengths.mean():.1f} tokens")
    over: dict[str, dict[str, float]] = {}
    for precision in options.precisions:
        rivals = [name for name in RIVALS[precision] if name in rates]
        for name in (*(each for each in OURS[precision] if each in rates), *rivals):
            told = ", ".join(f"{what.replace('_', ' ')} {value}" for what, value in quality[name].items())
            print(f"  {name:18s} {rates[name][0]:8.1f} texts/s  {rates[name][1]:8.1f}/processor s  {told}")
            if name.startswith("regard") and rivals:
                over[name] = {each: round(rates[name][0] / rates[each][0], 3) for each in rivals} | {
                    f"{each}, processor": round(rates[name][1] / rates[each][1], 3) for each in rivals
                }
                print(f"    over {over[name]}", flush=True)
    return {
        "shape": shape,
        "texts": tokens,
        "count": len(texts),
        "mean_tokens": round(float(lengths.mean()), 2),
        "threads": options.threads,
        "texts_per_second": {name: round(rate, 1) for name, (rate, _) in rates.items()},
        "texts_per_processor_second": {name: round(rate, 1) for name, (_, rate) in rates.items()},
        "worth": quality,
        "over": over,
    }


def can_run(name: str) -> bool:
    """Whether an engine can be had here; says where not."""
    if name.endswith(("bf16", "bfloat16")) and not is_native(torch.bfloat16):
        print(f"  {name}: left out, this processor has no arithmetic for bfloat16")
        return False
    if name == "openvino-int8" and importlib.util.find_spec("nncf") is None:
        print(f"  {name}: left out, nncf is not installed")
        return False
    return True


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("texts", type=Path)
    parser.add_argument(
        "--shapes", nargs="+", default=["default", "bert-base"], choices=["default", "bert-base"]
    )
    parser.add_argument("--tokens", nargs="+", default=["brown", "128", "512"])
    parser.add_argument("--limit", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--precisions", nargs="+", default=list(RIVALS), choices=list(RIVALS))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # those of the rivals' exports
    lines = [line for line in options.texts.read_text().split("\n") if line]
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for shape in options.shapes:
            folder = checkpoint(shape, Path(scratch))
            rows += [measure(shape, tokens, lines, folder, options) for tokens in options.tokens]
    packages = ("sentence-transformers", "transformers", "onnxruntime", "openvino")
    finish("embed", machine(*packages), rows, keep=options.keep)


if __name__ == "__main__":
    main()
