"""Traces of a model, and what is computed from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

from regard import tracing
from regard.api._has_network import HasNetwork
from regard.core.errors import InputError
from regard.embedding import read_sentence_settings
from regard.models import as_named
from regard.text import Words, each_text

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from regard.models import Ids, Output
    from regard.tracing import Comparison, Forecast, HeadOptions, HeadTable, Keep, TextOrIds, Trace
    from regard.tracing.record import Trace as Recorded
    from regard.views import Page


class _Kept(TypedDict, total=False):
    keep: Keep
    layers: int | Sequence[int] | None
    dtype: torch.dtype | None


class Tracing(HasNetwork):
    """What a model does with a text, and what its heads do with many."""

    @overload
    def trace(  # type: ignore[overload-overlap]  # a string is an iterable of strings
        self, text: str, pair: str | None = None, *, target: str | None = None, **how: Unpack[_Kept]
    ) -> Trace: ...
    @overload
    def trace(
        self,
        text: Mapping[str, Any] | None = None,
        *,
        token_ids: Ids | None = None,
        target_ids: Ids | None = None,
        keep: Keep = "all",
        layers: int | Sequence[int] | None = None,
        dtype: torch.dtype | None = None,
        **tokenized: Any,
    ) -> Any: ...
    @overload
    def trace(
        self, text: Iterable[str | Sequence[str]], pair: None = None, **how: Unpack[_Kept]
    ) -> list[Trace]: ...
    def trace(
        self,
        text: str | Iterable[str | Sequence[str]] | Mapping[str, Any] | None = None,
        pair: str | None = None,
        *,
        target: str | None = None,
        token_ids: Ids | None = None,
        target_ids: Ids | None = None,
        keep: Keep = "all",
        layers: int | Sequence[int] | None = None,
        dtype: torch.dtype | None = None,
        **tokenized: Any,
    ) -> Trace | list[Trace]:
        """Run the model on a text and record what determines its attention.

        Args:
            text: a text, or several (a list, a column of a data frame), which give a list of traces; one of
                several may be a list of words, of one text alone `regard.text.Words([...])`. Texts of
                like length run in one pass; such a trace equals that of the text alone to 1e-5.
            pair: a second text, with a single first one.
            target: what the decoder of an encoder-decoder reads, after its start token; by default only that.
            token_ids: in place of a text, what the model reads; needs no tokenizer. (N,) or (1, N) give a
                trace, several rows a list.
            target_ids: with token_ids, what the decoder reads, its start token first.
            keep: "qk" keeps queries and keys, which is enough for weights, scores and statistics; "qkv" also
                values and contexts; "residual" the residual stream alone: hidden states and learned
                embeddings; "all" everything. What is not kept is not held during the pass either.
            layers: the attention layers to keep, in each stack that has them, with the hidden states that
                these layers read and write; None keeps all.
            dtype: the type to convert the trace to; weights are then exactly those of the trace's own q and
                k. None leaves the type as it is.

        Returns:
            The trace: see `regard.Trace`. If it is asked for something that it does not keep, it says so.

        Raises:
            InputError: empty text, or more tokens than the model takes (nothing is ever cut off); ids that
                cannot be read alone (with padding and no mask, or two texts and no types); layers that it
                does not have; or a trace that memory would not hold: see `forecast`.

        Example:
            >>> import regard
            >>> trace = regard.load().trace("time flies like an arrow", keep="qk", layers=[0, -1])
            >>> trace.weights(layer=5, head=0).shape
            torch.Size([7, 7])
        """
        # Checked before the text is read.
        keeping = tracing.KeepPolicy(keep=keep, layers=layers, dtype=dtype)
        if isinstance(text, Mapping):
            # A tokenizer's output in the place of a text.
            tokenized, text = {**text, **tokenized}, None
        ids = as_named({"token_ids": token_ids, "target_ids": target_ids, **tokenized})
        # One of the two, and not both.
        if (text is None) == ("token_ids" not in ids):
            raise InputError(
                f"text or token_ids must be given, and not both; got {'neither' if text is None else 'both'}."
            )
        if text is None:
            if pair is not None or target is not None:
                raise InputError("pair and target must be None with token_ids; give target_ids.")
            traces = tracing.trace_rows(self.loaded, **ids, keeping=keeping)
            return traces[0] if len(traces) == 1 else traces
        if ids:
            raise InputError(f"{next(iter(ids))} must be None with a text; it is read with token_ids.")
        # A string first: it is an iterable of strings, too.
        if isinstance(text, str):
            return tracing.trace_text(self.loaded, text, pair, target=target, keeping=keeping)
        try:
            texts = list(each_text("text", text))
        except InputError as error:
            raise InputError(f"{error} Ids are given by their name: trace(token_ids=...).") from error
        if pair is not None or target is not None:
            raise InputError("pair and target must be None with several texts; trace each by itself.")
        return tracing.trace_texts(self.loaded, texts, keeping=keeping)

    def forecast(
        self,
        n_tokens: int,
        *,
        keep: Keep = "all",
        layers: int | Sequence[int] | None = None,
        dtype: torch.dtype | None = None,
        target_tokens: int | None = None,
    ) -> Forecast:
        """Estimate the memory of a trace, in addition to the loaded model: see `regard.tracing.forecast`.

        Args:
            n_tokens: the length of the text, with special tokens.
            keep, layers, dtype: as in `trace`.
            target_tokens: in an encoder-decoder, the length of the decoder's text; by default its start token
                alone.

        Raises:
            InputError: fewer tokens than one, or more than the model takes.

        Example:
            >>> import regard
            >>> regard.load().forecast(512, keep="qk").kept
            9437184
        """
        keeping = tracing.KeepPolicy(keep=keep, layers=layers, dtype=dtype)
        return tracing.forecast(self.loaded, n_tokens, target_tokens, keeping)

    def gradients(
        self,
        text: TextOrIds | Recorded,
        *,
        of: Callable[[Output], Tensor],
        at: str | Sequence[str],
    ) -> dict[str, Tensor]:
        """Gradients of a number with respect to the tensors at some taps: see `regard.Trace.gradients`."""
        from regard.tracing.measures import gradients

        return gradients(replace(self._traced("text", text), loaded=self.loaded), of=of, at=at)

    def _traced(self, name: str, text: TextOrIds | Recorded) -> Recorded:
        from torch import Tensor

        from regard.tracing.record import Trace as Recorded

        # A trace that was made already.
        if isinstance(text, Recorded):
            return text
        text = Words.if_listed(text)
        if not isinstance(text, str | Sequence | Tensor | Mapping):
            raise InputError(f"{name} must be a text, token ids or a trace; got {type(text).__name__}.")
        read: Callable[..., Recorded] = tracing.trace_text if isinstance(text, str) else tracing.trace_ids
        try:
            traced: Recorded = read(self.loaded, text, keeping=tracing.KeepPolicy(keep="residual"))
        except InputError as error:
            raise InputError(f"{name}: {error}") from error
        return traced

    def heads(
        self,
        texts: str | Iterable[TextOrIds],
        *,
        targets: str | Iterable[TextOrIds] | None = None,
        on_refused: Callable[[int, InputError], None] | None = None,
        **options: Unpack[HeadOptions],
    ) -> HeadTable:
        """Find what every head does over a text or a corpus: see `regard.tracing.heads`.

        Example:
            >>> import regard
            >>> regard.load().heads("The cat sat on the mat, and the dog lay on the rug.", layer=0, head=2)
            HeadTable('sentence-transformers/all-MiniLM-L6-v2', 1 text: 1 previous)
        """
        return tracing.heads(self.loaded, texts, targets=targets, on_refused=on_refused, **options)

    def compare(self, texts: Sequence[str], word: str | Sequence[str]) -> Comparison:
        """Compare a word's vectors between texts, at every embedding layer: see `regard.tracing.compare`."""
        if not isinstance(texts, Sequence) or isinstance(texts, str):
            raise InputError(f"texts must be a list of two texts or more; got {type(texts).__name__}.")
        return tracing.compare(self.trace(list(texts)), word)

    def live_page(
        self, text: str, pair: str | None = None, *, against: str | None = None, beside: str | None = None
    ) -> Page:
        """Make a page that holds the model itself: type any sentence, offline, and every view follows.

        On the page you can switch off heads and drag weights. It says which words' contextual embeddings
        move, how alike two sentences are, and what a language-model head expects. Its weights have 8 bits, or
        those of a GGUF file; regard measures over some sentences how much 8 bits change, and states it in
        `live_difference` and on the page.

        Args:
            text: the first sentence on the page, with Python's own numbers.
            pair: a second text, which the model reads with the first.
            against: another text that has words of the first: the page opens on what they look at in both.
            beside: a name for a file beside the page that holds the weights, such as "model.bin", for a page
                that a server sends: it asks for them when somebody wants them, and the browser keeps them.

        Returns:
            The page: `model.live_page("...").write("live.html")`. With the default model it takes 33 MB.

        Raises:
            InputError: the page does not run the model's family, or it has edits; or as `trace`.

        Example:
            >>> import regard
            >>> page = regard.load().live_page("time flies like an arrow")
            >>> len(page.html) < 40e6, page.live_difference < 0.05
            (True, True)
        """
        settings = read_sentence_settings(self.loaded.source.folder)
        pooling = settings.plain_pooling
        return tracing.live_page(self.loaded, text, pair, against=against, beside=beside, pooling=pooling)
