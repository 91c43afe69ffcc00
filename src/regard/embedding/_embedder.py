"""From texts to vectors."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from threading import Lock, get_ident
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.core.errors import InputError
from regard.embedding._embeddings import Embeddings, Report
from regard.embedding._engine import stack_of
from regard.embedding._engine_choice import choose_engine
from regard.embedding._packs import Pack, over, pack
from regard.embedding._passages import Passage, Passages, Window, groups_of, parts_of, read, room_of, torn
from regard.embedding._pooling import Row, added, pool_rows, pool_words
from regard.embedding._request import Mix, Request
from regard.embedding._settings import SentenceSettings, read_sentence_settings
from regard.embedding._steps import NotFiniteError, Packed, Unit, finished, packed
from regard.models import Loaded
from regard.text import Frame


@dataclass(frozen=True, kw_only=True, eq=False)
class Sentences:
    """Sentence vectors.

    Attributes:
        vectors: (texts, [layers,] d).
        layers: the embedding layers of the second axis; None where there is no such axis.
        scales: of storage "int8": float32 (texts[, layers]); else None.
        report: what became of each text.
    """

    vectors: NDArray[Any]
    layers: tuple[int, ...] | None
    scales: NDArray[np.float32] | None
    report: Report


class Embedder:
    """A model, made ready for one kind of vectors.

    Made once for many calls: weights are folded and converted here, and precision and threads settled.
    A text's vectors do not depend on the other texts of a call, but for the order in which the processor
    adds: at most 2e-6 of the largest entry in float32, and not a bit in int16, where measured.

    Args:
        loaded: the model.
        request: which vectors.

    Attributes:
        settled: everything that the numbers depend on beside the model and the tokenizer, as JSON values.
        computed: what the model computes in, and what that costs, measured before anything is embedded.

    Raises:
        InputError: a model with edits that mean certain positions; a layer or an engine that it does not
            have, or steps of the checkpoint that do not fit the request.
        CheckpointError: no tokenizer, or damaged files beside the model.

    Example:
        >>> from regard.embedding import Embedder, Request
        >>> from regard.models import load_checkpoint
        >>> embedder = Embedder(load_checkpoint(), Request(level="word", layer=4))
        >>> words = embedder.spans(["a river bank"])
        >>> words.texts, words.vectors.shape
        (['a', 'river', 'bank'], (3, 384))
    """

    def __init__(self, loaded: Loaded, request: Request) -> None:
        self._loaded, self._request = loaded, request
        self._tokenizer = loaded.require_tokenizer()
        self._bulk = self._tokenizer.bulk
        self._frame = self._bulk.frame()
        network = loaded.network
        # An edit at word 3 of one text says nothing of others.
        if network.bound is not None:
            raise InputError(
                "model must have no edits that mean certain positions, to embed any text; "
                f"{network.bound} does. Take its vectors from traces: edited.trace(text).embeddings(layer)."
            )
        # Layers by number from 0, the embeddings, to the depth.
        self._layers = request.layers(network.depth(stack_of(network)))
        self._of_sentences = request.level == "sentence"
        self.sentence = (
            read_sentence_settings(loaded.source.folder) if self._of_sentences else SentenceSettings()
        )
        self._prompt = self.sentence.prompt(prompt=request.prompt, name=request.prompt_name)
        # The checkpoint's dense layers fit the last layer only.
        self._check_steps()
        most = self._longest()
        # The shorter of the model's limit and the checkpoint's.
        own = (most, self.sentence.max_seq_length)
        limit = min((each for each in own if each is not None), default=None)
        self._room = room_of(request.window, self._frame, limit=limit, most=most)
        # A mean over tokens evens out rounding, so that fewer bits may be enough.
        averaged = self._of_sentences and self._kinds == ("mean",)
        settled = choose_engine(loaded, request, self._unique, averaged=averaged)
        self._engine, self._threads, self.computed = settled.engine, settled.threads, settled.computed
        # All that the vectors depend on: a job writes it down, and compares it when it goes on.
        self.settled = {
            "level": request.level,
            "layers": list(self._layers),
            "mix": list(request.layer.shares) if isinstance(request.layer, Mix) else None,
            "pooling": list(self._kinds),
            "normalize": request.normalize,
            "prompt": self._prompt,
            "window": {"kind": type(request.window).__name__, **asdict(request.window), "room": self._room},
            "truncate_dim": self._truncate_dim,
            "storage": request.storage,
            "batch_tokens": request.batch_tokens,
            **settled.record,
        }

    @property
    def _unique(self) -> list[int]:
        return sorted(set(self._layers))

    @property
    def _axis(self) -> tuple[int, ...] | None:
        return None if self._request.is_single else self._layers

    @property
    def _kinds(self) -> tuple[Any, ...]:
        return self._request.poolings or self.sentence.pooling

    @property
    def _truncate_dim(self) -> int | None:
        own = self.sentence.truncate_dim if self._request.pooling is None else None
        return own if self._request.truncate_dim is None else self._request.truncate_dim

    @property
    def _skip(self) -> int:
        """Tokens at the start of a text that are not pooled."""
        if not self._prompt or self.sentence.include_prompt:
            return 0
        # Counted by tokenising the prompt alone, as sentence-transformers does.
        (prompt,) = self._bulk.pieces([self.sentence.prepared(self._prompt)])
        return len(self._frame.before) + len(prompt)

    def _check_steps(self) -> None:
        # Unit has nothing that was trained: it fits any layer.
        trained = [step for step in self.sentence.steps if not isinstance(step, Unit)]
        network = self._loaded.network
        last = network.depth(stack_of(network))
        if self._of_sentences and self._request.pooling is None:
            self.sentence.width(network.config.d_model)
        if self._request.pooling is None and trained and self._layers != (last,):
            raise InputError(
                f"layer must be {last} with this checkpoint's own pooling: the {type(trained[0]).__name__} "
                "after it was trained on the last layer. Give pooling, such as 'mean', for other layers."
            )

    def _longest(self) -> int | None:
        network = self._loaded.network
        table = network.limit(stack_of(network))
        return network.config.max_seq_len if table is None else table

    def sentences(
        self, texts: Sequence[str], *, first: int = 0, told: Callable[[int], object] | None = None
    ) -> Sentences:
        """One vector for each text.

        Args:
            texts: any number; they are sorted by length, run together, and given back in order.
            first: the number of the first, for messages.
            told: called now and then, in this thread, with the number of texts that are done.

        Raises:
            InputError: a text that cannot be embedded; the message says which.
        """
        return self.vectors(self.read(texts, first=first), told=told)

    def read(self, texts: Sequence[str], *, first: int = 0, window: Window | None = None) -> list[Passage]:
        """Texts as they will be read, for `vectors`: tokenised, with their prompt and their frame.

        Args:
            texts: any number.
            first: the number of the first, for messages.
            window: what becomes of long ones; by default as requested. Its size is not looked at.

        Raises:
            InputError: a text that cannot be embedded; the message says which.
        """
        prepared = [self.sentence.prepared(text, self._prompt) for text in texts]
        return self._read(prepared, first, spans=False, window=window)

    def passage_of_ids(self, ids: Sequence[int], *, window: Window | None = None) -> Passage:
        """A text given by its token ids, read as they are: with their special tokens, if they have any.

        Raises:
            InputError: no ids, or one that is not in the vocabulary.
        """
        known = self._loaded.network.config.vocab_size
        if not ids:
            raise InputError("ids must hold a token at least; got none.")
        if wrong := [id for id in ids if not 0 <= id < known]:
            raise InputError(
                f"ids must be from 0 to {known - 1}, this model's vocabulary of {known:,} tokens; "
                f"got {wrong[0]}."
            )
        # Without a frame: the ids have what they need.
        parts = parts_of(window or self._request.window, len(ids), self.limit, ())
        return Passage(list(ids), parts, Frame(before=(), after=()))

    def vectors(
        self,
        texts: Sequence[Passage],
        *,
        told: Callable[[int], object] | None = None,
        alone: bool = False,
    ) -> Sentences:
        """One vector for each text that was read: as `sentences`; `alone`: by this thread, beside others."""
        passages = Passages.with_rows(texts)
        skip = self._skip
        # (texts, layers, width), filled pack by pack.
        out = _Rows(len(texts))
        parts: dict[tuple[int, int], Tensor] = {}  # of texts that are read in several
        kinds = self._kinds

        def take(rows: list[int], vectors: Tensor) -> None:
            pooled = pool_rows(kinds, vectors, [self._pooled_of(passages, row) for row in rows], skip=skip)
            # Texts in one row are done; parts of longer ones wait for the rest.
            whole, places = [], []
            for place, (text, part) in enumerate(passages.rows[row] for row in rows):
                if len(passages.texts[text].parts) == 1:
                    whole.append(place)
                    places.append(text)
                else:
                    # A copy: a view would keep the vectors of its whole pack.
                    parts[text, part.start] = pooled[place].clone()
            out.put(places, pooled[whole])

        self._run(passages, take, told, alone)
        for text, passage in enumerate(passages.texts):
            if len(passage.parts) > 1:
                # In the order of the text, whichever pack was done first.
                vector = added(kinds, [parts[text, part.start] for part in passage.parts])
                out.put([text], vector[None])
        stored, report = self._stored(out, np.arange(len(texts)), passages)
        return Sentences(vectors=stored.vectors, layers=self._axis, scales=stored.scales, report=report)

    def spans(
        self, texts: Sequence[str], *, first: int = 0, told: Callable[[int], object] | None = None
    ) -> Embeddings:
        """A vector for each word, or for each piece, of the texts: as `level` says; else as `sentences`.

        Raises:
            InputError: a text that cannot be embedded; the message says which.
        """
        passages = Passages.with_rows(self._read(texts, first, spans=True))
        groups = [
            groups_of(passage.aligned, passage.parts[-1].stop, self._request.level, self._bulk.unknown)
            for passage in passages.texts
        ]
        # Where the vectors of each text begin among all.
        firsts = np.concatenate([[0], np.cumsum([len(spans) for _, spans, _ in groups])]).astype(np.int64)
        out = _Rows(int(firsts[-1]))
        # Pieces of words that lie in two windows, by text and word.
        broken: dict[tuple[int, int], dict[int, Tensor]] = {}
        before = len(self._frame.before)

        def take(rows: list[int], vectors: Tensor) -> None:
            picked, starts, targets, offset = [], [], [], 0
            count = 0
            for row in rows:
                text, part = passages.rows[row]
                # The word of each piece, and where words stand in the text.
                group_of, spans, _ = groups[text]
                here = group_of[part.first : part.last]
                # Pieces of a word that has a vector; -1 is between words.
                places = np.flatnonzero((here >= 0) & (here < len(spans)))
                # Their rows in the pack: after the texts before, and after the frame's first tokens.
                at = places + (offset + before + part.first - part.start)
                offset += passages.length(row)
                if not len(places):
                    continue
                names = here[places]
                begins = np.flatnonzero(np.diff(names, prepend=-1))  # the first piece of each
                # Kept until the other window has been computed.
                for name in torn(group_of, part.first, part.last, len(spans)):
                    mine = at[names == name]
                    broken.setdefault((text, name), {})[part.first] = vectors[torch.from_numpy(mine)]
                picked.append(at)
                starts.append(begins + count)
                targets.append(names[begins] + firsts[text])
                count += len(at)
            if not picked:
                return
            rows_of, starts_of = (
                torch.from_numpy(np.concatenate(each)).to(vectors.device) for each in (picked, starts)
            )
            out.put(np.concatenate(targets), pool_words(self._kinds, vectors, rows_of, starts_of))

        self._run(passages, take, told)
        for (text, name), parts in broken.items():
            # All pieces of the word, in order.
            rows = torch.cat([parts[first] for first in sorted(parts)])
            whole, start = torch.arange(len(rows)), torch.tensor([0])
            out.put(firsts[text : text + 1] + name, pool_words(self._kinds, rows.cpu(), whole, start))
        # The text of each vector.
        owners = np.repeat(np.arange(len(texts), dtype=np.int64), np.diff(firsts))
        stored, report = self._stored(out, owners, passages)
        spans_of = [spans for _, spans, _ in groups]
        return Embeddings(
            vectors=stored.vectors,
            scales=stored.scales,
            layers=self._axis,
            rows=owners,
            spans=np.array([span for spans in spans_of for span in spans], dtype=np.int64).reshape(-1, 2),
            texts=[text[a:b] for text, spans in zip(texts, spans_of, strict=True) for a, b in spans],
            unknown=np.concatenate([np.zeros(0, bool), *(unknown for _, _, unknown in groups)]),
            report=report,
        )

    def _read(
        self, texts: Sequence[str], first: int, *, spans: bool, window: Window | None = None
    ) -> list[Passage]:
        window, room = window or self._request.window, self._room
        return read(self._bulk, self._frame, texts, window=window, room=room, spans=spans, first=first)

    @property
    def limit(self) -> int | None:
        """The most tokens that are read at once, those of the frame counted; None for no limit."""
        return None if self._room is None else self._room + len(self._frame)

    def _run(
        self,
        passages: Passages,
        take: Callable[[list[int], Tensor], None],
        told: Callable[[int], object] | None,
        alone: bool = False,
    ) -> None:
        """Compute all rows; `take` gets those of a pack with their vectors (tokens, layers, width)."""
        here, ended = get_ident(), []
        lengths = [passages.length(row) for row in range(len(passages.rows))]
        most = self._request.batch_tokens
        # Rows of like lengths run together.
        packs = pack(lengths, tokens=most, mixed=self._engine.mixed, alone=alone)

        def compute(one: Pack) -> None:
            rows = [row for run in one for row in run.rows]
            ids = torch.from_numpy(np.fromiter(chain.from_iterable(map(passages.ids, rows)), np.int64))
            hidden = self._engine.hidden(ids, [(len(run.rows), run.length) for run in one])
            take(rows, self._arranged(dict(zip(self._unique, hidden, strict=True))))
            # A text is done with its last part.
            ended.append(sum(passages.rows[row][1] is passages.last(row) for row in rows))
            if told is not None and get_ident() == here:  # a notebook shows nothing from another thread
                told(sum(ended))

        over(packs, compute, threads=1 if alone else self._threads)
        if told is not None:
            told(len(passages.texts))

    def _arranged(self, hidden: dict[int, Tensor]) -> Tensor:
        """(tokens, layers, width): in the order asked for, or mixed."""
        # (tokens, width) each
        chosen = [hidden[layer] for layer in self._layers]
        if len({each.shape[1] for each in chosen}) > 1:
            raise InputError(
                "layer must not join layer 0 with others here: this model's learned embeddings have "
                f"{hidden[0].shape[1]} entries, and its contextual ones {chosen[-1].shape[1]}."
            )
        if isinstance(self._request.layer, Mix):
            shares = self._request.layer.shares
            # A weighted sum of layers, as one layer.
            return sum(share * each for share, each in zip(shares, chosen, strict=True))[:, None]  # type: ignore[index]
        return chosen[0][:, None] if len(chosen) == 1 else torch.stack(chosen, dim=1)

    def _pooled_of(self, passages: Passages, row: int) -> Row:
        """Which tokens of a row are pooled: of the frame what stands around the text, not around a part."""
        text, part = passages.rows[row]
        length = passages.length(row)
        if len(passages.texts[text].parts) == 1:
            return Row.whole(length)
        frame = passages.texts[text].frame
        before, after = len(frame.before), len(frame.after)
        count = len(passages.texts[text].ids)
        # The first part keeps the frame's first tokens, the last part its last ones.
        start = 0 if part.first == 0 else before + part.first - part.start
        stop = length if part.last == count else length - after - (part.stop - part.last)
        first = 0 if part.first == 0 else before + part.first
        return Row(length, start, stop, first, count + len(frame))

    def _stored(self, out: "_Rows", rows: NDArray[np.int64], passages: Passages) -> tuple[Packed, Report]:
        """The vectors as they are kept, and the report; `rows` says which text each is of."""
        layers = len(self._layers) if isinstance(self._request.layer, Sequence) else 1
        width = self._loaded.network.config.d_model * len(self._kinds)
        vectors = out.filled((layers, width))
        steps = self.sentence.steps if self._of_sentences and self._request.pooling is None else ()
        done = finished(vectors, steps, truncate_dim=self._truncate_dim, normalize=self._request.normalize)
        if self._request.is_single:
            done = done[:, 0]
        try:
            stored = packed(done, self._request.storage)
        except NotFiniteError as error:
            error.places = np.unique(rows[error.places])  # texts
            raise
        # All signs may be negative: then only the numbers tell whether a vector is zero.
        # A vector of zeros has no direction: it is counted.
        kept = done.numpy() if self._request.storage == "ubinary" else stored.vectors
        zero = ~kept.any(axis=-1)
        zero_of = np.bincount(rows, zero.sum(axis=tuple(range(1, zero.ndim))), len(passages.texts))
        return stored, passages.report(
            self.computed,
            self._bulk.unknown,
            zero=zero_of.astype(np.int64),
            pooling=() if self._request.level == "token" else self._kinds,
        )


class _Rows:
    """Vectors on the CPU that threads fill, each its own rows."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._lock = Lock()
        self._rows: NDArray[np.float32] | None = None

    def put(self, places: Sequence[int] | NDArray[np.int64], vectors: Tensor) -> None:
        with self._lock:  # for the making of room alone: no two threads write one row
            if self._rows is None:
                self._rows = np.empty((self._count, *vectors.shape[1:]), np.float32)
        self._rows[places] = vectors.float().cpu().numpy()

    def filled(self, shape: tuple[int, ...]) -> Tensor:
        """All rows; `shape` is that of a row, for the case that there is none."""
        rows = np.empty((self._count, *shape), np.float32) if self._rows is None else self._rows
        return torch.from_numpy(rows)
