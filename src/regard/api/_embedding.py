"""Vectors of many texts."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from itertools import count, islice
from typing import Any, Literal, TypedDict, Unpack, overload

import numpy as np

from regard.api._has_network import HasNetwork
from regard.core.arguments import check_function, check_names
from regard.core.progress import Bar
from regard.embedding import (
    Embeddings,
    KeptEmbedder,
    Kind,
    Mix,
    Precision,
    Report,
    Request,
    SentenceVectors,
    Storage,
    Truncate,
    Windows,
    WordKind,
)
from regard.models import Loaded
from regard.text import each_text

# Texts that are sorted by length together: tokens of more would only wait in memory.
_AT_ONCE = 8192

Texts = Iterable[str | Sequence[str]]
Told = Callable[[int, int], object]


class _Options(TypedDict, total=False):
    layer: int | Sequence[int] | Mix
    normalize: bool | None
    window: Windows | Truncate | None
    truncate_dim: int | None
    precision: Precision
    storage: Storage
    batch_tokens: int
    threads: int | None
    progress: Told | None


class OfSentences(_Options, total=False):
    """The options of `embed` for sentences: fields of `Request`."""

    pooling: Kind | Sequence[Kind] | None
    prompt: str | None
    prompt_name: str | None


class OfWords(_Options, total=False):
    """The options of `embed` for words and tokens: fields of `Request`."""

    pooling: WordKind | Sequence[WordKind] | None


def _with_fields(method: Any) -> Any:
    """Lets help() and completion show the fields of a request for the method's `**options`."""
    own = inspect.signature(method)
    level, *fields = inspect.signature(Request).parameters.values()
    *named, _ = own.parameters.values()
    # The method's own arguments, then those of a request, then **options.
    method.__signature__ = own.replace(parameters=[*named[:-1], level, *fields, named[-1]])
    return method


class Embedding(HasNetwork):
    """What a model makes of texts: vectors."""

    def __init__(self, loaded: Loaded) -> None:
        super().__init__(loaded)
        self._embedder = KeptEmbedder()

    @overload
    def embed(
        self, texts: Texts, *, level: Literal["sentence"] = "sentence", **options: Unpack[OfSentences]
    ) -> SentenceVectors: ...
    @overload
    def embed(
        self, texts: Texts, *, level: Literal["word", "token"], **options: Unpack[OfWords]
    ) -> Embeddings: ...
    @_with_fields
    def embed(
        self, texts: Texts, *, progress: Told | None = None, **options: Any
    ) -> SentenceVectors | Embeddings:
        """Embed texts: sentences, words or tokens, at any layer.

        Texts are tokenised once, sorted by length, and run without padding, up to the highest layer that you
        ask for. A text beyond the model's limit is read in overlapping windows, and each of its tokens is
        embedded where it has most context; `.report` says which texts these were. The next call with the
        same request uses the prepared weights of this one.

        Args:
            texts: any number, in a list, a column of a table (such as a pandas Series), or an iterator: each
                a string, or a list of the words that it is cut into (see `regard.text.Words`).
            level: what gets a vector: "sentence" each text, "word" each word that the text has, "token" each
                piece.
            layer: 0 is the learned (static) embedding, the row of the table; i >= 1 what attention layer
                i - 1 hands on; -1 the contextual embedding. A list adds an axis, in its order; a
                `regard.Mix` is a weighted sum.
            pooling: how tokens become a sentence vector, one of `regard.embedding.KINDS`, or several, which
                are joined; None for the checkpoint's own way, with all its steps. How pieces become a word's
                vector: "mean" (the default), "first", "last" or "max".
            normalize: whether to scale vectors to length 1; None is as the checkpoint's own pooling has it.
            window: `regard.Windows(size, overlap)` or `regard.Truncate(size)`, for texts beyond the limit.
            prompt, prompt_name: of sentences, a text to put before each text, or the name of a prompt of the
                checkpoint; by default the one that the checkpoint names.
            truncate_dim: how many entries of a vector to keep.
            precision: the type to compute in. "float32" is exact to 1e-5 on every processor. "int16" loses
                next to nothing, "int8" and "bfloat16" more, and each is faster on processors made for it;
                "fast" takes the fastest here whose cosines to float32 are at least 0.999 ("int8" only for
                sentences that are means over their tokens). `.report.computed` has the type that was used,
                and the loss.
            storage: how to store vectors: "float32", "float16", "int8" or "ubinary".
            batch_tokens: the most tokens that run together.
            threads: how many cores to use; None for those that the process may use.
            progress: called now and then with (done, total) texts; for an iterator the total is the number
                read so far. None: after 3 seconds a bar on stderr, in a terminal or a notebook.

        Returns:
            For sentences an array (texts, d), or (texts, layers, d) for a list of layers, float32 unless
            `storage` says otherwise. For words and tokens `Embeddings`, with `vectors`, `spans`, `texts` and
            `rows`. Both have a `report` and `to_arrow()`, and display themselves as a table.

        Raises:
            InputError: an argument is none of these, or a text cannot be embedded, such as an empty one; the
                message says which.

        Example:
            >>> import regard
            >>> model = regard.load()
            >>> model.embed(["a river bank", "a bank account"]).shape
            (2, 384)
            >>> words = model.embed(["a river bank", "a bank account"], level="word", layer=[0, 4])
            >>> words.texts, words.vectors.shape
            (['a', 'river', 'bank', 'a', 'bank', 'account'], (6, 2, 384))
            >>> bool((words.vectors[2, 0] == words.vectors[4, 0]).all())  # "bank", not yet in its context
            True
        """
        # As if it were not given: a request has windows then.
        if options.get("window", ...) is None:
            del options["window"]
        check_names(options, Request.__dataclass_fields__)
        request = Request(**options)
        check_function("progress", progress, "of what is done and what there is", optional=True)
        embedder = self._embedder.embedder_for(self.loaded, request)
        # Portions of 8,192 texts, each with the number of its first.
        portions = ((n * _AT_ONCE, each) for n, each in enumerate(_portions(texts)))
        with Bar("texts", patience=3.0) as bar:

            def told(first: int, count: int) -> Callable[[int], object]:
                # An iterator has no length: the total is what was read so far.
                total = len(texts) if isinstance(texts, Sized) else first + count
                return lambda done: (progress or bar)(first + done, total)

            if request.level == "sentence":
                parts = [
                    embedder.sentences(part, first=first, told=told(first, len(part)))
                    for first, part in portions
                ]
                # One report and one array over all portions.
                report = Report.joined([each.report for each in parts])
                # Only int8 vectors have scales.
                scales = [each.scales for each in parts if each.scales is not None]
                return SentenceVectors.of(
                    np.concatenate([each.vectors for each in parts]),
                    report,
                    layers=parts[0].layers,
                    scales=np.concatenate(scales) if scales else None,
                )
            return Embeddings.joined(
                [embedder.spans(part, first=first, told=told(first, len(part))) for first, part in portions]
            )


def _portions(texts: Iterable[str | Sequence[str]]) -> Iterator[list[str]]:
    """Lists of texts, at least one, so that no texts give vectors of no rows."""
    stream = each_text("texts", texts)
    for first in count(0, _AT_ONCE):
        portion = list(islice(stream, _AT_ONCE))
        # The first portion also where it is empty: vectors of no rows have a shape, too.
        if portion or not first:
            yield portion
        if len(portion) < _AT_ONCE:
            return
