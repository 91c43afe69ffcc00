"""Token ids as a tokenizer hands them out: rows with padding, and which of them can be read alone."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from typing import Any, Final

import torch
from torch import Tensor

from regard.core.errors import InputError
from regard.models._loaded import Loaded
from regard.text import Encoding

Ids = Sequence[int] | Sequence[Sequence[int]] | Tensor | Mapping[str, Any]
"""Token ids, (N,) or a row for each text; or all that a tokenizer gave, by its names."""

OF_ROWS: Final = ("token_ids", "mask", "token_types", "target_ids", "target_mask")
"""What rows of token ids may come with."""

_NAMES: Final = {
    "input_ids": "token_ids",
    "attention_mask": "mask",
    "token_type_ids": "token_types",
    "decoder_input_ids": "target_ids",
    "decoder_attention_mask": "target_mask",
}
_SAY_NOTHING: Final = frozenset(
    {"special_tokens_mask", "offset_mapping", "length", "overflow_to_sample_mapping", "num_truncated_tokens"}
)
"""What a tokenizer may give besides, on which no number depends."""


def as_named(given: Mapping[str, Any], known: Iterable[str] = OF_ROWS, **names: str) -> dict[str, Any]:
    """What a tokenizer gave, under regard's names, of which `known` are taken here.

    `names` has more of transformers' names. Another name, or one thing under two names, is an InputError.

    Example:
        >>> as_named({"input_ids": [101, 102], "length": 2}, ["token_ids", "mask"])
        {'token_ids': [101, 102]}
    """
    # An argument of regard's own name passes as it is.
    taken = set(known)
    named: dict[str, Any] = {}
    for name, value in given.items():
        own = (_NAMES | names).get(name, name)
        # What changes no number is passed over.
        if value is None or name in _SAY_NOTHING:
            continue
        if own not in taken:
            raise InputError(f"{name} is not read here; what is: {', '.join(sorted(taken))}. Leave it out.")
        # The same under two names, such as mask and attention_mask.
        if own in named:
            raise InputError(f"{own} must be given once; it came as {name} too.")
        named[own] = value
    return named


def read_ids(
    loaded: Loaded,
    token_ids: Ids,
    mask: Any = None,
    token_types: Any = None,
    *,
    name: str = "token_ids",
    of_decoder: bool = False,
) -> list[Encoding]:
    """The tokens of each row, (N,), (texts, N) or of several lengths, without the padding that a mask of
    their shape names. A decoder beside an encoder may begin with the token of padding.

    Raises:
        InputError: no whole numbers, shapes that differ, a mask with a hole, token types that the model does
            not have, or ids that cannot be read alone: with padding and no mask, with two texts and no types.
    """
    # All that a tokenizer gave, at once.
    if isinstance(token_ids, Mapping):
        by_name = as_named(token_ids, OF_ROWS[:3])
        return read_ids(loaded, **{"token_ids": (), **by_name}, name=name, of_decoder=of_decoder)
    # Lists of ints, one for each text.
    rows = _rows(name, token_ids)
    masks = [None] * len(rows) if mask is None else _beside("mask", mask, name, rows)
    types = [None] * len(rows) if token_types is None else _beside("token_types", token_types, name, rows)
    encodings = []
    for row, real, of_row in zip(rows, masks, types, strict=True):
        if real is None:
            _check_padding(loaded, row, name, of_decoder)
        # Without a mask the whole row is text.
        start, stop = (0, len(row)) if real is None else _text_of(real)
        # Types matter where one row holds two texts.
        if of_row is None and not of_decoder:
            _check_types(loaded, row[start:stop], name)
        of_tokens = None if of_row is None else of_row[start:stop]
        _check_known(loaded, of_tokens or ())
        # Without padding: rows are batched again later.
        encodings.append(Encoding.from_ids(row[start:stop], loaded.tokenizer, type_ids=of_tokens))
    return encodings


def check_alone(loaded: Loaded, token_ids: Any, *, mask: Any, has_types: bool) -> None:
    """Raise InputError where rows of ids, (batch, N), cannot be read without a mask or token types."""
    if not isinstance(token_ids, Tensor) or token_ids.ndim != 2:
        return  # the pass itself refuses them
    fits = isinstance(mask, Tensor) and mask.shape == token_ids.shape
    for row, real in zip(token_ids.tolist(), mask.tolist() if fits else [None] * len(token_ids), strict=True):
        if mask is None:
            _check_padding(loaded, row, "token_ids", False)
        if not has_types:
            _check_types(loaded, row if real is None else list(compress(row, real)), "token_ids")


def _check_padding(loaded: Loaded, ids: Sequence[int], name: str, of_decoder: bool) -> None:
    """Raise InputError where ids begin or end in padding, which without a mask would be read as text."""
    special = None if loaded.tokenizer is None else loaded.tokenizer.special_ids
    # Nothing is known to be padding.
    if special is None or special.pad is None:
        return
    # One token that also ends or begins texts may be that; two in a row are no text.
    most = 1 if special.pad in (special.eos, special.bos, special.sep, special.cls) else 0
    # How many ids of padding stand at the end, and at the start.
    ends = [_leading(reversed(ids), special.pad)]
    ends += [] if of_decoder else [_leading(ids, special.pad)]
    # A row that is nothing but padding is refused elsewhere.
    if max(ends) > most and max(ends) < len(ids):
        piece = loaded.require_tokenizer().token_of(special.pad)
        raise InputError(
            f"{name} {'end' if ends[0] > most else 'begin'} in {max(ends)} times {piece!r}, the padding, "
            "which would be read as text: give the tokenizer's attention_mask too, as **tokenizer(text) "
            "does, or leave the padding out."
        )


def _check_types(loaded: Loaded, ids: Sequence[int], name: str) -> None:
    """Raise InputError where a model that tells two texts apart is given both without their types."""
    # One type only: nothing to tell apart.
    if loaded.tokenizer is None or loaded.network.config.num_token_types < 2:
        return
    special = loaded.tokenizer.special_ids
    if special.sep is None or special.sep not in ids:
        return
    # What follows the first separator.
    behind = ids[list(ids).index(special.sep) + 1 :]
    if any(each not in (special.sep, special.pad) for each in behind):
        piece = loaded.tokenizer.token_of(special.sep)
        raise InputError(
            f"{name} go on after {piece!r}, which ends a text, and this model is told which text a token "
            "is of: give the tokenizer's token_type_ids too, as **tokenizer(text, pair) does; all 0 for one."
        )


def _leading(ids: Iterable[int], pad: int) -> int:
    count = 0
    for each in ids:
        if each != pad:
            break
        count += 1
    return count


def _check_known(loaded: Loaded, types: Sequence[int]) -> None:
    rows = max(loaded.network.config.num_token_types, 1)
    if odd := [each for each in types if not 0 <= each < rows]:
        raise InputError(
            f"token_types must be from 0 to {rows - 1}, the types that this model has; got {odd[0]}."
        )


def _text_of(real: Sequence[int]) -> tuple[int, int]:
    """Where a row's text starts and stops, of what its mask says."""
    if odd := [each for each in real if each not in (0, 1)]:
        raise InputError(f"mask must be 1 for a token and 0 for padding; got {odd[0]}.")
    if 1 not in real:
        raise InputError("mask must be 1 for one token at least; a row is all padding.")
    start = list(real).index(1)
    # As many as tokens, if they stand together.
    stop = start + sum(real)
    if not all(real[start:stop]):
        raise InputError("mask must be 0 for padding alone, at the ends; got 0 between tokens.")
    return start, stop


