"""The families that regard implements, by the `model_type` of their config.json."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from regard.checkpoints import Config, KeyMap
from regard.core.errors import InputError
from regard.models import (
    bart,
    bert,
    deberta,
    distilbert,
    electra,
    gemma,
    gpt2,
    llama,
    modernbert,
    mpnet,
    roberta,
    t5,
)
from regard.models._transformer import Transformer


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
    build: Callable[[Any], Transformer]
    write_config: Callable[[Any], dict[str, Any]]
    keys: KeyMap


def _family(name: str, config: Any, build: Callable[[Any], Transformer], keys: KeyMap) -> Family:
    return Family(name=name, read_config=config.from_hf, build=build, write_config=config.to_hf, keys=keys)


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        _family("bart", bart.BartConfig, bart.build, bart.BART_KEYS),
        _family("bert", bert.BertConfig, bert.build, bert.BERT_KEYS),
        _family("deberta-v2", deberta.DebertaConfig, deberta.build, deberta.DEBERTA_KEYS),
        _family("distilbert", distilbert.DistilBertConfig, distilbert.build, distilbert.DISTILBERT_KEYS),
        _family("electra", electra.ElectraConfig, electra.build, electra.ELECTRA_KEYS),
        _family("gemma2", gemma.GemmaConfig, gemma.build, gemma.GEMMA_KEYS),
        _family("gemma3_text", gemma.GemmaConfig, gemma.build, gemma.GEMMA_KEYS),
        _family("gpt2", gpt2.Gpt2Config, gpt2.build, gpt2.GPT2_KEYS),
        _family("llama", llama.LlamaConfig, llama.build, llama.LLAMA_KEYS),
        _family("marian", bart.BartConfig, bart.build, bart.BART_KEYS),
        _family("mbart", bart.BartConfig, bart.build, bart.BART_KEYS),
        _family("modernbert", modernbert.ModernBertConfig, modernbert.build, modernbert.MODERNBERT_KEYS),
        _family("mpnet", mpnet.MPNetConfig, mpnet.build, mpnet.MPNET_KEYS),
        _family("roberta", roberta.RobertaConfig, roberta.build, roberta.ROBERTA_KEYS),
        _family("mistral", llama.LlamaConfig, llama.build, llama.LLAMA_KEYS),
        _family("qwen2", llama.LlamaConfig, llama.build, llama.LLAMA_KEYS),
        _family("qwen3", llama.LlamaConfig, llama.build, llama.LLAMA_KEYS),
        _family("t5", t5.T5Config, t5.build, t5.T5_KEYS),
        _family("xlm-roberta", roberta.RobertaConfig, roberta.build, roberta.ROBERTA_KEYS),
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
            f"got {model_type!r}. regard.lens(model, tokenizer) traces the model of transformers."
        )
    return FAMILIES[model_type]
