"""What the views are given: tokens, and the queries and keys of one self-attention stack."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from regard.core.errors import InputError


@dataclass(frozen=True, kw_only=True, slots=True)
class PageToken:
    """One token, as it is to be read.

    Attributes:
        text: The token's text. Any string: it is shown as text and never as markup.
        special: Whether the model added it (`[CLS]`, `[SEP]`), so that a reader may hide it.
        sequence: 0 in the first text, 1 in the second, None for a special token that is in neither.
        word: Index of the word it is a piece of; neighbours with the same index are drawn joined.
    """

    text: str
    special: bool = False
    sequence: int | None = None
    word: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise InputError(f"text: wanted a str, got {type(self.text).__name__}; decode the token first")
        if self.sequence not in (None, 0, 1):
            raise InputError(
                f"sequence: wanted 0 (first text), 1 (second) or None, got {self.sequence!r}; "
                "a view shows one text or a pair"
            )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AttentionRecord:
    """The queries and keys of one self-attention stack over one text or a pair.

    The weights of head h in layer l are `softmax(scale * q[l, h] @ k[l, h // (heads // kv_heads)].T)` over
    the keys. Layers and heads count from 0. There is no bias and no mask: whoever makes the record refuses
    a model that has one.

    Attributes:
        text: The text, as it was typed.
        pair: The second text, or None.
        model: The model's name.
        tokens: The tokens in order, specials included.
        q: float32 (layers, heads, tokens, head_dim), as they enter the kernel.
        k: float32 (layers, kv_heads, tokens, head_dim); kv_heads divides heads.
        scale: What the scores are multiplied by, `head_dim ** -0.5` for most models.

    Raises:
        InputError: A shape, a type or a number that cannot be drawn; the message names the argument.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> q, k = rng.standard_normal((2, 1, 2, 3, 5), dtype=np.float32)
        >>> tokens = tuple(PageToken(text=text, sequence=0) for text in ("a", "river", "bank"))
        >>> record = AttentionRecord(
        ...     text="a river bank", pair=None, model="tiny", tokens=tokens, q=q, k=k, scale=5**-0.5
        ... )
        >>> record.q.shape
        (1, 2, 3, 5)
    """

    text: str
    pair: str | None
    model: str
    tokens: tuple[PageToken, ...]
    q: npt.NDArray[np.float32]
    k: npt.NDArray[np.float32]
    scale: float

    def __post_init__(self) -> None:
        if not self.tokens:
            raise InputError("tokens: wanted at least one, got none; give a text that has tokens")
        for name, array in (("q", self.q), ("k", self.k)):
            _check_array(name, array)
        layers, heads, _, head_dim = self.q.shape
        kv_heads = self.k.shape[1]
        if heads % kv_heads:
            raise InputError(
                f"k: wanted a number of heads that divides q's {heads}, got {kv_heads}; "
                "q and k must come from the same layer"
            )
        for name, shape, wanted in (
            ("q", self.q.shape, (layers, heads, len(self.tokens), head_dim)),
            ("k", self.k.shape, (layers, kv_heads, len(self.tokens), head_dim)),
        ):
            if shape != wanted:
                raise InputError(
                    f"{name}: wanted shape {wanted} (layers, heads, tokens, head_dim), got {shape}; "
                    "q, k and tokens must come from the same run on one text"
                )
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise InputError(
                f"scale: wanted a finite number above 0, got {self.scale!r}; head_dim ** -0.5 is usual"
            )
        if self.pair is None and any(token.sequence == 1 for token in self.tokens):
            raise InputError(
                "pair: wanted the second text, got None though a token has sequence=1; "
                "give pair=, or mark every token sequence=0"
            )


def _check_array(name: str, array: npt.NDArray[np.float32]) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != np.float32:
        got = getattr(array, "dtype", type(array).__name__)
        raise InputError(f"{name}: wanted a float32 numpy array, got {got}; convert with astype(np.float32)")
    if array.ndim != 4 or 0 in array.shape:
        raise InputError(
            f"{name}: wanted shape (layers, heads, tokens, head_dim), all at least 1, got {array.shape}; "
            "one text at a time, without a batch axis"
        )
    if not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise InputError(
            f"{name}: wanted finite numbers, got {array[where]} at {where}; "
            "the model overflowed: run it in float32"
        )
