"""A vector for each use: computed when it is asked for, and kept."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from regard.concordance._store import Store, numbers
from regard.concordance._uses import Found, Place, bodies, places, single
from regard.core.errors import InputError
from regard.core.progress import OnProgress

if TYPE_CHECKING:
    from regard.embedding import Embedder
    from regard.models import Loaded

Uses = NDArray[np.int64]
Vectors = NDArray[np.float32]  # (uses, d), each of length 1


_TEXTS_AT_ONCE: Final = 256
_USES_AT_ONCE: Final = 16_384


@dataclass(frozen=True)
class Span:
    """A word in a text, as code points."""

    text: str
    start: int
    stop: int


def span_at(place: Place) -> Span:
    """A use in what is read of its text."""
    return Span(place.body, place.start, place.stop)


def span_in(words: Sequence[str], index: int) -> Span:
    """One of the words of a sentence."""
    # Words with one blank between them; the index counts those before.
    start = len(" ".join(words[:index])) + (index > 0)
    return Span(" ".join(words), start, start + len(words[index]))


class UsageEmbedder:
    """What makes vectors of uses: the mean of a word's pieces, at the last layer or the mean of some."""

    def __init__(self, loaded: "Loaded", layers: Sequence[int] | None = None) -> None:
        from regard.embedding import Embedder, Mix, Request

        # The last layer, unless others are named.
        depth = loaded.network.depth(next(iter(loaded.network.prefixes)))
        chosen = (depth,) if layers is None else tuple(layers)
        self.layers = Request(level="token", layer=Mix(chosen)).layers(depth)
        self.loaded, self.width = loaded, int(loaded.network.config.d_model)
        self._embedder = Embedder(loaded, Request(level="token", layer=Mix(self.layers)))

    @cached_property
    def mark(self) -> str:
        """A hash of the weights, which does not depend on their folder."""
        return self.loaded.mark()

    def about(self) -> dict[str, Any]:
        """All that the numbers depend on, for the manifest."""
        return {"model": self.loaded.source.name, "mark": self.mark, "layers": list(self.layers)}

    def __call__(self, spans: Sequence[Span]) -> Vectors:
        """The vectors of words in their texts; InputError where the tokenizer leaves nothing of one."""
        vectors = self.vectors_at(*by_text(spans))
        if len(empty := np.flatnonzero(~vectors.any(axis=1))):
            span = spans[empty[0]]
            word = span.text[span.start : span.stop]
            raise InputError(f"word must leave a token; the tokenizer drops all of {word!r}.")
        return vectors

    def vectors_at(self, texts: Sequence[str], at: NDArray[np.int64]) -> Vectors:
        """One vector a row of `at`, (text, start, stop); zeros where the tokenizer drops the word."""
        out = summed(self._embedder, texts, at)
        # In float64: of float32 the squares may be infinite, or nothing.
        out /= np.maximum(np.linalg.norm(out.astype(float), axis=1, keepdims=True), np.finfo(float).tiny)
        return out


def by_text(spans: Sequence[Span]) -> tuple[list[str], NDArray[np.int64]]:
    """The texts of words, each once, and (words, 3) of text, start and stop."""
    numbers: dict[str, int] = {}
    at = [(numbers.setdefault(each.text, len(numbers)), each.start, each.stop) for each in spans]
    return list(numbers), np.array(at, np.int64)


