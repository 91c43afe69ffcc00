"""Attention that regard did not compute, as a page: anyone's arrays."""

import re
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from regard.core.errors import InputError
from regard.views._layer_record import LayerRecord
from regard.views._page import Page, render_page
from regard.views._records import AttentionRecord, PageToken, RecordKind, Side

# What the weights may take in a page, in bytes of 16-bit numbers: a browser opens such a file at once.
_MOST_BYTES = 24_000_000

# What tokenizers add around a text.
_SPECIAL = re.compile(
    r"\[(CLS|SEP|PAD|BOS|EOS)\]|</?s>|<(pad|bos|eos|cls|sep|start_of_turn|end_of_turn)>|<\|[^|]*\|>"
)
_BEGINS = ("Ġ", "▁")


def view(
    weights: Any,
    tokens: Sequence[str],
    *,
    key_tokens: Sequence[str] | None = None,
    second: int | None = None,
    layers: Sequence[int] | None = None,
    name: str = "attention",
) -> Page:
    """Make the interactive page of attention from any other library.

    Args:
        weights: (layers, heads, queries, keys), as an array or tensor, or a sequence with one array of
            (heads, queries, keys) a layer, such as `output.attentions` of transformers; a batch axis of one
            is left out. (queries, keys) is one head. Each row holds numbers from 0 that sum to 1 or less.
        tokens: the text of each query's token, as the vocabulary writes it or in any other way.
        key_tokens: for cross-attention, the text of each key's token; by default the keys are the queries.
        second: for a pair of texts, the place of the second one's first token.
        layers: draw only these layers, counted from 0.
        name: the name of the model on the page.

    Returns:
        The page: `view(...).write("page.html")`. It states by how much its 16-bit numbers differ from yours.

    Raises:
        InputError: the weights are not attention over these tokens, or are more than a page holds.

    Example:
        >>> import numpy as np
        >>> from regard import view
        >>> weights = np.full((2, 3, 4, 4), 0.25)
        >>> page = view(weights, ["[CLS]", "river", "bank", "[SEP]"], name="mine")
        >>> page.largest_difference < 1e-4
        True
    """
    # One array a layer, whatever came in.
    arrays = _layers(weights)
    numbers = _chosen(layers, len(arrays))
    sizes = [arrays[number].shape for number in numbers]
    # Before anything is copied.
    _check_room(sizes, len(arrays))
    if key_tokens is not None and second is not None:
        raise InputError("second must be None beside key_tokens, which are another text already")
    side = _side("tokens", tokens, second)
    for number, (_, queries, keys) in zip(numbers, sizes, strict=True):
        wanted = len(tokens), len(tokens if key_tokens is None else key_tokens)
        if (queries, keys) != wanted:
            raise InputError(
                f"weights must have {wanted[0]} queries and {wanted[1]} keys in layer {number}, as there are "
                f"tokens; got {queries} and {keys}; of cross-attention give key_tokens"
            )
    kind: RecordKind = "encoder" if key_tokens is None else "cross"
    records = tuple(LayerRecord.of_weights(number, arrays[number].astype(np.float32)) for number in numbers)
    if key_tokens is None:
        return render_page(AttentionRecord(model=name, encoder=side, layers={kind: records}), max_mb=None)
    keys_side = _side("key_tokens", key_tokens, None)
    record = AttentionRecord(model=name, encoder=keys_side, decoder=side, layers={kind: records})
    return render_page(record, max_mb=None)


def _layers(weights: Any) -> list[npt.NDArray[Any]]:
    """One array (heads, queries, keys) a layer."""
    inner = weights
    # What stands at the very inside: numbers, or arrays.
    while isinstance(inner, list | tuple) and inner:
        inner = inner[0]
    if isinstance(inner, Real):  # plain numbers in plain lists
        weights = _array("weights", weights)
    # A list with an array for each layer, as transformers gives.
    if isinstance(weights, list | tuple):
        if not weights:
            raise InputError("weights must be at least one layer; got none")
        if any(each is None for each in weights):
            raise InputError(
                "weights must be an array a layer; got None; a model of transformers gives its weights when "
                'it is loaded with attn_implementation="eager"'
            )
        if isinstance(weights[0], list | tuple):
            raise InputError(
                "weights must be an array a layer; got a sequence in a sequence; of what `generate` returns "
                "give one step's"
            )
        arrays = [_array(f"weights[{place}]", each) for place, each in enumerate(weights)]
        axes = "(heads, queries, keys)"
        wanted = 3
    else:
        whole = _array("weights", weights)
        axes, wanted = "(layers, heads, queries, keys), or (queries, keys) of one head", 4
        arrays = [whole[None, None] if whole.ndim == 2 else whole]
    for place, array in enumerate(arrays):
        # One axis too many is a batch, which must be of one.
        if array.ndim == wanted + 1:
            # (batch, layers, ...) or (layers, batch, ...)
            at = 0 if wanted == 3 or array.shape[0] == 1 else 1
            if array.shape[at] != 1:
                raise InputError(
                    f"weights must be a batch of one; got {array.shape[at]} in shape {array.shape}; "
                    "give one text's, such as attention[:1]"
                )
            array = array.squeeze(at)
        if array.ndim != wanted or 0 in array.shape:
            raise InputError(f"weights must be of shape {axes}, all at least 1; got {array.shape}")
        arrays[place] = array
    return arrays if wanted == 3 else list(arrays[0])


