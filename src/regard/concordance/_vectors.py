"""A vector for each use: computed when it is asked for, and kept."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from regard.concordance._store import Store
from regard.concordance._uses import Found, Place, places
from regard.core.errors import InputError

if TYPE_CHECKING:
    from regard.models import Loaded

Vectors = NDArray[np.float32]
"""(uses, d), each of length 1."""

# Characters of the text before and after a part of a long one, which are read with it.
_MARGIN: Final = 200
_TEXTS_AT_ONCE: Final = 256


@dataclass(frozen=True)
class Span:
    """A word in a text, as code points."""

    text: str
    start: int
    stop: int


class UsageEmbedder:
    """What makes vectors of uses: the mean of a word's pieces, at a mean of layers.

    Args:
        loaded: the model.
        layers: the embedding layers whose mean is taken; None for those from two thirds of the depth on.

    Raises:
        InputError: a model that does not embed, or a layer that it does not have.
    """

    def __init__(self, loaded: "Loaded", layers: Sequence[int] | None = None) -> None:
        from regard.embedding import Embedder, Mix, Request

        depth = loaded.network.depth(next(iter(loaded.network.prefixes)))
        chosen = tuple(range(max(1, round(2 * depth / 3)), depth + 1)) if layers is None else tuple(layers)
        self.layers = Request(level="token", layer=Mix(chosen)).layers(depth)
        self.loaded = loaded
        self._embedder = Embedder(loaded, Request(level="token", layer=Mix(self.layers)))

    def about(self) -> dict[str, Any]:
        """All that the numbers depend on, for the manifest."""
        return {"model": self.loaded.source.name, "mark": self.loaded.mark(), "layers": list(self.layers)}

    def __call__(self, spans: Sequence[Span]) -> Vectors:
        """The vectors of words in their texts; a text is read once, however many of its words are asked for.

        Raises:
            InputError: a word of which the tokenizer left nothing.
        """
        of_text: dict[str, list[int]] = defaultdict(list)
        for row, span in enumerate(spans):
            of_text[span.text].append(row)
        texts = list(of_text)
        found = self._embedder.spans(texts)
        out = np.empty((len(spans), found.vectors.shape[1]), np.float32)
        begins = np.searchsorted(found.rows, np.arange(len(texts) + 1))
        for number, text in enumerate(texts):
            here = slice(begins[number], begins[number + 1])
            starts, stops = found.spans[here].T
            vectors = found.vectors[here]
            for row in of_text[text]:
                span = spans[row]
                inside = (starts < span.stop) & (stops > span.start)
                if not inside.any():
                    word = span.text[span.start : span.stop]
                    raise InputError(f"word must leave a token; the tokenizer drops all of {word!r}.")
                out[row] = vectors[inside].mean(0)
        out /= np.linalg.norm(out, axis=1, keepdims=True)
        return out


def usage_vectors(
    model: Any, rows: Sequence[tuple[Sequence[str], int]], layers: Sequence[int] | None = None
) -> Vectors:
    """The vectors that the concordance uses, of words in sentences.

    Args:
        model: a `regard.Model`, or what it holds.
        rows: for each the words of a sentence, and which of them is meant.
        layers: as of `UsageEmbedder`.

    Returns:
        (rows, d), each of length 1: the dot product of two is their cosine.

    Example:
        >>> import regard
        >>> rows = [(["the", "river", "bank"], 2), (["a", "bank", "loan"], 1), (["a", "muddy", "bank"], 2)]
        >>> vectors = usage_vectors(regard.load(), rows)
        >>> bool(vectors[0] @ vectors[2] > vectors[0] @ vectors[1])
        True
    """
    spans = []
    for words, index in rows:
        start = len(" ".join(words[:index])) + (index > 0)
        spans.append(Span(" ".join(words), start, start + len(words[index])))
    embed = UsageEmbedder(getattr(model, "loaded", model), layers)
    parts = [embed(spans[at : at + _TEXTS_AT_ONCE]) for at in range(0, len(spans), _TEXTS_AT_ONCE)]
    return np.concatenate(parts)


class VectorCache:
    """The vectors of an index, of which those that are missing are computed.

    Args:
        store: the index.
        embed: what computes them.

    Raises:
        InputError: the index has vectors of another model, or of other layers.
    """

    def __init__(self, store: Store, embed: UsageEmbedder) -> None:
        self._store, self.embed = store, embed
        about = embed.about()
        earlier = store.manifest.get("meaning")
        if earlier is None:
            with store.writing():
                store.note(meaning=about)
        elif earlier != about:
            name = next(name for name in about if about[name] != earlier.get(name))
            raise InputError(
                f"{name} must be that of the vectors that the index has, {earlier[name]}; got {about[name]}. "
                "Make a new index."
            )

    def of(self, found: Found, progress: Callable[[int, int], object] | None = None) -> Vectors:
        """The vectors of uses, in their order."""
        known = self._known(found)
        missing = Found(
            np.array([use for use in found.uses.tolist() if use not in known], np.int64), found.size
        )
        if len(missing.uses):
            self._compute(missing, progress)
            known = self._known(found)
        return np.stack([np.frombuffer(known[use], np.float16) for use in found.uses.tolist()]).astype(
            np.float32
        )

    def _known(self, found: Found) -> dict[int, bytes]:
        with self._store.of(found.uses):
            query = "SELECT v.use, v.v FROM wanted w JOIN vector v ON v.use = w.use AND v.size = ?"
            return dict(self._store.rows(query, [found.size]))

    def _compute(self, missing: Found, progress: Callable[[int, int], object] | None) -> None:
        total = len(missing.uses)
        for at in range(0, total, _TEXTS_AT_ONCE):
            part = Found(missing.uses[at : at + _TEXTS_AT_ONCE], missing.size)
            vectors = self.embed([self.span(place) for place in places(self._store, part)]).astype(np.float16)
            rows = zip(
                part.uses.tolist(),
                [missing.size] * len(vectors),
                map(np.ndarray.tobytes, vectors),
                strict=True,
            )
            with self._store.writing():
                self._store.db.executemany("INSERT OR IGNORE INTO vector VALUES (?, ?, ?)", rows)
            if progress is not None:
                progress(at + len(vectors), total)

    def span(self, place: Place) -> Span:
        """A use with what the model reads around it: its text, and beside a part of a long one some more."""
        before, after = (
            self._store.one(
                "SELECT o.body FROM text t JOIN text o ON o.id = t.id + ? AND o.doc = t.doc WHERE t.id = ?",
                [step, place.text],
            )
            for step in (-1, 1)
        )
        head = _from_blank((before or "")[-_MARGIN:], whole=len(before or "") <= _MARGIN)
        tail = (after or "")[:_MARGIN]
        tail = tail if len(after or "") <= _MARGIN else tail[: tail.rfind(" ") + 1]
        return Span(head + place.body + tail, len(head) + place.start, len(head) + place.stop)


def _from_blank(text: str, *, whole: bool) -> str:
    return text if whole else text[text.find(" ") + 1 :]
