"""Sentences a second, mean-pooled and normalised, beside the engines that people use.

    python benchmarks/bench_embed.py TEXTS [--shapes default bert-base] [--tokens brown 128 512]
        [--limit 2000] [--repeats 3] [--rivals st st-bf16 onnxruntime openvino openvino-bf16] [--keep]

TEXTS has one text a line, such as the sentences of the Brown corpus (nltk.org/nltk_data, "brown"). "brown"
embeds them as they are; a number embeds texts of exactly so many tokens, put together from them, every rival
set to that limit. Shapes: the default model, and BERT-base (12 layers, 768) with random weights. Bfloat16 is
left out where the processor has no arithmetic for it.

All run in turns, each in a process of its own, so that a slow spell falls on all and no library's waiting
threads on another; the median counts. The answers are checked first: the smallest cosine of every engine's
vectors to regard's in float32 is told, and who is below 0.999 is no rival. The last line is the result as
JSON.
"""

import argparse
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


def cosines(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    """The smallest."""
    norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return float(((one * other).sum(1) / norms).min())


def serve(pipe: Connection, name: str, folder: Path, texts: list[str], limit: int, threads: int) -> None:
    """In a process of its own, where no other library's threads are awake: run whenever asked to."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    if name == "regard":
        request = Request(pooling="mean", normalize=True, window=Truncate(limit), threads=threads)
        embedder = Embedder(load_checkpoint(folder), request)
        encode: Any = lambda texts: embedder.sentences(texts).vectors  # noqa: E731
    else:
        encode = rival(name, folder, limit=limit, threads=threads)
    while pipe.recv():
        start = time.perf_counter()
        vectors = encode(texts)
        pipe.send((time.perf_counter() - start, vectors))


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
        vectors: np.ndarray[Any, Any] = self._pipe.recv()[1]
        return vectors

    def seconds(self) -> float:
        """A run."""
        self._pipe.send(True)
        return float(self._pipe.recv()[0])

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
    threads = torch.get_num_threads()
    runs = {"regard": Engine("regard", folder, texts, limit, threads)}
    for name in options.rivals:
        if name.endswith("bf16") and not is_native(torch.bfloat16):
            print(f"  {name}: left out, this processor has no arithmetic for bfloat16")
            continue
        runs[name] = Engine(name, folder, texts, limit, threads)
    in_float32 = Request(pooling="mean", normalize=True, window=Truncate(limit), dtype=torch.float32)
    exact = Embedder(loaded, in_float32).sentences(texts)
    smallest = {name: cosines(run.vectors(), exact.vectors) for name, run in runs.items()}
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(options.repeats):
        for name, run in runs.items():
            taken[name].append(run.seconds())
    for run in runs.values():
        run.end()
    rates = {name: len(texts) / median(each) for name, each in taken.items()}
    fastest = max(
        (name for name in rates if name != "regard" and smallest[name] >= 0.999), key=rates.__getitem__
    )
    lengths = exact.report.tokens
    print(f"{shape}, {tokens}: {len(texts)} texts of {lengths.mean():.1f} tokens")
    for name, rate in sorted(rates.items(), key=lambda item: -item[1]):
        ratio = rates["regard"] / rate
        print(f"  {name:14s} {rate:8.1f} texts/s   smallest cosine {smallest[name]:.6f}   {ratio:5.2f} x")
    print(f"  regard / {fastest} = {rates['regard'] / rates[fastest]:.2f}", flush=True)
    return {
        "shape": shape,
        "texts": tokens,
        "count": len(texts),
        "mean_tokens": round(float(lengths.mean()), 2),
        "texts_per_second": {name: round(rate, 1) for name, rate in rates.items()},
        "smallest_cosine": {name: round(each, 6) for name, each in smallest.items()},
        "over_fastest": round(rates["regard"] / rates[fastest], 3),
        "fastest_rival": fastest,
    }


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
    parser.add_argument("--rivals", nargs="+", default=list(RIVALS), choices=RIVALS)
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