def _array(name: str, value: Any) -> npt.NDArray[Any]:
    """Numbers of any library as numpy's; torch is not imported for it."""
    # A tensor of torch, perhaps on a GPU.
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.double() if value.itemsize == 8 else value.float()  # numpy knows no bfloat16
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InputError(f"{name} must be rows of equal length; got others; give an array") from error
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name} must be numbers; got {array.dtype}; give an array or a tensor")
    return array


def _chosen(layers: Sequence[int] | None, count: int) -> list[int]:
    if layers is None:
        return list(range(count))
    # Negative ones count from the end.
    numbers = sorted({each + count if -count <= each < 0 else each for each in layers})
    if not numbers or not all(0 <= each < count for each in numbers):
        raise InputError(f"layers must be among 0 to {count - 1}; got {list(layers)}")
    return numbers


def _check_room(sizes: Sequence[tuple[int, ...]], count: int) -> None:
    needed = 2 * sum(heads * queries * keys for heads, queries, keys in sizes)
    if needed <= _MOST_BYTES:
        return
    heads, queries, keys = sizes[0]
    raise InputError(
        f"weights: {len(sizes)} layers x {heads} heads x {queries} queries x {keys} keys take "
        f"{needed / 1e6:.1f} MB of a page, which holds {_MOST_BYTES / 1e6:.0f} MB; give fewer of the {count} "
        "layers (layers=[...]) or a shorter text. A trace of the model, regard.lens(model, tokenizer)"
        ".trace(text), keeps q and k in place of the weights, and its page takes a fraction of that."
    )


def _side(name: str, tokens: Sequence[str], second: int | None) -> Side:
    if isinstance(tokens, str) or not all(isinstance(each, str) for each in tokens):
        raise InputError(f"{name} must be a list with the text of each token; got {tokens!r:.80}")
    if second is not None and not 0 < second < len(tokens):
        raise InputError(
            f"second must be the place of a token, from 1 to {len(tokens) - 1}; got {second}; None is one "
            "text"
        )
    # Tokenizers that mark a word's first piece, unlike WordPiece.
    begin = any(each.startswith(_BEGINS) for each in tokens)
    read: list[PageToken] = []
    words: list[str] = []
    for place, text in enumerate(tokens):
        special = _SPECIAL.fullmatch(text) is not None
        sequence = 0 if second is None or place < second else 1
        # A piece that goes on: of WordPiece it says so, of the others a word's first piece does.
        joined = bool(read) and read[-1].word is not None and read[-1].sequence == sequence
        piece = not begin and text.startswith("##") and len(text) > 2
        marked = text.startswith(_BEGINS)
        goes_on = not special and joined and (piece or (begin and not text.startswith(_BEGINS)))
        surface = text[1:] or " " if marked else text
        # A special token belongs to no word.
        if special:
            read.append(PageToken(text=text, special=True, sequence=sequence))
            continue
        # "##ing" goes on with "ing".
        bare = text[2:] if piece and goes_on else surface
        if goes_on:
            words[-1] += bare
        else:
            words.append(bare)
        read.append(PageToken(text=text, sequence=sequence, word=len(words) - 1, surface=surface))
    texts = [
        " ".join(words[word] for word in _words_of(read, sequence)) or " ".join(tokens) for sequence in (0, 1)
    ]
    pair = None if second is None else texts[1]
    return Side(text=texts[0], pair=pair, tokens=tuple(read), words=tuple(words))


def _words_of(tokens: Sequence[PageToken], sequence: int) -> list[int]:
    return list(
        dict.fromkeys(each.word for each in tokens if each.word is not None and each.sequence == sequence)
    )
