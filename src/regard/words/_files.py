"""Files of word vectors: word2vec's text and binary formats, GloVe's, fastText's models, and safetensors."""

import codecs
import gzip
import io
import itertools
import json
import struct
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from regard.checkpoints import SafetensorsFile, write_tensors
from regard.core.errors import CheckpointError, InputError
from regard.core.files import write_whole
from regard.core.wording import DOWNLOAD_AGAIN, reason
from regard.words._ngrams import Ngrams, Parts

Floats = npt.NDArray[np.float32]

Row = tuple[str, Iterable[float]]

_SAFE = ".safetensors"
_LONGEST = 2**20  # numbers of a vector, and bytes of a first line
_MAGIC = struct.pack("<i", 793712314)  # how a model of fastText begins


class Read(NamedTuple):
    """What a file holds: each word once, its vector, those of n-grams, and how many words came again."""

    words: Sequence[str]
    vectors: Floats
    parts: Parts | None = None
    repeated: int = 0


def check_words(words: Sequence[str]) -> None:
    # The formats of word2vec separate by blanks and line ends, and are UTF-8.
    """Check that every file can hold words: what ends a word or a line in word2vec's formats is in none.

    Raises:
        InputError: a word is empty, holds a blank, CR or LF, or half a surrogate pair.

    Example:
        >>> check_words(["12\\u202f500", "Fluß"])
        >>> check_words(["New York"])
        Traceback (most recent call last):
        regard.core.errors.InputError: words must not be empty, nor hold a blank, an end of a line or half a
        surrogate pair, which word2vec's formats cannot have; 'New York' does. Save a .safetensors file.
    """
    for word in words:
        if not word or any(each in " \r\n" or "\ud800" <= each <= "\udfff" for each in word):
            raise InputError(
                "words must not be empty, nor hold a blank, an end of a line or half a surrogate pair, which "
                f"word2vec's formats cannot have; {word!r} does. Save a {_SAFE} file."
            )


def write_file(path: Path, words: Sequence[str], vectors: Floats, parts: Parts | None) -> None:
    """Write words and vectors, whole or not at all."""
    if path.suffix == _SAFE:
        # safetensors holds arrays, and text as metadata: words and settings are JSON there.
        tensors = {"vectors": torch.from_numpy(vectors)}
        metadata = {"words": json.dumps(list(words))}
        if parts is not None:
            tensors |= {"ngrams": torch.from_numpy(parts.vectors), "buckets": torch.from_numpy(parts.buckets)}
            metadata["ngrams"] = json.dumps(asdict(parts.ngrams))
        write_tensors(tensors, path, metadata=metadata)
        return
    check_words(words)
    # The name tells the format here; reading looks at the content instead.
    is_packed = path.suffix.lower() == ".gz"
    is_binary = path.name.lower().removesuffix(".gz").endswith(".bin")
    numbers = b" %.9g" * vectors.shape[1]  # nine digits give back every float32

    def fill(temporary: Path) -> None:
        with temporary.open("wb") as raw:
            # Without a name and a time in it the same vectors are the same bytes.
            file = gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if is_packed else raw
            file.write(b"%d %d\n" % vectors.shape)
            for word, row in zip(words, vectors, strict=True):
                values = b" " + row.astype("<f4").tobytes() if is_binary else numbers % tuple(row.tolist())
                file.write(word.encode() + values + b"\n")
            file.close()

    write_whole(path, fill)


def read_file(path: Path, limit: int | None) -> Read:
    """What a file holds, which its beginning tells, not its name."""
    try:
        if path.suffix == _SAFE:
            return _read_safe(path, limit)
        with path.open("rb") as raw:
            packed = raw.peek(2)[:2] == b"\x1f\x8b"
            return _read(path, io.BufferedReader(gzip.GzipFile(fileobj=raw)) if packed else raw, limit)
    # All that a damaged or foreign file raises below, as one kind of error.
    except (OSError, EOFError, TypeError, ValueError, zlib.error) as error:
        raise CheckpointError(f"{path}: cannot be read ({reason(error)})") from error


