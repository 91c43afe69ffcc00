"""The few random tokens that a lens looks at a model with."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from regard.core.errors import InputError
from regard.lenses._implementations import configs_of
from regard.lenses._survey import accepted

_LENGTH, _TARGET = 13, 7
"""Tokens of the first text, and of what a decoder reads; fewer where the model takes fewer."""


class _TooMany(Exception):
    """A row was asked for that a table does not have."""

    def __init__(self, message: str, excess: int) -> None:
        super().__init__(message)
        self.excess = excess


class _WithinTables(TorchFunctionMode):
    """Refuses to look up a row that a table does not have: on CUDA that would end the process's context."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if func is torch.nn.functional.embedding:
            named = dict(zip(("input", "weight"), args, strict=False)) | given
            _check_rows(named["input"], len(named["weight"]))
        elif func in _PICKING:
            named = dict(zip(("input", "dim", "index"), args, strict=False)) | given
            _check_rows(named["index"], named["input"].shape[named["dim"]])
        elif func is Tensor.__getitem__ and isinstance(args[1], Tensor) and args[1].dtype == torch.int64:
            _check_rows(args[1], len(args[0]))
        return func(*args, **given)


_PICKING = (torch.gather, Tensor.gather, torch.index_select, Tensor.index_select)


def _check_rows(ids: Tensor, rows: int) -> None:
    last = int(ids.max()) if ids.numel() else 0
    if last >= rows:
        raise _TooMany(f"row {last} of a table of {rows}", last - rows + 1)


def first_run(model: Any, vocab_size: int, texts: int) -> tuple[dict[str, Any], Any]:
    """Arguments that a model runs with, as long as its tables allow, and what it makes of them."""
    limits = (getattr(config, "max_position_embeddings", None) for config in configs_of(model))
    length = min([_LENGTH, *(limit for limit in limits if isinstance(limit, int) and limit > 1)])
    while True:
        arguments = _probe(model, vocab_size, texts, length)
        try:
            with torch.no_grad(), _WithinTables():
                return arguments, model(**arguments)
        except _TooMany as error:
            # RoBERTa's table begins after the padding's id: fewer rows are tokens' than its config says.
            length -= error.excess
            if length < 2:
                raise InputError(
                    f"hf_model must take at least 2 tokens, and ids of its vocabulary; "
                    f"{type(model).__name__} looked up {error}."
                ) from error


def _probe(model: Any, vocab_size: int, texts: int, length: int) -> dict[str, Any]:
    """Arguments for the model's forward: one text, or two of different lengths, the shorter one padded.

    The ids are none that the config gives a meaning, such as the place of an image or the end of a text.
    """
    device = next(model.parameters()).device
    ids = _ids(model, vocab_size, (texts, length), device)
    names = accepted(model)
    arguments: dict[str, Any] = {"input_ids": ids}
    if "attention_mask" in names:
        pad = _number(model, "pad_token_id")
        lengths = torch.tensor([[length], [max(1, length - 2)]][:texts], device=device)
        real = torch.arange(length, device=device)[None] < lengths
        arguments["attention_mask"] = real.long()
        if pad is not None and 0 <= pad < vocab_size:
            arguments["input_ids"] = ids.masked_fill(~real, pad)
    if "decoder_input_ids" in names and model.config.is_encoder_decoder:
        target = min(_TARGET, length - 1)
        arguments["decoder_input_ids"] = _ids(model, vocab_size, (texts, target), device)
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
    for config in configs_of(model):
        for name, value in vars(config).items():
            if "token" in name:
                values = value if isinstance(value, list | tuple) else [value]
                found |= {each for each in values if isinstance(each, int)}
    return found


def _number(model: Any, name: str) -> int | None:
    for config in (model.config, model.config.get_text_config()):
        value = getattr(config, name, None)
        if isinstance(value, int):
            return value
    return None
