"""Where the texts that a decoder writes begin and end, how long they are, what they never hold.

And what a checkpoint's own files say of it, field by field: honoured, or refused by name.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self, TypedDict, Unpack

import torch
from torch import Tensor

from regard.checkpoints import open_gguf
from regard.core.arguments import Count, Natural, Positive, check_fields, whole
from regard.core.errors import CheckpointError, InputError
from regard.core.files import read_object
from regard.models import Loaded, Network

RULES = {
    "bad_words_ids": "forbidden",
    "begin_suppress_tokens": "not_first_ids",
    "decoder_start_token_id": "start_ids",
    "eos_token_id": "end_ids",
    "forced_bos_token_id": "first_id",
    "forced_eos_token_id": "last_id",
    "min_length": "min_read",
    "min_new_tokens": "min_length",
    "no_repeat_ngram_size": "no_repeat",
    "repetition_penalty": "repetition_penalty",
    "suppress_tokens": "forbidden_ids",
}
"""Fields that are rules. They always hold: see `Rules`."""

WAYS = frozenset(
    {
        *("do_sample", "temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff"),
        *("num_beams", "length_penalty", "early_stopping"),
        # refused, where they would change what is recommended
        *("diversity_penalty", "dola_layers", "num_beam_groups", "penalty_alpha", "renormalize_logits"),
        "top_h",
    }
)
"""Fields of how tokens are chosen. They hold where that is asked for: see `recommended`."""

REFUSED = {
    **dict.fromkeys(("constraints", "exponential_decay_length_penalty", "force_words_ids")),
    **dict.fromkeys(("forced_decoder_ids", "sequence_bias", "stop_strings", "watermarking_config")),
    "encoder_no_repeat_ngram_size": 0,
    "token_healing": False,
    "encoder_repetition_penalty": 1,
    "guidance_scale": 1,
}
"""Fields that would change every text, with the value at which they do not."""

IGNORED_FIELDS = frozenset(
    {
        # lengths at most: how much is written is for the call to say
        *("max_length", "max_new_tokens", "max_time"),
        # what a call returns, and what a file says of itself
        *("num_return_sequences", "output_attentions", "output_hidden_states", "output_logits"),
        *("output_scores", "return_dict_in_generate", "return_legacy_cache", "pad_token_id", "bos_token_id"),
        *("_commit_hash", "_from_model_config", "transformers_version"),
        # how the same text is computed: what is kept, compiled, or guessed ahead
        *("cache_config", "cache_implementation", "compile_config", "continuous_batching_config"),
        *("disable_compile", "low_memory", "max_cache_len", "prefill_chunk_size", "remove_invalid_values"),
        *("use_cache", "use_mtp", "assistant_confidence_threshold", "assistant_early_exit"),
        *("assistant_ensemble_weight", "assistant_lookbehind", "is_assistant", "max_matching_ngram_size"),
        *("num_assistant_tokens", "num_assistant_tokens_schedule", "prompt_lookup_num_tokens"),
        *("speculation_type", "target_lookbehind"),
    }
)
"""Fields that change no text, except its length or the token that a decoder starts with."""


def said(model: Loaded) -> tuple[Path, dict[str, Any]]:
    """The file that says how a checkpoint writes, and its fields that are not null.

    As in `transformers`, config.json is asked only where there is no generation_config.json. A model under
    the lens holds what such a file says.
    """
    # generation_config.json says it; older checkpoints have it in config.json.
    folder = Path(model.source.folder)
    file = folder / "generation_config.json"
    file = file if file.exists() else folder / "config.json"
    held = getattr(getattr(model.network, "hf_model", None), "generation_config", None)
    # A GGUF file has its own fields.
    if model.source.is_file:
        return folder, _sampling_said(open_gguf(folder).fields)
    # A model of transformers holds it in memory, as its user may have changed it.
    if held is not None:
        file, values = Path("generation_config"), held.to_dict()
    else:
        # A foreign model's files mean what its library says.
        values = read_object(file) if model.network.foreign is None and file.exists() else {}
    return file, {name: value for name, value in values.items() if value is not None}


_SAMPLING = {
    "general.sampling.temp": "temperature",
    "general.sampling.top_k": "top_k",
    "general.sampling.top_p": "top_p",
    "general.sampling.min_p": "min_p",
}
"""What a GGUF file recommends, and the fields that say the same in a folder."""


def _sampling_said(fields: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: fields[theirs] for theirs, name in _SAMPLING.items() if theirs in fields}
    # A file that names a temperature means it to be used.
    return found | {"do_sample": True} if found else {}


def rules_said(model: Loaded, given: Collection[str]) -> tuple[Path, dict[str, Any]]:
    """The same file, and the arguments of `Rules` that it gives beside those that the user gave."""
    file, values = said(model)
    two, own = len(model.network.prefixes) == 2, file.name != "config.json"  # which has fields of other kinds
    # In config.json only what is known to change texts is refused.
    harmless = RULES.keys() | WAYS | IGNORED_FIELDS if own else values.keys() - REFUSED.keys()
    # Sorted, so that the same file gives the same error.
    for name in sorted(values.keys() - harmless):
        value, off = values[name], REFUSED.get(name)
        # At its neutral value a field changes nothing.
        if value != off and (off == 1 or value not in (False, [], {})):
            raise refused(file, name, value)
    # BART's old name of the field.
    if values.get("force_bos_token_to_be_generated") and not own:
        values["forced_bos_token_id"] = values.get("bos_token_id")
    if two:
        # As transformers does where a file does not say it.
        values.setdefault("decoder_start_token_id", values.get("bos_token_id"))
    # Forced after a prompt it would stand in the middle of the text.
    elif values.get("forced_bos_token_id") is not None and "first_id" not in given:
        raise refused(file, "forced_bos_token_id", values["forced_bos_token_id"])
    # From the file's names to the arguments of `Rules`.
    arguments: dict[str, Any] = {}
    for theirs, ours in RULES.items():
        value = values.get(theirs)
        if value is None or (theirs == "decoder_start_token_id" and not two):
            continue
        # A list of sequences; some files have a flat list of ids.
        if theirs == "bad_words_ids":
            nested = isinstance(value, list) and all(isinstance(row, list) for row in value)
            value = [_ids_said(file, theirs, row) for row in (value if nested else [[value]])]
        elif ours.endswith(("_id", "_ids")):
            value = _ids_said(file, theirs, value)
            # One decoder begins with one token.
            if ours in ("start_ids", "first_id", "last_id") and len(value) != 1:
                raise CheckpointError(f"{file}: the field {theirs!r} must be one id; got {list(value)}")
        arguments[ours] = value[0] if ours in ("first_id", "last_id") else value
    # Sequences of one token become `forbidden_ids`, the others stay.
    if rows := arguments.get("forbidden"):
        # As transformers has it, ends are not taken away. Of one token a mask will do.
        alone = tuple(row[0] for row in rows if len(row) == 1 and row[0] not in arguments.get("end_ids", ()))
        arguments["forbidden_ids"] = arguments.get("forbidden_ids", ()) + alone
        arguments["forbidden"] = tuple(row for row in rows if len(row) > 1)
    if "min_length" in given or "min_length" in arguments:
        arguments.pop("min_read", None)  # as in transformers
    return file, arguments


def refused(file: Path, name: str, value: object) -> CheckpointError:
    """The error of a field that is not offered."""
    return CheckpointError(
        f"{file}: the field {name!r} must be null: it can change the text, and regard does not offer it; got "
        f"{value}. Set it to null to write without it"
    )


def _ids_said(file: Path, name: str, value: object) -> tuple[int, ...]:
    # Files give one id or a list.
    ids = value if isinstance(value, list) else [value]
    if not all(isinstance(each, int) and not isinstance(each, bool) and each >= 0 for each in ids):
        raise CheckpointError(f"{file}: the field {name!r} must be an id or a list of ids; got {value}")
    return tuple(ids)


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
        >>> from regard.decoding import Rules
        >>> from regard.models.families.gpt2 import Gpt2Config, build
        >>> network = build(Gpt2Config(vocab_size=13, d_model=6, num_layers=1, num_heads=2, d_ff=11))
        >>> Rules.of(network, end_ids=(2,), max_length=20)
        Rules(start_ids=(), end_ids=(2,), min_length=0, max_length=20, forbidden_ids=(), forbidden=(), ...)

    Source: Keskar et al. 2019, arXiv 1909.05858, section 4.1 (the penalty; for logits below 0 as in
    `transformers`); Paulus et al. 2017, arXiv 1705.04304, section 2.5 (no n-gram twice).
    """

    start_ids: tuple[int, ...] = ()
    end_ids: tuple[int, ...] = ()
    min_length: Natural = 0
    max_length: Count | None = None
    forbidden_ids: tuple[int, ...] = ()
    forbidden: tuple[tuple[int, ...], ...] = ()
    first_id: Natural | None = None
    not_first_ids: tuple[int, ...] = ()
    last_id: Natural | None = None
    min_read: Natural = 0
    repetition_penalty: Positive = 1.0
    no_repeat: Natural = 0

    def __post_init__(self) -> None:
        for name in ("start_ids", "end_ids", "forbidden_ids", "not_first_ids"):
            # The class is frozen; any iterable of ids is taken.
            object.__setattr__(self, name, _ids(name, getattr(self, name)))
        rows: Any = self.forbidden if isinstance(self.forbidden, Iterable) else [self.forbidden]
        object.__setattr__(self, "forbidden", tuple(_ids("forbidden", row) for row in rows))
        if not all(self.forbidden):
            raise InputError("forbidden must hold sequences of at least one token; got an empty one.")
        # The plain fields, by the limits in their annotations.
        check_fields(self)
        if self.max_length is not None:
            whole("max_length", self.max_length, least=self.min_length)

    @classmethod
    def of(cls, model: Model, **changes: Unpack[RuleChanges]) -> Self:
        """What the checkpoint says, with some of it otherwise.

        That is `generation_config.json`, or `config.json` where there is no such file, as in `transformers`.
        Its maximum lengths are not taken.

        Args:
            model: the model; of a network alone its config is asked.
            changes: any of the arguments of `Rules`.

        Raises:
            CheckpointError: a file that cannot be read, or a field that cannot be or is not offered.
            InputError: no such argument.
        """
        # Named here, since `cls(**changes)` would say it in Python's words.
        unknown = sorted(changes.keys() - {each.name for each in fields(cls)})
        if unknown:
            known = ", ".join(each.name for each in fields(cls))
            raise InputError(
                f"{unknown[0]} is not a rule; the rules are {known}. New tokens at most are max_length; how "
                "tokens are chosen is another argument, choice=Sampling(...)."
            )
        network = model.network if isinstance(model, Loaded) else model
        arguments: dict[str, Any] = {}
        # Least to most: the config, the checkpoint's files, the caller.
        end = getattr(network.config, "eos_token_id", None)
        if isinstance(model, Loaded):
            file, arguments = rules_said(model, changes)
            # generation_config.json replaces the config: without an end there, there is none.
            end = end if file.name == "config.json" else None
            try:
                # A fault in the file is the checkpoint's, not the caller's.
                cls(**arguments)
            except InputError as error:
                raise CheckpointError(f"{file}: {error}") from error
            if isinstance(most := changes.get("max_length"), int):
                # As in transformers, the file's minimum gives way.
                arguments["min_length"] = min(arguments.get("min_length", 0), max(most, 0))
        if "end_ids" not in arguments and isinstance(end, int):
            arguments["end_ids"] = (end,)
        # What training began targets with.
        if len(network.prefixes) == 2 and not arguments.get("start_ids") and network.start_id is not None:
            arguments["start_ids"] = (network.start_id,)
        return cls(**{**arguments, **changes})

    def within(self, rows: int) -> Self:
        """These rules for a model of so many tokens, which never writes what it does not have.

        Raises:
            InputError: a token that must come is none of them.
        """
        # What must be written must exist; what must not be may be missing.
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
        # On the logits, before the softmax, as in transformers.
        if self.repetition_penalty != 1:
            logits = _penalised(logits, read, self.repetition_penalty)
        # (rows, vocab_size). Each rule below sets entries to -inf; the rest is not scaled up again.
        scores = torch.log_softmax(logits, dim=1)
        if self.forbidden_ids:
            scores[:, list(self.forbidden_ids)] = -torch.inf
        for *before, last in self.forbidden:
            # Forbidden after all but its last token was read.
            if len(before) <= read.shape[1]:
                ends = read[:, read.shape[1] - len(before) :] == torch.tensor(before, device=read.device)
                scores[ends.all(dim=1), last] = -torch.inf
        # As many tokens as an n-gram has.
        if 0 < self.no_repeat <= read.shape[1]:
            scores.masked_fill_(_repeating(read, self.no_repeat, scores.shape[1]), -torch.inf)
        # The first free token: a forced one comes before it.
        if self.not_first_ids and length == (self.first_id is not None):
            scores[:, list(self.not_first_ids)] = -torch.inf
        if self.end_ids and length < max(self.min_length, self.min_read):
            # Padding is -1 in `read`, and does not count.
            short = ((read >= 0).sum(dim=1) < self.min_read) | (length < self.min_length)
            ends = torch.tensor(self.end_ids, device=scores.device)
            scores[short.nonzero(), ends] = -torch.inf
        # What is forced comes last: it overrides all the others.
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
    # Towards less likely, whatever the sign (Keskar et al. 2019, with the sign as transformers has it).
    was_read = _at(read, logits.shape[1])
    return torch.where(was_read, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def _repeating(read: Tensor, n: int, vocab_size: int) -> Tensor:
    """Which tokens would end an n-gram that was read before, bool (rows, vocab_size)."""
    # (rows, N - n + 1, n): all n-grams so far
    grams = read.unfold(1, n, 1)
    # Those that begin as the last n - 1 tokens do: their last token would repeat them.
    begun = (grams[:, :, :-1] == read[:, None, read.shape[1] - n + 1 :]).all(dim=2)
    return _at(grams[:, :, -1].where(begun, -1), vocab_size)


def _at(ids: Tensor, vocab_size: int) -> Tensor:
    """Where these ids are, bool (rows, vocab_size); -1 is nowhere."""
    # One column more, for -1, which is cut off.
    spread = torch.zeros(len(ids), vocab_size + 1, dtype=torch.bool, device=ids.device)
    return spread.scatter_(1, ids % (vocab_size + 1), True)[:, :vocab_size]


def _force(scores: Tensor, rows: slice | list[int], token: int) -> None:
    # Nothing was chosen, so that the score of the text does not change.
    scores[rows] = -torch.inf
    scores[rows, token] = 0.0
