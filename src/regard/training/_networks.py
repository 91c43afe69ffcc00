"""The network of a run: new, of a family's own initial weights, or a checkpoint's."""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from os import PathLike
from typing import Any, get_type_hints

import torch

from regard.checkpoints import HeadKind
from regard.core.arguments import plain, table
from regard.core.errors import InputError
from regard.core.memory import check_room
from regard.models import (
    FAMILIES,
    FamilyConfig,
    TakesAttention,
    Transformer,
    attention_named,
    count_parameters,
    family_of,
    load_checkpoint,
    new_network,
    our_own,
)
from regard.text import Tokenizer

_SMALL = {"d_model": 256, "num_layers": 4, "num_heads": 4, "d_ff": 1024}
"""A network that learns something in minutes on a processor; the settings say otherwise."""

_LIKE = {
    "num_kv_heads": "num_heads",
    "num_decoder_layers": "num_layers",
    "num_decoder_heads": "num_heads",
    "d_decoder_ff": "d_ff",
    "decoder_vocab_size": "vocab_size",
}
"""Fields that follow another one, where they are not given."""

_DROPOUT = "dropout_p"
"""How the fields of dropout end; the one of this name is that of the sublayers."""


@dataclass(frozen=True, kw_only=True)
class NetworkSpec:
    """The network that a run asks for.

    Args:
        start: a checkpoint to train on from; None for a new network.
        family: of a new one.
        sizes: fields of its config; of a checkpoint only those of dropout can be set.
        length: the most positions that it must take.
        seed: of the initial weights.
    """

    start: str | None
    family: str
    sizes: Mapping[str, Any]
    length: int
    seed: int


def network_of(spec: NetworkSpec, tokenizer: Tokenizer, *, head: HeadKind, **more: Any) -> Transformer:
    """The network in training mode; errors name the settings, such as model.num_heads.

    A head that a checkpoint lacks is new. `more` are fields of the config that the objective decides, such as
    the number of labels.
    """
    # A checkpoint has its sizes; only dropout may be set.
    if spec.start is not None:
        return _further(spec, spec.start, {"head": head, **more})
    # What the family's config has as fields, and its network uses.
    kind = family_of(spec.family).config
    known = {each.name for each in fields(kind)} - kind.ABSENT
    if "attention" in spec.sizes and not issubclass(kind, TakesAttention):
        able = [name for name in FAMILIES if issubclass(family_of(name).config, TakesAttention)]
        raise InputError(
            f"model.attention must be left out for {spec.family}; families with a choice of attention are "
            f"{', '.join(able)}."
        )
    # A choice of attention is checked by its own class.
    plainly = {name: value for name, value in spec.sizes.items() if name != "attention" and value is not None}
    kinds = get_type_hints(kind)
    sizes = table("model", plainly, {name: kinds[name] for name in known})
    with _settings_named(known):
        special = tokenizer.special_ids
        # From the least to the most: defaults, tokenizer, objective, settings.
        values: dict[str, Any] = {
            **_SMALL,
            "model_type": spec.family,
            "vocab_size": tokenizer.vocab_size,
            "max_seq_len": spec.length,
            "head": head,
            # Without marks of their own, texts end as BERT's do and decoders begin as T5's.
            "pad_token_id": special.pad,
            "eos_token_id": special.sep if special.eos is None else special.eos,
            "decoder_start_token_id": special.pad if special.bos is None else special.bos,
            **more,
            **spec.sizes,
            **sizes,
            **_rates(spec.sizes, kind, spec.sizes.get("attention")),
        }
        # Sizes that follow from others where nothing is said.
        values |= {name: values[one] for name, one in _LIKE.items() if name not in values}
        # What a family has no field for is left out: the settings were checked above.
        arguments = {name: value for name, value in values.items() if name in known and value is not None}
        config = kind.of_sizes(**arguments)
        _check_memory(config)
        return new_network(config, seed=spec.seed)


def _check_memory(config: FamilyConfig) -> None:
    """Refuse a network that could not be trained here: weights, gradients and one moment at least.

    A system without memory left ends a process without a word, so what cannot fit is refused before.
    """
    count, way_out = count_parameters(config), "lower batch.length or the sizes under model"
    # Four bytes each for weights, gradients and a moment.
    check_room(f"a network of {count:,} parameters", 12 * count, torch.device("cpu"), way_out)


@contextmanager
def _settings_named(fields: Collection[str]) -> Iterator[None]:
    """An error about a field names the setting that it came from."""
    try:
        yield
    except InputError as error:
        # Messages begin with the field's name.
        name = re.match(r"\w+", str(error))
        if name is None or name[0] not in fields:
            raise
        raise InputError(f"model.{error}") from error


def _rates(sizes: Mapping[str, Any], kind: type[Any], attention: Any) -> dict[str, float]:
    """The given rates of dropout, and those that follow from them.

    Where `dropout_p` is given, the others of the same default are as it is; where it is 0, all are. Attention
    without weights has no dropout of weights.
    """
    own = {each.name: each.default for each in fields(kind) if each.name.endswith(_DROPOUT)}
    stated = {name: sizes[name] for name in own if sizes.get(name) is not None}
    for name, rate in stated.items():
        if not 0.0 <= plain(f"model.{name}", rate, float) < 1.0:
            raise InputError(f"model.{name} must be a number from 0 to below 1; got {rate!r}.")
    # `dropout_p` sets the rates that have its default; 0 sets all.
    main = stated.get(_DROPOUT)
    implied = {name: main for name in own if own[name] == own.get(_DROPOUT) or main == 0.0}
    choice = attention_named(attention, kind.ATTENTIONS) if issubclass(kind, TakesAttention) else None
    if choice is not None and not choice.has_weights and "attention_dropout_p" in own:
        implied["attention_dropout_p"] = 0.0
    return {name: float(rate) for name, rate in {**implied, **stated}.items() if rate is not None}


def _further(spec: NetworkSpec, start: str, more: Mapping[str, Any]) -> Transformer:
    if spec.sizes:
        # The config is read first: rates are checked against its fields.
        rates = dropout_of(load_checkpoint(start).network.config, spec.sizes, start)
        more = {**more, "dropout": rates}
    network = stored_network(start, seed=spec.seed, **more)
    check_length(network, spec.length, start)
    return network


def dropout_of(config: Any, sizes: Mapping[str, Any], name: str) -> dict[str, float]:
    """Rates of dropout for a network of that name and config, whose sizes cannot change."""
    own = [each.name for each in fields(config) if each.name.endswith(_DROPOUT)]
    if strange := sorted({*sizes} - {*own}):
        raise InputError(
            f"model must be left out, or set {', '.join(own) or 'nothing'} alone: {name} has its sizes; "
            f"got {', '.join(strange)}."
        )
    return _rates(sizes, type(config), getattr(config, "attention", None))


def stored_network(name: str | PathLike[str], **more: Any) -> Transformer:
    """The network of a checkpoint in training mode, in float32 and with the memory layout of a new one.

    GPT-2's files hold q, k and v as slices of one transposed matrix, with which products are slow.
    """
    network = our_own(load_checkpoint(name, packed=False, **more).network).float().train()
    for parameter in network.parameters():
        # As a new network has them: results must not depend on how a file lies.
        parameter.data = parameter.data.contiguous()
    return network


def check_length(network: Transformer, length: int, name: str) -> None:
    """Refuse texts that are longer than a network of that name takes."""
    for kind in network.prefixes:
        limit = network.limit(kind)
        if limit is not None and limit < length:
            raise InputError(f"batch.length must be at most {limit}, the positions of {name}; got {length}.")
