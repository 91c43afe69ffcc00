"""Vectors of many texts."""

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from itertools import count, islice
from typing import Literal, overload

import numpy as np

from regard.core.arguments import check_function
from regard.embedding import (
    BATCH_TOKENS,
    Embeddings,
    KeptEmbedder,
    Kind,
    Level,
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
from regard.model._bar import Bar
from regard.model._held import Held
from regard.models import Loaded
from regard.text import each_text

# Texts that are sorted by length together: tokens of more would only wait in memory.
_AT_ONCE = 8192


class Embedding(Held):
    """What a model makes of texts: vectors."""

    def __init__(self, loaded: Loaded) -> None:
        super().__init__(loaded)
        self._embedder = KeptEmbedder()

    @overload
    def embed(
        self,
        texts: Iterable[str | Sequence[str]],
        *,
        level: Literal["sentence"] = "sentence",
        layer: int | Sequence[int] | Mix = -1,
        pooling: Kind | Sequence[Kind] | None = None,
        normalize: bool | None = None,
        window: Windows | Truncate | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        truncate_dim: int | None = None,
        precision: Precision = "float32",
        storage: Storage = "float32",
        batch_tokens: int = BATCH_TOKENS,
        threads: int | None = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> SentenceVectors: ...
    @overload
    def embed(
        self,
        texts: Iterable[str | Sequence[str]],
        *,
        level: Literal["word", "token"],
        layer: int | Sequence[int] | Mix = -1,
        pooling: WordKind | Sequence[WordKind] | None = None,
        normalize: bool | None = None,
        window: Windows | Truncate | None = None,
        truncate_dim: int | None = None,
        precision: Precision = "float32",
        storage: Storage = "float32",
        batch_tokens: int = BATCH_TOKENS,
        threads: int | None = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> Embeddings: ...
    def embed(
        self,
        texts: Iterable[str | Sequence[str]],
        *,
        level: Level = "sentence",
        layer: int | Sequence[int] | Mix = -1,
        pooling: Kind | WordKind | Sequence[Kind | WordKind] | None = None,
        normalize: bool | None = None,
        window: Windows | Truncate | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        truncate_dim: int | None = None,
        precision: Precision = "float32",
        storage: Storage = "float32",
        batch_tokens: int = BATCH_TOKENS,
        threads: int | None = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> SentenceVectors | Embeddings:
        """Embed texts: sentences, words or tokens, at any layer.

        Texts are tokenised once, sorted by length, and run without padding, up to the highest layer that you
        ask for. A text beyond the model's limit is read in overlapping windows, and each of its tokens is
        embedded where it has most context; `.report` says which texts these were. The next call with the
        same request uses the prepared weights of this one.

        Args:
            texts: any number, in a list, a column of a table (such as a pandas Series), or an iterator: each
                a string, or a list of the words that it is cut into (see `regard.text.Words`).
            level: what gets a vector. `regard.embedding.Request` has more on this and the next arguments.
            layer: 0 is the learned embedding, -1 the contextual one; a number, a list, or a `regard.Mix`.
            pooling: how tokens become a sentence vector; None for the checkpoint's own way, with all its
                steps. How pieces become a word's vector: "mean" (the default), "first", "last" or "max".
            normalize: whether to scale vectors to length 1.
            window: `regard.Windows(size, overlap)` or `regard.Truncate(size)`.
            prompt, prompt_name: a text to put before each text, or the name of a prompt of the checkpoint.
            truncate_dim: how many entries of a vector to keep.
            precision: the type to compute in. "float32" is exact to 1e-5 on every processor. "int16" loses
                next to nothing, "int8" and "bfloat16" more; "fast" takes the fastest whose cosines to
                float32 are at least 0.999. `.report.computed` has the type that was used, and the loss.
            storage: how to store vectors: "float32", "float16", "int8" or "ubinary".
            batch_tokens: the most tokens that run together.
            threads: how many cores to use.
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
        request = Request(
            level=level,
            layer=layer,
            pooling=pooling,
            normalize=normalize,
            window=Windows() if window is None else window,
            prompt=prompt,
            prompt_name=prompt_name,
            truncate_dim=truncate_dim,
            precision=precision,
            storage=storage,
            batch_tokens=batch_tokens,
            threads=threads,
        )
        check_function("progress", progress, "of what is done and what there is", optional=True)
        embedder = self._embedder.of(self.loaded, request)
        portions = ((n * _AT_ONCE, each) for n, each in enumerate(_portions(texts)))
        with Bar("texts") as bar:

            def told(first: int, count: int) -> Callable[[int], object]:
                total = len(texts) if isinstance(texts, Sized) else first + count
                return lambda done: (progress or bar)(first + done, total)

            if level == "sentence":
                made = [
                    embedder.sentences(part, first=first, told=told(first, len(part)))
                    for first, part in portions
                ]
                report = Report.joined([each.report for each in made])
                scales = [each.scales for each in made if each.scales is not None]
                return SentenceVectors.of(
                    np.concatenate([each.vectors for each in made]),
                    report,
                    layers=made[0].layers,
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
        if portion or not first:
            yield portion
        if len(portion) < _AT_ONCE:
            return
