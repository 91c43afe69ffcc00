"""What a checkpoint's own files say of writing, field by field: honoured, or refused by name."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from regard.core.errors import CheckpointError
from regard.core.json import read_object
from regard.models import Loaded

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
    folder = Path(model.source.folder)
    file = folder / "generation_config.json"
    file = file if file.exists() else folder / "config.json"
    held = getattr(getattr(model.network, "hf_model", None), "generation_config", None)
    if held is not None:
        file, values = Path("generation_config"), held.to_dict()
    else:
        values = read_object(file) if model.network.foreign is None and file.exists() else {}
    return file, {name: value for name, value in values.items() if value is not None}


def rules_said(model: Loaded, given: Collection[str]) -> tuple[Path, dict[str, Any]]:
    """The same file, and the arguments of `Rules` that it gives beside those that the user gave."""
    file, values = said(model)
    two, own = len(model.network.prefixes) == 2, file.name != "config.json"  # which has fields of other kinds
    harmless = RULES.keys() | WAYS | IGNORED_FIELDS if own else values.keys() - REFUSED.keys()
    for name in sorted(values.keys() - harmless):
        value, off = values[name], REFUSED.get(name)
        if value != off and (off == 1 or value not in (False, [], {})):
            raise refused(file, name, value)
    if values.get("force_bos_token_to_be_generated") and not own:
        values["forced_bos_token_id"] = values.get("bos_token_id")
    if two:
        values.setdefault("decoder_start_token_id", values.get("bos_token_id"))
    elif values.get("forced_bos_token_id") is not None and "first_id" not in given:
        raise refused(file, "forced_bos_token_id", values["forced_bos_token_id"])
    found: dict[str, Any] = {}
    for theirs, ours in RULES.items():
        value = values.get(theirs)
        if value is None or (theirs == "decoder_start_token_id" and not two):
            continue
        if theirs == "bad_words_ids":
            nested = isinstance(value, list) and all(isinstance(row, list) for row in value)
            value = [_ids(file, theirs, row) for row in (value if nested else [[value]])]
        elif ours.endswith(("_id", "_ids")):
            value = _ids(file, theirs, value)
            if ours in ("start_ids", "first_id", "last_id") and len(value) != 1:
                raise CheckpointError(f"{file}: the field {theirs!r} must be one id; got {list(value)}")
        found[ours] = value[0] if ours in ("first_id", "last_id") else value
    if rows := found.get("forbidden"):
        # As transformers has it, ends are not taken away. Of one token a mask will do.
        alone = tuple(row[0] for row in rows if len(row) == 1 and row[0] not in found.get("end_ids", ()))
        found["forbidden_ids"] = found.get("forbidden_ids", ()) + alone
        found["forbidden"] = tuple(row for row in rows if len(row) > 1)
    if "min_length" in given or "min_length" in found:
        found.pop("min_read", None)  # as in transformers
    return file, found


def refused(file: Path, name: str, value: object) -> CheckpointError:
    """The error of a field that is not offered."""
    return CheckpointError(
        f"{file}: the field {name!r} must be null: it can change the text, and regard does not offer it; got "
        f"{value}. Set it to null to write without it"
    )


def _ids(file: Path, name: str, value: object) -> tuple[int, ...]:
    ids = value if isinstance(value, list) else [value]
    if not all(isinstance(each, int) and not isinstance(each, bool) and each >= 0 for each in ids):
        raise CheckpointError(f"{file}: the field {name!r} must be an id or a list of ids; got {value}")
    return tuple(ids)
