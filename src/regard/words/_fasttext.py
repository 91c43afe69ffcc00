"""fastText's own models: words, labels, and one table of words and buckets of n-grams."""

import io
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from regard.core.errors import CheckpointError
from regard.core.wording import DOWNLOAD_AGAIN
from regard.words._ngrams import Ngrams, Parts

MAGIC = struct.pack("<i", 793712314)  # how a model begins


def until(file: io.BufferedReader, end: bytes) -> bytes:
    """What comes before a byte, which is read too; EOFError where it does not come."""
    found = b""
    while ahead := file.peek():
        place = ahead.find(end)
        if place >= 0:
            return found + file.read(place + 1)[:-1]
        found += file.read(len(ahead))
    raise EOFError


def read_model(
    path: Path, file: io.BufferedReader, limit: int | None
) -> tuple[list[str], npt.NDArray[np.float32], Parts | None]:
    """Words, their vectors (the mean of a word's own row and those of its n-grams), and those of n-grams.

    Source: the authors' program, fastText 0.9.2, `args.cc`, `dictionary.cc`, `densematrix.cc`.
    """
    try:
        _, version, size, *arguments, _ = _unpacked(file, "<14id")
        model, bucket, shortest, longest = arguments[6:10]
        if version not in (11, 12):
            raise CheckpointError(f"{path}: is a fastText model of version {version}; regard reads 11 and 12")
        entries, count, _, _, pruned = _unpacked(file, "<3i2q")
        words = []
        for _ in range(entries):
            words.append(until(file, b"\0").decode("utf-8"))
            file.read(9)  # its count, and whether it is a label: those come after the words
        if pruned > 0 or _unpacked(file, "<?")[0]:
            raise CheckpointError(
                f"{path}: is a compressed model of fastText (.ftz); take the .bin before it"
            )
        if _unpacked(file, "<2q") != (count + bucket, size):
            raise EOFError
        table = np.empty((count + bucket, size), "<f4")
        if file.readinto(table.data.cast("B")) != table.nbytes:
            raise EOFError
    except (EOFError, struct.error, UnicodeDecodeError, ValueError, MemoryError) as error:
        raise CheckpointError(f"{path}: is no whole fastText model; {DOWNLOAD_AGAIN}") from error
    words, shortest = words[:count][:limit], max(1, shortest)
    # Models of kind 3 tell texts apart; in version 11 they have no n-grams, whatever they say.
    if longest < shortest or not bucket or (version == 11 and model == 3):
        return words, table[: len(words)].copy(), None
    ngrams = Ngrams(shortest=shortest, longest=longest, buckets=bucket)
    own, parts = table[:count], Parts(ngrams=ngrams, buckets=np.arange(bucket), vectors=table[count:])
    vectors = np.empty((len(words), size), np.float32)
    for row, word in enumerate(words):
        buckets = ngrams.buckets_of(word)
        vectors[row] = (own[row] + parts.vectors[buckets].sum(axis=0)) / (1 + len(buckets))
    return words, vectors, parts


def _unpacked(file: io.BufferedReader, layout: str) -> tuple[int, ...]:
    return struct.unpack(layout, file.read(struct.calcsize(layout)))
