"""Where the texts that a decoder writes begin and end, how long they are, and what they never hold."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from regard.core.arguments import whole
from regard.core.errors import CheckpointError, InputError
from regard.core.json import read_object
from regard.models import Loaded, Network

Model = Network | Loaded
"""What writes: a network, or one with the files that it came from, which say how it writes."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Where texts begin and end, how long they are, and what they never hold.

    Args:
        start_ids: what the decoder reads before the first token of its own: of an encoder-decoder its start
            token; of a decoder what goes before every prompt, usually nothing.
        end_ids: the tokens that end a text; () for none, so that every text becomes `max_length` long.
        min_length: tokens that a text has at least before its end.
        max_length: new tokens at most, the end included; None for 2 n + 50 of a source of n tokens, and 256
            after a prompt, as far as the table of positions reaches.
        forbidden_ids: tokens that are never written.
        first_id: the token that is always the first new one, such as mBART's language; None for any.
        last_id: the token that stands at `max_length`; None for any.

    Raises:
        InputError: an id below 0, or lengths that cannot be.

    Example:
        >>> from regard.models.gpt2 import Gpt2Config, build
        >>> network = build(Gpt2Config(vocab_size=13, d_model=6, num_layers=1, num_heads=2, d_ff=11))
        >>> Rules.of(network, end_ids=(2,), max_length=20)
        Rules(start_ids=(), end_ids=(2,), min_length=0, max_length=20, forbidden_ids=(), first_id=None, ...)
    """

    start_ids: tuple[int, ...] = ()
    end_ids: tuple[int, ...] = ()
    min_length: int = 0
    max_length: int | None = None
    forbidden_ids: tuple[int, ...] = ()
    first_id: int | None = None
    last_id: int | None = None

    def __post_init__(self) -> None:
        for name in ("start_ids", "end_ids", "forbidden_ids"):
            object.__setattr__(self, name, tuple(whole(name, each, least=0) for each in getattr(self, name)))
        for name in ("first_id", "last_id"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), least=0)
        whole("min_length", self.min_length, least=0)
        if self.max_length is not None:
            whole("max_length", self.max_length, least=max(1, self.min_length))

    @classmethod
    def of(cls, model: Model, **changes: Any) -> Self:
        """What the checkpoint says, `generation_config.json` before `config.json`, with some of it otherwise.

        Args:
            model: the model; of a network alone its config is asked.
            changes: any of the arguments of `Rules`.

        Raises:
            CheckpointError: a file that cannot be read, or holds something else.
            InputError: no such argument.
        """
        unknown = sorted(changes.keys() - {each.name for each in fields(cls)})
        if unknown:
            raise InputError(f"{unknown[0]} is no rule; those are {', '.join(f.name for f in fields(cls))}.")
        network = model.network if isinstance(model, Loaded) else model
        found: dict[str, Any] = {}
        if isinstance(model, Loaded) and network.foreign is None:
            found = _from_files(Path(model.source.folder))
        if "end_ids" not in found and isinstance(end := getattr(network.config, "eos_token_id", None), int):
            found["end_ids"] = (end,)
        if len(network.prefixes) == 2 and "start_ids" not in found and network.start_id is not None:
            found["start_ids"] = (network.start_id,)
        if len(network.prefixes) == 1:
            found.pop("start_ids", None)
        return cls(**{**found, **changes})

    def apply(self, scores: Tensor, length: int, limits: Sequence[int]) -> Tensor:
        """The log-probabilities (rows, vocab_size) of the next tokens: -inf where a rule forbids one.

        Args:
            scores: they are written over.
            length: how many new tokens there are.
            limits: for each row how many there may be.
        """
        if self.forbidden_ids:
            scores[:, list(self.forbidden_ids)] = -torch.inf
        if self.end_ids and length < self.min_length:
            scores[:, list(self.end_ids)] = -torch.inf
        if self.first_id is not None and length == 0:
            _force(scores, slice(None), self.first_id)
        if self.last_id is not None and any(length == limit - 1 for limit in limits):
            rows = [row for row, limit in enumerate(limits) if length == limit - 1]
            _force(scores, rows, self.last_id)
        return scores


def _force(scores: Tensor, rows: slice | list[int], token: int) -> None:
    # Nothing was chosen, so that the score of the text does not change.
    scores[rows] = -torch.inf
    scores[rows, token] = 0.0


_FIELDS = {
    "decoder_start_token_id": "start_ids",
    "eos_token_id": "end_ids",
    "suppress_tokens": "forbidden_ids",
    "forced_bos_token_id": "first_id",
    "forced_eos_token_id": "last_id",
}


def _from_files(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for file in (folder / "config.json", folder / "generation_config.json"):
        if file.exists():
            values = read_object(file)
            found |= _read(file, values)
    return found


def _read(file: Path, values: dict[str, object]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for theirs, ours in _FIELDS.items():
        if (value := values.get(theirs)) is None:
            continue
        ids = value if isinstance(value, list) else [value]
        if not all(isinstance(each, int) and each >= 0 for each in ids):
            raise CheckpointError(f"{file}: the field {theirs!r} must be an id or a list of ids; got {value}")
        found[ours] = tuple(ids) if ours.endswith("s") else ids[0] if ids else None
    bad = values.get("bad_words_ids")
    if isinstance(bad, list) and all(isinstance(each, list) for each in bad):
        # Sequences of several tokens are left to whoever wants them.
        alone = tuple(each[0] for each in bad if len(each) == 1 and isinstance(each[0], int))
        found["forbidden_ids"] = found.get("forbidden_ids", ()) + alone
    return found