def summed(embedder: "Embedder", texts: Sequence[str], at: NDArray[np.int64]) -> Vectors:
    """The sum of the vectors of the pieces of words (uses, [layers,] d); `at` as in `vectors_at`."""
    try:
        pieces = embedder.spans(texts)
    # One text that leaves no token: it gets a letter that does, which is in no span.
    except InputError:
        pieces = embedder.spans([text if _leaves_token(embedder, text) else f"{text} a" for text in texts])
    # Pieces and words on one line, text after text: those of a word are neighbours there.
    longest = 3 + max(map(len, texts), default=0)
    begins, ends = (pieces.rows * longest + column for column in pieces.spans.T)
    first = np.searchsorted(ends, at[:, 0] * longest + at[:, 1], side="right")
    counts = np.maximum(np.searchsorted(begins, at[:, 0] * longest + at[:, 2]) - first, 0)
    out = np.zeros((len(at), *pieces.vectors.shape[1:]), np.float32)
    # Most words are one piece: the loop runs as often as the longest has pieces.
    for piece in range(int(counts.max(initial=0))):
        longer = np.flatnonzero(counts > piece)
        out[longer] += pieces.vectors[first[longer] + piece]
    return out


def _leaves_token(embedder: "Embedder", text: str) -> bool:
    try:
        embedder.read([text])
    except InputError:
        return False
    return True


def usage_vectors(
    model: Any, rows: Sequence[tuple[Sequence[str], int]], layers: Sequence[int] | None = None
) -> Vectors:
    """The vectors that the concordance uses, of words in sentences.

    Args:
        model: a `regard.Model`, or what it holds.
        rows: for each the words of a sentence, and which of them is meant.
        layers: those whose mean is taken; None for the last.

    Returns:
        (rows, d), each of length 1: the dot product of two is their cosine.

    Example:
        >>> import regard
        >>> rows = [(["the", "river", "bank"], 2), (["a", "bank", "loan"], 1), (["a", "muddy", "bank"], 2)]
        >>> vectors = usage_vectors(regard.load(), rows)
        >>> bool(vectors[0] @ vectors[2] > vectors[0] @ vectors[1])
        True
    """
    spans = [span_in(words, index) for words, index in rows]
    embed = UsageEmbedder(getattr(model, "loaded", model), layers)
    parts = [embed(spans[at : at + _TEXTS_AT_ONCE]) for at in range(0, len(spans), _TEXTS_AT_ONCE)]
    return np.concatenate(parts)