def _read_safe(path: Path, limit: int | None) -> Read:
    # Metadata first: a file with other tensors is refused before any is read.
    file = SafetensorsFile(path)
    metadata = file.metadata()
    if "words" not in metadata or "vectors" not in file.names():
        raise CheckpointError(f"{path}: holds tensors, and no word vectors that regard has written")
    parts = None
    if "ngrams" in metadata:
        buckets, rows = (file.read(name).numpy() for name in ("buckets", "ngrams"))
        parts = Parts(ngrams=Ngrams(**json.loads(metadata["ngrams"])), buckets=buckets, vectors=rows)
    return Read(list(json.loads(metadata["words"]))[:limit], file.read("vectors").numpy()[:limit], parts)


def _read(path: Path, file: io.BufferedReader, limit: int | None) -> Read:
    # Every format is known by its first bytes.
    begin = file.peek(4)[:4]
    if begin == _MAGIC:
        return Read(*_read_model(path, file, limit))
    if begin == b"PK\3\4":
        raise CheckpointError(f"{path}: is a zip archive; unpack it, and open the file that is in it")
    first = file.readline(_LONGEST).removeprefix(codecs.BOM_UTF8)
    fields = first.split()
    # With a header, two whole numbers; without one (GloVe), the first line is a word and its numbers.
    count, size = None, len(first.rstrip(b" \r\n").split(b" ")) - 1
    if len(fields) == 2 and all(each.isdigit() for each in fields):
        count, size = map(int, fields)
    # A size beyond any vector, or a line without numbers, is no file of this kind.
    is_start = bool(fields) and count != 0 and 0 < size < _LONGEST
    if not is_start or (count is None and not all(map(_is_number, fields[-size:]))):
        begins = first.decode("utf-8", "replace").strip()[:40]
        raise CheckpointError(
            f"{path}: its first line should be the number of words and the size of a vector, such as "
            f"'14221 100', or a word and its numbers; it begins {begins!r}"
        )
    if count is not None:
        # The bytes after the first word tell text from binary: random floats are hardly ever valid text.
        is_text = _is_text(file.peek(), size)
        rows = _of_text(file, size, has_header=True) if is_text else _of_binary(file, size)
    else:
        # Without a header the first line belongs to the rows.
        rows = _of_text(itertools.chain([first], file), size, has_header=False)
    # A dict keeps the order; numbers go into one flat array, 4 bytes each, since the number of rows is
    # not known.
    words: dict[str, None] = {}
    flat, count_read = array("f"), 0
    try:
        for word, numbers in rows:
            if count_read == count:
                raise _not_so(path, count, "and there are more")
            # `count_read` counts every row, also words that came again.
            count_read += 1
            if word not in words:
                words[word] = None
                flat.extend(numbers)
            # The limit counts different words; what follows is not read.
            if len(words) == limit:
                break
        # No break: the file has ended by itself.
        else:
            if count is not None and count_read < count:
                raise EOFError
    except EOFError as error:
        if count is None:
            raise
        raise _not_so(path, count, f"and ends after {count_read:,}") from error
    except ValueError as error:
        raise CheckpointError(f"{path}: word {count_read + 1:,} cannot be read: {reason(error)}") from error
    return Read(list(words), np.frombuffer(flat, np.float32).reshape(-1, size), None, count_read - len(words))


def _until(file: io.BufferedReader, end: bytes) -> bytes:
    """What comes before a byte, which is read too; EOFError where it does not come."""
    before = b""
    while ahead := file.peek():
        place = ahead.find(end)
        # The buffer may end before the byte comes: then the next piece.
        if place >= 0:
            return before + file.read(place + 1)[:-1]
        before += file.read(len(ahead))
    raise EOFError


