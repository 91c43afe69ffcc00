"""The families that regard implements, by the `model_type` of their config.json."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from regard.checkpoints import Config, KeyMap
from regard.core.errors import InputError
from regard.models._network import Network
from regard.models.bert import BERT_KEYS, Bert, BertConfig
from regard.models.distilbert import DISTILBERT_KEYS, DistilBert, DistilBertConfig


@dataclass(frozen=True, kw_only=True)
class Family:
    """How checkpoints of one architecture become a network, and back.

    Args:
        name: `model_type` in config.json.
        read_config: from the fields on disk and the names of the stored tensors to the config.
        build: from the config to the network, its parameters not yet set.
        write_config: from the network's config to the fields on disk.
        keys: the map between the names on disk and the network's own.
    """

    name: str
    read_config: Callable[[Config, Collection[str]], Any]
    build: Callable[[Any], Network]
    write_config: Callable[[Any], dict[str, Any]]
    keys: KeyMap


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family(
            name="bert",
            read_config=BertConfig.from_hf,
            build=Bert,
            write_config=BertConfig.to_hf,
            keys=BERT_KEYS,
        ),
        Family(
            name="distilbert",
            read_config=DistilBertConfig.from_hf,
            build=DistilBert,
            write_config=DistilBertConfig.to_hf,
            keys=DISTILBERT_KEYS,
        ),
    )
}
"""Every family, by `model_type`."""


def family_of(model_type: str) -> Family:
    """The family of that name.

    Raises:
        InputError: regard does not implement it; the message lists those it does.

    Example:
        >>> family_of("bert").name
        'bert'
    """
    if model_type not in FAMILIES:
        raise InputError(
            f"model_type must be one of {', '.join(sorted(FAMILIES))}, the families that regard implements; "
            f"got {model_type!r}."
        )
    return FAMILIES[model_type]
