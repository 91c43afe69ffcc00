"""Files of word vectors: word2vec's text format, and safetensors."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
import torch

from regard.checkpoints import SafetensorsFile, write_tensors
from regard.core.errors import CheckpointError, InputError
from regard.core.files import write_whole
from regard.core.wording import DOWNLOAD_AGAIN, reason
from regard.static._ngrams import Ngrams, Parts

Floats = npt.NDArray[np.float32]
Read = tuple[list[str], Floats, Parts | None]

_SAFE = ".safetensors"


def write_file(path: Path, words: Sequence[str], vectors: Floats, parts: Parts | None) -> None:
    """Write words and vectors, whole or not at all."""
    if path.suffix == _SAFE:
        tensors = {"vectors": torch.from_numpy(vectors)}
        told = {"words": json.dumps(list(words))}
        if parts is not None:
            tensors |= {"ngrams": torch.from_numpy(parts.vectors), "buckets": torch.from_numpy(parts.buckets)}
            told["ngrams"] = json.dumps(asdict(parts.ngrams))
        write_tensors(tensors, path, metadata=told)
        return
    bad = next((word for word in words if word.split() != [word]), None)
    if bad is not None:
        raise InputError(
            f"path must end in {_SAFE} where a word is empty or holds white space, which word2vec's text "
            f"format cannot have; {bad!r} does."
        )
    numbers = " %.9g" * vectors.shape[1]  # nine digits give back every float32

    def fill(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            file.write(f"{len(words)} {vectors.shape[1]}\n")
            for word, row in zip(words, vectors.tolist(), strict=True):
                file.write(word + numbers % tuple(row) + "\n")

    write_whole(path, fill)


def read_file(path: Path) -> Read:
    """Words and vectors, and those of n-grams where the file has them."""
    try:
        return _read_safe(path) if path.suffix == _SAFE else (*_read_text(path), None)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({reason(error)})") from error


def _read_safe(path: Path) -> Read:
    file = SafetensorsFile(path)
    told = file.metadata()
    if "words" not in told or "vectors" not in file.names():
        raise CheckpointError(f"{path}: holds tensors, and no word vectors that regard has written")
    parts = None
    if "ngrams" in told:
        buckets, rows = (file.read(name).numpy() for name in ("buckets", "ngrams"))
        parts = Parts(ngrams=Ngrams(**json.loads(told["ngrams"])), buckets=buckets, vectors=rows)
    return json.loads(told["words"]), file.read("vectors").numpy(), parts


def _read_text(path: Path) -> tuple[list[str], Floats]:
    with path.open("rb") as file:
        header = file.readline(200)
        count, size = _sizes(path, header)
        # A line is two bytes a number at least: a header that lies must not fill the memory.
        if count * size * 2 > path.stat().st_size:
            lines = sum(1 for _ in file)
            if lines < count:
                raise _not_so(path, count, f"and ends after {lines:,}")
            told = f"{size:,} numbers, more than it holds; {DOWNLOAD_AGAIN}"
            raise CheckpointError(f"{path}: its header says that a vector has {told}")
        words: list[str] = []
        vectors = np.empty((count, size), np.float32)
        for number, line in enumerate(_lines(path, file), 2):
            if len(words) == count:
                raise _not_so(path, count, f"and line {number} is one more")
            word, *numbers = line.split(" ")
            if len(numbers) != size:
                told = f"and line {number} has {len(numbers):,}"
                raise CheckpointError(f"{path}: its header says that a vector has {size:,} numbers, {told}")
            try:
                vectors[len(words)] = numbers
            except ValueError as error:
                raise CheckpointError(f"{path}: line {number}, of {word!r}: {reason(error)}") from error
            words.append(word)
    if len(words) < count:
        raise _not_so(path, count, f"and ends after {len(words):,}")
    return words, vectors


def _lines(path: Path, file: IO[bytes]) -> Iterator[str]:
    """The lines of a text file, without the blanks at their ends that word2vec's own program writes."""
    for number, line in enumerate(file, 2):
        try:
            yield line.decode("utf-8").rstrip(" \r\n")
        except UnicodeDecodeError as error:
            hint = "is it word2vec's binary format? gensim reads that, and writes text"
            raise CheckpointError(f"{path}: line {number} is not UTF-8 text; {hint}") from error


def _sizes(path: Path, header: bytes) -> tuple[int, int]:
    """What the first line says."""
    numbers = header.split()
    if len(numbers) != 2 or not all(each.isdigit() and int(each) for each in numbers):
        begins = header.decode("utf-8", "replace").strip()[:40]
        raise CheckpointError(
            f"{path}: its first line should be the number of words and the size of a vector, such as "
            f"'14221 100'; it begins {begins!r}"
        )
    count, size = map(int, numbers)
    return count, size


def _not_so(path: Path, count: int, told: str) -> CheckpointError:
    return CheckpointError(f"{path}: its header says {count:,} words, {told}; {DOWNLOAD_AGAIN}")