class VectorCache:
    """The vectors of an index, of which those that are missing are computed; of one model and its layers."""

    def __init__(self, store: Store, embed: UsageEmbedder) -> None:
        self._store, self.embed = store, embed
        about = embed.about()
        earlier = store.manifest.get("meaning")
        # The first vectors decide which model and layers an index has.
        if earlier is None:
            if not store.read_only:
                with store.writing():
                    store.note(meaning=about)
        # Another model's vectors would be compared with these in silence.
        elif differing := [name for name in ("mark", "layers") if about[name] != earlier.get(name)]:
            name = "model" if "mark" in differing else "layers"
            raise InputError(
                f"{name} must be that of the vectors that the index has, {earlier[name]}; got {about[name]}. "
                "Make a new index."
            )

    def vectors_of(self, found: Found, progress: OnProgress = None) -> Vectors:
        """The vectors of uses, in their order; 0 where the tokenizer leaves nothing of one."""
        if not len(found.uses):
            return np.zeros((0, 1), np.float32)
        known = self._known(found)
        # Only what is missing is computed, some texts at a time, each batch kept.
        missing = [use for use in found.uses.tolist() if use not in known]
        for at in range(0, len(missing), _TEXTS_AT_ONCE):
            part = found.at(np.isin(found.uses, missing[at : at + _TEXTS_AT_ONCE]))
            vectors = self.embed.vectors_at(*by_text([span_at(each) for each in places(self._store, part)]))
            if not self._store.read_only:
                with self._store.writing():
                    self._keep(part, vectors)
            # As they would be read: float16, so that a first and a second look give the same.
            kept = map(np.ndarray.tobytes, vectors.astype(np.float16))
            known |= zip(part.uses.tolist(), kept, strict=True)
            if progress is not None:
                progress(at + len(vectors), len(missing))
        blobs = [known[use] for use in found.uses.tolist()]
        # Two bytes a number.
        if {*map(len, blobs)} != {2 * self.embed.width}:
            raise self._store.damaged("a vector has another length")
        return np.frombuffer(b"".join(blobs), np.float16).reshape(len(blobs), -1).astype(np.float32)

    def with_vectors(self, found: Found, progress: OnProgress = None) -> tuple[Found, Vectors, str]:
        """The uses that have a vector, these, and what is to be said of the others."""
        vectors = self.vectors_of(found, progress)
        has: NDArray[np.bool_] = np.any(vectors, axis=1)
        if not has.any():
            raise InputError("word must leave a token somewhere; the tokenizer drops it in all its texts.")
        out = len(has) - np.count_nonzero(has)
        left_out = f"{out:,} left out, where the tokenizer drops the word" if out else ""
        return found.at(has), vectors[has], left_out

    def _known(self, found: Found) -> dict[int, bytes]:
        query = "SELECT use, v FROM json_each(?) w CROSS JOIN vector ON use = w.value AND size = ?"
        known: dict[int, bytes] = {}
        # By size: phrases have their own vectors.
        for size in np.unique(found.sizes).tolist():
            known |= self._store.rows(query, [numbers(found.uses[found.sizes == size]), size])
        return known

    def _keep(self, found: Found, vectors: Vectors) -> None:
        blobs = map(np.ndarray.tobytes, vectors.astype(np.float16))
        rows = zip(found.uses.tolist(), found.sizes.tolist(), blobs, strict=True)
        # IGNORE: another process may have computed the same vector.
        self._store.db.executemany("INSERT OR IGNORE INTO vector VALUES (?, ?, ?)", rows)

    def all(self, progress: OnProgress = None) -> None:
        """Compute the vectors of all words, a transaction at a time; goes on where it was stopped."""
        total = len(self._store.tokens)
        # One thread computes the next block while this one writes the last.
        with ThreadPoolExecutor(1) as beside:
            before: tuple[Uses, int, Future[Vectors]] | None = None
            for block in chain(self._blocks(total), [None]):
                now = block and (*block[:2], beside.submit(self.embed.vectors_at, *block[2:]))
                if before is not None:
                    # A block behind: what was begun in the last round.
                    uses, last, vectors = before
                    block_vectors = vectors.result()
                    with self._store.writing():
                        self._keep(single(uses), block_vectors)
                        self._store.note(embedded=last)
                    if progress is not None:
                        progress(last, total)
                before = now

    def _blocks(self, total: int) -> Iterator[tuple[Uses, int, list[str], NDArray[np.int64]]]:
        """Uses, the last number that they reach to, their texts, and where they are in them."""
        # Up to this use everything is embedded.
        tokens, last = self._store.tokens, self._store.manifest.get("embedded", 0)
        while last < total:
            # The text in which the next use stands.
            begin = int(tokens.text_of(np.array([last + 1]))[0])
            # So many uses, in whole texts; one text at least.
            end = int(tokens.text_of(np.array([min(last + _USES_AT_ONCE, total)]))[0])
            # Whole texts: the last one goes to the next block where it would be too many.
            if tokens.text_first[end] - 1 > last + _USES_AT_ONCE and end > begin:
                end -= 1
            texts = np.arange(begin, end + 1)
            # Texts without uses are left out.
            texts = texts[tokens.text_first[texts] > tokens.text_first[texts - 1]]
            uses, starts, stops = tokens.spans(texts)
            last = int(uses[-1])
            read = bodies(self._store, [(text, text) for text in texts.tolist()])
            of_use = np.searchsorted(texts, tokens.text_of(uses))
            # Texts are read with what stands around them: places move by that.
            shift = np.array([read[text, text][0] for text in texts.tolist()])[of_use]
            words = tokens.is_word[tokens.forms[uses]]
            at = np.stack([of_use, starts + shift, stops + shift], axis=1)
            # Marks get no vector.
            yield uses[words], last, [read[text, text][1] for text in texts.tolist()], at[words]
