"""Running a model on a text while listening: the fused forward pass, with what a trace keeps read off it."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Self

import torch

from regard.core.errors import InputError
from regard.models import Ids, Loaded, StackKind, as_named, read_ids
from regard.text import Encoding
from regard.tracing.record import EVERYTHING, KeepPolicy, Trace
from regard.tracing.run._forecast import check_fits
from regard.tracing.run._listening import Listening
from regard.tracing.run._passes import Given, batches, check_mode, run


class TraceOfRun(Trace):
    """A trace with the ways to make one: each runs a model once, on the fused kernels, and listens.

    `regard.Model.trace` says what can be traced, what is kept, and what is refused.
    """

    @classmethod
    def of_text(
        cls,
        loaded: Loaded,
        text: str,
        pair: str | None = None,
        *,
        target: str | None = None,
        keeping: KeepPolicy = EVERYTHING,
    ) -> Self:
        """Trace a text, or a pair of texts; `target` is what the decoder beside an encoder reads."""
        # One text, one trace.
        (trace,) = cls._of_pass(loaded, [_read(loaded, text, pair, target)], keeping)
        return trace

    @classmethod
    def of_texts(
        cls, loaded: Loaded, texts: Sequence[str], *, keeping: KeepPolicy = EVERYTHING
    ) -> list[Self]:
        """Trace several texts, those of like length in one pass.

        A trace equals that of the text alone to 1e-5 (float32), not to the last bit: kernels add in another
        order.
        """
        # Each text is read later, so that errors can name it.
        return cls._of_many(
            loaded, [partial(_read, loaded, text, None, None) for text in texts], "text", keeping
        )

    @classmethod
    def of_encoding(
        cls,
        loaded: Loaded,
        encoding: Encoding,
        target: Encoding | None = None,
        *,
        keeping: KeepPolicy = EVERYTHING,
    ) -> Self:
        """Trace what was encoded already; its tokens have the words of its text."""
        (trace,) = cls._of_pass(loaded, [_checked(loaded, encoding, target)], keeping)
        return trace

    @classmethod
    def of_ids(
        cls,
        loaded: Loaded,
        token_ids: Ids,
        target_ids: Ids | None = None,
        *,
        keeping: KeepPolicy = EVERYTHING,
    ) -> Self:
        """Trace the token ids of one text, which need no tokenizer."""
        traces = cls.of_rows(loaded, token_ids, target_ids, keeping=keeping)
        if len(traces) > 1:
            raise InputError(f"token_ids must be of one text, (N,) or (1, N); got {len(traces)} rows.")
        return traces[0]

    @classmethod
    def of_rows(
        cls,
        loaded: Loaded,
        token_ids: Ids,
        target_ids: Ids | None = None,
        *,
        mask: Any = None,
        token_types: Any = None,
        target_mask: Any = None,
        keeping: KeepPolicy = EVERYTHING,
    ) -> list[Self]:
        """Trace rows of token ids as a tokenizer gives them; none is needed, and the tokens have no words.

        Args:
            loaded: the model.
            token_ids: what the model reads, (N,), or a row for each text; or all that a tokenizer gave.
            target_ids: what the decoder of an encoder-decoder reads, its start token first, likewise; by
                default only that.
            mask: of the shape of token_ids, 0 for padding, which is left out: a trace is that of the text
                alone.
            token_types: of the shape of token_ids, which text of a pair.
            target_mask: like mask, for target_ids.
            keeping: what is kept of each.
        """
        if isinstance(token_ids, Mapping):  # all that a tokenizer gave: its names are transformers' own
            # None, unless the mapping has ids of its own.
            arguments = {"token_ids": None} | as_named({"target_ids": target_ids, **token_ids})
            return cls.of_rows(loaded, **arguments, keeping=keeping)
        encodings = read_ids(loaded, token_ids, mask, token_types)
        targets = _targets(loaded, len(encodings), target_ids, target_mask)
        if len(encodings) == 1:
            return [cls.of_encoding(loaded, encodings[0], targets[0], keeping=keeping)]
        pairs = zip(encodings, targets, strict=True)
        return cls._of_many(loaded, [partial(_checked, loaded, *pair) for pair in pairs], "row", keeping)

    @classmethod
    def _of_many(
        cls, loaded: Loaded, readers: Sequence[Callable[[], Given]], each: str, keeping: KeepPolicy
    ) -> list[Self]:
        # All texts are read before the first one runs: the last of them may be refused.
        texts: list[Given] = []
        for number, read in enumerate(readers):
            try:
                texts.append(read())
            except InputError as error:
                raise InputError(f"{each} {number + 1} of {len(readers)}: {error}") from error
        # By number, since batches are sorted by length.
        traces: dict[int, Self] = {}
        for batch in batches(loaded.network, texts):
            traces |= zip(
                batch, cls._of_pass(loaded, [texts[number] for number in batch], keeping), strict=True
            )
        return [traces[number] for number in range(len(texts))]

    @classmethod
    def _of_pass(cls, loaded: Loaded, given: Sequence[Given], keeping: KeepPolicy) -> list[Self]:
        """The traces of one pass, which is refused if memory would not hold them."""
        network = loaded.network
        check_mode(network)
        keeping.check(network)
        # Each text by itself: what is refused is named.
        for each in given:
            check_fits(loaded, keeping, *(len(one.tokens) for one in each if one is not None))
        of_each: list[dict[StackKind, Encoding]] = [
            {kind: one for kind, one in zip(network.prefixes, each, strict=False) if one is not None}
            for each in given
        ]
        listening = Listening(network, keeping)
        # Edits may name words, which are those of this text; with edits, texts run one by one.
        of_these = network.for_texts(of_each[0])
        with torch.no_grad():
            run(of_these, given, taps=listening.taps())
        traces = []
        for item, encodings in enumerate(of_each):
            # A text alone has the tensors as they are; of several, its own part is copied out.
            heard = listening
            if len(given) > 1:
                heard = listening.of_one(item, {kind: len(each.tokens) for kind, each in encodings.items()})
            stacks = {kind: heard.stack(kind, each) for kind, each in encodings.items()}
            encoder, decoder = stacks.get("encoder"), stacks.get("decoder")
            name, edits = loaded.source.name, of_these.changes
            traces.append(cls(model=name, encoder=encoder, decoder=decoder, loaded=loaded, edits=edits))
        return traces


def _targets(loaded: Loaded, rows: int, target_ids: Ids | None, mask: Any) -> Sequence[Encoding | None]:
    """What the decoder beside an encoder reads, for each row; None where there is no such decoder."""
    if len(loaded.network.prefixes) == 1:
        if target_ids is not None:
            raise InputError("target_ids must be None: this model has no decoder beside its encoder.")
        return [None] * rows
    # Without a target: its start token, as many times as there are rows.
    if target_ids is None and (start := _start_id(loaded)) is not None:
        target_ids = [[start]] * rows
    if target_ids is None:
        raise InputError(
            "target_ids must be given: the checkpoint does not say which token its decoder starts with."
        )
    targets = read_ids(loaded, target_ids, mask, name="target_ids", of_decoder=True)
    if len(targets) != rows:
        raise InputError(f"target_ids must have a row for each of token_ids, {rows}; got {len(targets)}.")
    return targets


def _start_id(loaded: Loaded) -> int | None:
    """The token that the decoder starts with; some configs name one beyond a table that was cut."""
    start, config = loaded.network.start_id, loaded.network.config
    # A decoder may have a table of its own.
    rows = getattr(config, "decoder_vocab_size", config.vocab_size)
    if start is not None and not 0 <= start < rows:
        raise InputError(
            f"target_ids must be given: decoder_start_token_id of {loaded.source.name} is {start}, which is "
            f"no row of its table of {rows}."
        )
    return start


def _read(loaded: Loaded, text: str, pair: str | None, target: str | None) -> Given:
    tokenizer = loaded.require_tokenizer()
    encoding = tokenizer.encode(text, pair)
    if len(loaded.network.prefixes) == 1:
        if target is not None:
            raise InputError("target must be None: this model has no decoder beside its encoder.")
        return _checked(loaded, encoding, None)
    return _checked(loaded, encoding, tokenizer.encode_target(target, _start_id(loaded)))


def _checked(loaded: Loaded, encoding: Encoding, target: Encoding | None) -> Given:
    network = loaded.network
    # The encoder's text and the decoder's, each with its own limit.
    for kind, text, names in zip(network.prefixes, (encoding, target), _ARGUMENTS, strict=False):
        assert text is not None
        limit, count = network.limit(kind), len(text.tokens)
        if limit is not None and count > limit:
            raise InputError(
                f"{names[not text.texts]} has {count} tokens with the special ones, but {loaded.source.name} "
                f"takes at most {limit}; shorten it, or give its parts one by one.{_that_fits(text, limit)}"
            )
    return encoding, target


def _that_fits(encoding: Encoding, limit: int) -> str:
    """How much of one text the model would take, in words."""
    own = [token for token in encoding.tokens if token.sequence is not None]
    # What is too much, special tokens not counted.
    beyond = own[limit - (len(encoding.tokens) - len(own)) :]
    fit = next((token.word for token in beyond if token.word is not None), None)
    return f" The first {fit} words fit." if len(encoding.texts) == 1 and fit and fit > 1 else ""


_ARGUMENTS = (("text", "token_ids"), ("target", "target_ids"))
"""What a stack reads is called so as a text, and so as ids."""
