"""Where the texts that a decoder writes begin and end, how long they are, and what they never hold."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self, TypedDict, Unpack

import torch
from torch import Tensor

from regard.core.arguments import number, whole
from regard.core.errors import CheckpointError, InputError
from regard.decoding._said import rules_said
from regard.models import Loaded, Network

Model = Network | Loaded
"""What writes: a network, or one with the files that it came from, which say how it writes."""


class RuleChanges(TypedDict, total=False):
    """The arguments of `Rules`, any of them."""

    start_ids: tuple[int, ...]
    end_ids: tuple[int, ...]
    min_length: int
    max_length: int | None
    forbidden_ids: tuple[int, ...]
    forbidden: tuple[tuple[int, ...], ...]
    first_id: int | None
    not_first_ids: tuple[int, ...]
    last_id: int | None
    min_read: int
    repetition_penalty: float
    no_repeat: int


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
        forbidden: sequences of several tokens that are never written: the last of one is not, where what
            was read ends with all before it.
        first_id: the token that is always the first new one, such as mBART's language; None for any.
        not_first_ids: tokens that are never the first new one, or the one after `first_id`.
        last_id: the token that stands at `max_length`; None for any.
        min_read: tokens that the decoder has read at least before an end: as `min_length`, with its start and
            the prompt counted.
        repetition_penalty: what the logit of a token that was read before is divided by where it is above 0,
            and multiplied by elsewhere: 1 for none, above it against repetition.
        no_repeat: no n-gram of this length is written that was read before; 0 for any.

    What was read is all that the decoder has before it: its start, the prompt, and what it wrote; not the
    source of a translation. Beams, drawing and greedy decoding all hold to the same rules, on the logits.

    Raises:
        InputError: an id below 0, or lengths that cannot be.

    Example:
        >>> from regard.models.families.gpt2 import Gpt2Config, build
        >>> network = build(Gpt2Config(vocab_size=13, d_model=6, num_layers=1, num_heads=2, d_ff=11))
        >>> Rules.of(network, end_ids=(2,), max_length=20)
        Rules(start_ids=(), end_ids=(2,), min_length=0, max_length=20, forbidden_ids=(), forbidden=(), ...)

    Source: Keskar et al. 2019, arXiv 1909.05858, section 4.1 (the penalty; for logits below 0 as in
    `transformers`); Paulus et al. 2017, arXiv 1705.04304, section 2.5 (no n-gram twice).
    """

    start_ids: tuple[int, ...] = ()
    end_ids: tuple[int, ...] = ()
    min_length: int = 0
    max_length: int | None = None
    forbidden_ids: tuple[int, ...] = ()
    forbidden: tuple[tuple[int, ...], ...] = ()
    first_id: int | None = None
    not_first_ids: tuple[int, ...] = ()
    last_id: int | None = None
    min_read: int = 0
    repetition_penalty: float = 1.0
    no_repeat: int = 0

    def __post_init__(self) -> None:
        for name in ("start_ids", "end_ids", "forbidden_ids", "not_first_ids"):
            object.__setattr__(self, name, _ids(name, getattr(self, name)))
        rows: Any = self.forbidden if isinstance(self.forbidden, Iterable) else [self.forbidden]
        object.__setattr__(self, "forbidden", tuple(_ids("forbidden", row) for row in rows))
        if not all(self.forbidden):
            raise InputError("forbidden must hold sequences of at least one token; got an empty one.")
        if number("repetition_penalty", self.repetition_penalty) <= 0:
            raise InputError(f"repetition_penalty must be above 0; got {self.repetition_penalty!r}.")
        for name in ("no_repeat", "min_length", "min_read"):
            whole(name, getattr(self, name), least=0)
        for name in ("first_id", "last_id"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), least=0)
        if self.max_length is not None:
            whole("max_length", self.max_length, least=max(1, self.min_length))

    @classmethod
    def of(cls, model: Model, **changes: Unpack[RuleChanges]) -> Self:
        """What the checkpoint says, with some of it otherwise.

        That is `generation_config.json`, or `config.json` where there is no such file, as in `transformers`.
        Its lengths at most are not taken.

        Args:
            model: the model; of a network alone its config is asked.
            changes: any of the arguments of `Rules`.

        Raises:
            CheckpointError: a file that cannot be read, or a field that cannot be or is not offered.
            InputError: no such argument.
        """
        unknown = sorted(changes.keys() - {each.name for each in fields(cls)})
        if unknown:
            known = ", ".join(each.name for each in fields(cls))
            raise InputError(
                f"{unknown[0]} is not a rule; the rules are {known}. How tokens are chosen is another "
                "argument: choice=Sampling(...)."
            )
        network = model.network if isinstance(model, Loaded) else model
        found: dict[str, Any] = {}
        end = getattr(network.config, "eos_token_id", None)
        if isinstance(model, Loaded):
            file, found = rules_said(model, changes)
            end = end if file.name == "config.json" else None
            try:
                cls(**found)
            except InputError as error:
                raise CheckpointError(f"{file}: {error}") from error
            if isinstance(most := changes.get("max_length"), int):
                # As in transformers, the file's minimum gives way.
                found["min_length"] = min(found.get("min_length", 0), most)
        if "end_ids" not in found and isinstance(end, int):
            found["end_ids"] = (end,)
        if len(network.prefixes) == 2 and not found.get("start_ids") and network.start_id is not None:
            found["start_ids"] = (network.start_id,)
        return cls(**{**found, **changes})

    def within(self, rows: int) -> Self:
        """These rules for a model of so many tokens, which never writes what it does not have.

        Raises:
            InputError: a token that must come is none of them.
        """
        for name in ("first_id", "last_id"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), least=0, most=rows - 1)
        names = ("end_ids", "forbidden_ids", "not_first_ids")
        kept: Any = {name: tuple(id for id in getattr(self, name) if id < rows) for name in names}
        return replace(self, forbidden=tuple(each for each in self.forbidden if max(each) < rows), **kept)

    def apply(self, logits: Tensor, read: Tensor, length: int, limits: Sequence[int]) -> Tensor:
        """The log-probabilities (rows, vocab_size) of the next tokens: -inf where a rule forbids one.

        Args:
            logits: (rows, vocab_size).
            read: int64 (rows, N), what the decoder has before it, -1 in front where that is shorter.
            length: how many new tokens there are.
            limits: for each row how many there may be.
        """
        if self.repetition_penalty != 1:
            logits = _penalised(logits, read, self.repetition_penalty)
        scores = torch.log_softmax(logits, dim=1)
        if self.forbidden_ids:
            scores[:, list(self.forbidden_ids)] = -torch.inf
        for *before, last in self.forbidden:
            if len(before) <= read.shape[1]:
                ends = read[:, read.shape[1] - len(before) :] == torch.tensor(before, device=read.device)
                scores[ends.all(dim=1), last] = -torch.inf
        if 0 < self.no_repeat <= read.shape[1]:
            scores.masked_fill_(_repeating(read, self.no_repeat, scores.shape[1]), -torch.inf)
        if self.not_first_ids and length == (self.first_id is not None):
            scores[:, list(self.not_first_ids)] = -torch.inf
        if self.end_ids and length < max(self.min_length, self.min_read):
            short = ((read >= 0).sum(dim=1) < self.min_read) | (length < self.min_length)
            ends = torch.tensor(self.end_ids, device=scores.device)
            scores[short.nonzero(), ends] = -torch.inf
        if self.first_id is not None and length == 0:
            _force(scores, slice(None), self.first_id)
        if self.last_id is not None and any(length == limit - 1 for limit in limits):
            rows = [row for row, limit in enumerate(limits) if length == limit - 1]
            _force(scores, rows, self.last_id)
        return scores


