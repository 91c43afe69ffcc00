"""Heads as they are written on the command line: "3.5", or "cross.1.0" where a kind must be said."""

import re
from typing import Any

from regard.core.errors import InputError

_HEAD = re.compile(r"(?:([^.,]+)\.)?(-?[0-9]{1,6})\.(-?[0-9]{1,6})")
_LAYER = re.compile(r"-?[0-9]{1,6}")


def parse_heads(option: str, words: str) -> list[Any]:
    """The heads of words such as LAYER.HEAD,KIND.LAYER.HEAD; the model says which of them there are.

    Example:
        >>> parse_heads("--values", "3.5, cross.1.0")
        [(3, 5), ('cross', 1, 0)]
    """
    heads: list[Any] = []
    for word in words.split(","):
        found = _HEAD.fullmatch(word.strip())
        if found is None:
            raise InputError(
                f"{option} must be layers and heads such as 3.5,4.1, with the kind of attention before them "
                f"where a model has several (cross.3.5); got {word!r}."
            )
        kind, layer, head = found.groups()
        heads.append((int(layer), int(head)) if kind is None else (kind, int(layer), int(head)))
    return heads


def parse_heads_or_layers(option: str, words: str) -> list[Any]:
    """The same, where a layer without a head stands for all of its heads.

    Example:
        >>> parse_heads_or_layers("--heads", "3.5,4")
        [(3, 5), 4]
    """
    found: list[Any] = []
    for word in words.split(","):
        found += [int(word)] if _LAYER.fullmatch(word.strip()) else parse_heads(option, word)
    return found
