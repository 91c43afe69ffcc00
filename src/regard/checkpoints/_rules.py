"""The rules of a weight map: how one tensor on disk is one or several of the network's. Data, both ways."""

import functools
import re
import string
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

_PLACEHOLDERS = {
    "layer": "0|[1-9][0-9]*",
    "part": "weight|bias",
    "rotary": r"(?:layers\.\d+\.(?:self_)?attn\.)?rotary_emb(?:_local)?\.(?:\w+_attention_)?(?:original_)?",
}


Holds: TypeAlias = Callable[[Tensor, Any], Any]
"""Whether a stored constant is what the network has in its place."""


@dataclass(frozen=True, slots=True)
class Rename:
    """A rule of a `KeyMap`: a name on disk and the name of the same tensor in the network, or of its pieces.

    They are templates in which `{layer}` stands for a whole number and `{part}` for `weight` or `bias`.

    Pieces lie one after the other along the output axis, which is axis 0 of the network's layout, each as
    large as the network has it; so the query, key and value of all heads, or the halves of a gated layer.

    Attributes:
        hf: the name on disk.
        ours: the name in the network's `state_dict`; of a tensor that is several of the network's, all of
            them in the order on disk.
        transposed: whether a matrix lies on disk as (in, out), as GPT-2's do; a bias has one axis, and stays;
            pieces of a matrix then lie along axis 1 there.

    >>> Rename("h.{layer}.attn.c_proj.{part}", "layers.{layer}.attention.output.{part}", transposed=True).hf
    'h.{layer}.attn.c_proj.{part}'
    """

    hf: str
    ours: str | tuple[str, ...]
    _: KW_ONLY
    transposed: bool = False

    @property
    def pieces(self) -> tuple[str, ...]:
        """The names of the network, in the order on disk."""
        return (self.ours,) if isinstance(self.ours, str) else self.ours


@dataclass(frozen=True, slots=True)
class Shared:
    """A rule of a `KeyMap`: a tensor on disk that stands for several of the network's, which have names too.

    T5's and BART's `shared.weight` is the table of the encoder, of the decoder and of the output, and older
    files store it again under each of their own names. What holds, whether the network ties them or not:

    * loading: a tensor of the network with none of its own names on disk takes the shared one. Where the
      network ties several of them (all that it has, or two at least), own and shared ones must be equal. A
      network that holds one of several apart takes its own name, and what nobody takes counts as left out.
    * writing: the first of `ours` goes out under the shared name when the network ties it to another of
      them or has no other; all else goes out under its own name.

    Attributes:
        hf: the name on disk, without placeholders.
        ours: the names in the network's `state_dict`, the first being the one that the shared name is for.
        is_written: whether the shared name is written at all, or a second one that is only read.

    >>> Shared("shared.weight", ("encoder.embeddings.tokens.weight", "head.output.weight")).ours[0]
    'encoder.embeddings.tokens.weight'
    """

    hf: str
    ours: tuple[str, ...]
    is_written: bool = True


ID_BUFFERS: Mapping[str, Holds] = {
    "embeddings.position_ids": lambda at, _: torch.equal(at.flatten(), torch.arange(at.numel()).to(at)),
    "embeddings.token_type_ids": lambda at, _: not at.any(),
}
"""0, 1, 2, .. and 0, 0, 0, ..: written by `transformers` before 4.31, and by who writes all buffers."""


def taken_apart(stored: Tensor, sizes: list[int], *, transposed: bool) -> list[Tensor]:
    """The network's tensors in one of the disk: views along the output axis, as long as `sizes`."""
    ours = stored.t() if transposed and stored.dim() == 2 else stored
    if len(sizes) == 1:
        return [ours]
    return list(torch.split(ours, sizes))


def shape_on_disk(shapes: list[tuple[int, ...]], *, transposed: bool) -> tuple[int, ...] | None:
    """The shape of the tensor that holds these, or None where they cannot lie in one."""
    first, *others = shapes
    if not others:
        return first[::-1] if transposed and len(first) == 2 else first
    if not first or any(shape[1:] != first[1:] or len(shape) != len(first) for shape in others):
        return None
    fused = (sum(shape[0] for shape in shapes), *first[1:])
    return fused[::-1] if transposed and len(fused) == 2 else fused


@functools.lru_cache(maxsize=4096)
def pattern(template: str) -> re.Pattern[str]:
    """The names that a template stands for."""
    pieces = string.Formatter().parse(template)
    return re.compile(
        "".join(
            re.escape(text) + (f"(?P<{name}>{_PLACEHOLDERS[name]})" if name is not None else "")
            for text, name, _, _ in pieces
        )
    )