def _beside(name: str, given: Any, beside: str, rows: Sequence[Sequence[int]]) -> list[Any]:
    """Rows of the same lengths as those of the ids."""
    found = _rows(name, given)
    lengths, wanted = [len(row) for row in found], [len(row) for row in rows]
    if lengths != wanted:
        raise InputError(f"{name} must have the shape of {beside}; got rows of {lengths} for {wanted}.")
    return found


def _rows(name: str, given: Any) -> list[list[int]]:
    """Whole numbers, a row for each text."""
    # Rows of several lengths: no tensor holds them.
    if isinstance(given, Sequence) and given and all(isinstance(row, Sequence) for row in given):
        if any(isinstance(row, str) for row in given):
            raise InputError(f"{name} must be whole numbers; got text. Texts are given first: trace(text).")
        return [row for each in given for row in _rows(name, each)]
    try:
        # numpy arrays and nested lists too.
        values = torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError(
            f"{name} must be whole numbers, (N,) or a row for each text; got {type(given).__name__}."
        ) from error
    whole = values.dtype in (torch.int64, torch.int32) or (name == "mask" and values.dtype == torch.bool)
    if values.ndim not in (1, 2) or not values.numel() or not whole:
        raise InputError(
            f"{name} must be whole numbers, (N,) or a row for each text, at least one; "
            f"got {values.dtype} of shape {tuple(values.shape)}."
        )
    listed: list[list[int]] = values.long().reshape(-1, values.shape[-1]).tolist()
    return listed