def _read_model(
    path: Path, file: io.BufferedReader, limit: int | None
) -> tuple[list[str], Floats, Parts | None]:
    """Words, their vectors (the mean of a word's own row and those of its n-grams), and those of n-grams.

    Source: the authors' program, fastText 0.9.2, `args.cc`, `dictionary.cc`, `densematrix.cc`.
    """
    try:
        # The magic number, the version, `dim` and eleven more whole numbers of `args`, and a double.
        _, version, size, *arguments, _ = _unpacked(file, "<14id")
        model, bucket, shortest, longest = arguments[6:10]
        if version not in (11, 12):
            raise CheckpointError(f"{path}: is a fastText model of version {version}; regard reads 11 and 12")
        # dictionary.cc: size, words, labels, tokens, and how many n-grams were pruned.
        entries, count, _, _, pruned = _unpacked(file, "<3i2q")
        words = []
        for _ in range(entries):
            words.append(_until(file, b"\0").decode("utf-8"))
            file.read(9)  # its count, and whether it is a label: those come after the words
        if pruned > 0 or _unpacked(file, "<?")[0]:
            raise CheckpointError(
                f"{path}: is a compressed model of fastText (.ftz); take the .bin before it"
            )
        # The matrix has a row for each word, then one for each bucket.
        if _unpacked(file, "<2q") != (count + bucket, size):
            raise EOFError
        table = np.empty((count + bucket, size), "<f4")
        # Read into place: the table of a published model has several GB.
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
    # A row of the file is half of a vector: fastText adds the n-grams' rows when it is asked.
    for row, word in enumerate(words):
        buckets = ngrams.buckets_of(word)
        vectors[row] = (own[row] + parts.vectors[buckets].sum(axis=0)) / (1 + len(buckets))
    return words, vectors, parts


def _unpacked(file: io.BufferedReader, layout: str) -> tuple[int, ...]:
    return struct.unpack(layout, file.read(struct.calcsize(layout)))


def _of_text(lines: Iterable[bytes], size: int, *, has_header: bool) -> Iterator[Row]:
    """The words of a text and their numbers; without a header a word may hold blanks, as some of GloVe's."""
    for line in lines:
        # Blanks at the end are what word2vec's own program writes.
        word, *numbers = line.decode("utf-8").rstrip(" \r\n").rsplit(" ", -1 if has_header else size)
        if not word and not numbers:
            continue
        more = " " in word and _is_number(word.rpartition(" ")[2])
        # With a header a word holds no blank: a number in front of the others is one too many.
        if len(numbers) != size or more:
            raise ValueError(f"{word!r} has {len(numbers) + more:,} numbers instead of {size:,}")
        yield word, array("f", map(float, numbers))


def _of_binary(file: io.BufferedReader, size: int) -> Iterator[Row]:
    """The words of word2vec's binary format: each ends with a blank, and its numbers follow."""
    while file.peek():
        word, numbers = _until(file, b" "), file.read(4 * size)
        # A number of four bytes may hold any byte, so that only their count tells where the next word
        # begins.
        if len(numbers) < 4 * size:
            raise EOFError
        if file.peek()[:1] == b"\n":  # as word2vec's own program writes, and gensim does not
            file.read(1)
        yield word.decode("utf-8"), array("f", numbers)


def _is_text(ahead: bytes, size: int) -> bool:
    """Whether the bytes where the first vector of the binary format would stand are text."""
    # A blank follows the word; at most 64 bytes of the first vector.
    numbers = ahead.partition(b" ")[2][: min(4 * size, 64)]
    try:
        # Incremental, since the bytes may end within a character.
        decoded = codecs.getincrementaldecoder("utf-8")().decode(numbers)
    except UnicodeDecodeError:
        return False
    # Other control characters do not stand in a text file.
    return all(each >= " " or each in "\t\r\n" for each in decoded)


def _is_number(field: str | bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _not_so(path: Path, count: int, told: str) -> CheckpointError:
    return CheckpointError(f"{path}: its header says {count:,} words, {told}; {DOWNLOAD_AGAIN}")