def _ids(name: str, ids: Any) -> tuple[int, ...]:
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        raise InputError(f"{name} must hold ids in a tuple; got {ids!r}.")
    return tuple(whole(name, each, least=0) for each in ids)


def _penalised(logits: Tensor, read: Tensor, penalty: float) -> Tensor:
    was_read = _at(read, logits.shape[1])
    return torch.where(was_read, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def _repeating(read: Tensor, n: int, vocab_size: int) -> Tensor:
    """Which tokens would end an n-gram that was read before, bool (rows, vocab_size)."""
    grams = read.unfold(1, n, 1)
    begun = (grams[:, :, :-1] == read[:, None, read.shape[1] - n + 1 :]).all(dim=2)
    return _at(grams[:, :, -1].where(begun, -1), vocab_size)


def _at(ids: Tensor, vocab_size: int) -> Tensor:
    """Where these ids are, bool (rows, vocab_size); -1 is nowhere."""
    spread = torch.zeros(len(ids), vocab_size + 1, dtype=torch.bool, device=ids.device)
    return spread.scatter_(1, ids % (vocab_size + 1), True)[:, :vocab_size]


def _force(scores: Tensor, rows: slice | list[int], token: int) -> None:
    # Nothing was chosen, so that the score of the text does not change.
    scores[rows] = -torch.inf
    scores[rows, token] = 0.0
