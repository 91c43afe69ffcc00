"""What every benchmark shares: texts of a length, fair timing, and how results are told and kept."""

import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"

PARAGRAPH = (
    "The river bends twice before it reaches the town, and on the inside of the second bend the bank is soft "
    "enough that a heron can stand there for an hour without moving. Most people who walk past never notice. "
    "They are on their way to the other bank, the one with the marble counter and the slow clerks, where a "
    "loan may be refused in under a minute. "
)


def text_of(tokens: int, count: Callable[[str], int], source: str = PARAGRAPH) -> str:
    """A text that is exactly so many tokens, cut from a source that is repeated as often as need be."""
    words = source.split()
    words *= 1 + tokens // len(words)
    low, high = 0, len(words)
    while low < high:
        middle = (low + high + 1) // 2
        if count(" ".join(words[:middle])) <= tokens:
            low = middle
        else:
            high = middle - 1
    text = " ".join(words[:low])
    # A word of several pieces may step over the length; full stops are one token each.
    return text + "." * (tokens - count(text))


def seconds(works: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The median time of each, measured in turns, so that a slow spell of the machine falls on all."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work()
    for _ in range(repeats):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(measured) for name, measured in times.items()}


def machine(*packages: str) -> dict[str, str]:
    """The processor and the versions that a result depends on."""
    names = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ] or [platform.processor()]
    return {
        "cpu": f"{len(names)} x {names[0]}",
        "threads": str(torch.get_num_threads()),
        "python": platform.python_version(),
        **{package: version(package) for package in ("regard", "torch", *packages)},
    }


def finish(name: str, facts: Mapping[str, str], rows: list[dict[str, Any]], *, keep: bool) -> None:
    """Print the result as the last line; keep it under benchmarks/results/ where that is asked for."""
    result = json.dumps({"benchmark": name, "machine": facts, "results": rows})
    if keep:
        (RESULTS / f"{name}.json").write_text(result + "\n")
    print(result)
