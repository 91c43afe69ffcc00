"""The few random tokens that a lens looks at a model with."""

from typing import Any

import torch
from torch import Tensor

from regard._lens._survey import accepted

_LENGTH, _SHORTER, _TARGET = 13, 11, 7
"""Tokens of the first text, of the second, which is padded, and of what a decoder reads: all different."""


def probe(model: Any, vocab_size: int, texts: int) -> dict[str, Any]:
    """Arguments for the model's forward: one text, or two of different lengths, the shorter one padded.

    The ids are none that the config gives a meaning, such as the place of an image or the end of a text.
    """
    device = next(model.parameters()).device
    ids = _ids(model, vocab_size, (texts, _LENGTH), device)
    names = accepted(model)
    arguments: dict[str, Any] = {"input_ids": ids}
    if "attention_mask" in names:
        pad = _number(model, "pad_token_id")
        real = torch.arange(_LENGTH, device=device)[None] < torch.tensor(
            [[_LENGTH], [_SHORTER]][:texts], device=device
        )
        arguments["attention_mask"] = real.long()
        if pad is not None and 0 <= pad < vocab_size:
            arguments["input_ids"] = ids.masked_fill(~real, pad)
    if "decoder_input_ids" in names and model.config.is_encoder_decoder:
        arguments["decoder_input_ids"] = _ids(model, vocab_size, (texts, _TARGET), device)
    return arguments | quiet(names)


def quiet(names: frozenset[str]) -> dict[str, Any]:
    """Arguments that keep a model from caching, or from handing back what nobody asked for."""
    wanted = {"use_cache": False, "output_attentions": False, "return_dict": True}
    return {name: value for name, value in wanted.items() if name in names}


def _ids(model: Any, vocab_size: int, shape: tuple[int, int], device: torch.device) -> Tensor:
    taken = _special(model)
    free = [each for each in range(min(vocab_size, 2048)) if each not in taken] or [0]
    # Of its own: looking at a model must not change anybody's random numbers.
    generator = torch.Generator().manual_seed(0)
    picked = torch.randint(len(free), shape, generator=generator)
    return torch.tensor(free, dtype=torch.int64)[picked].to(device)


def _special(model: Any) -> set[int]:
    """Every id that a config, or one inside it, gives a name."""
    found: set[int] = set()
    pending, seen = [model.config], set()
    while pending:
        config = pending.pop()
        if id(config) in seen:
            continue
        seen.add(id(config))
        for name, value in vars(config).items():
            if "token" in name:
                values = value if isinstance(value, list | tuple) else [value]
                found |= {each for each in values if isinstance(each, int)}
            if hasattr(value, "to_dict") and hasattr(value, "__dict__"):
                pending.append(value)
    return found


def _number(model: Any, name: str) -> int | None:
    for config in (model.config, model.config.get_text_config()):
        value = getattr(config, name, None)
        if isinstance(value, int):
            return value
    return None
