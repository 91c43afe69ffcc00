"""The families of models, a file each: its config, the building of its network, its key map.

The private files are what several families share. Here they are listed by the `model_type` of config.json.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from regard.checkpoints import Fields, GGUFFile, KeyMap, TensorReader
from regard.core.errors import InputError
from regard.models._transformer import Transformer
from regard.models.families._gguf import Architecture, architecture_of, config_of, tensors_of


@dataclass(frozen=True, kw_only=True)
class Family:
    """How checkpoints of one architecture become a network, and back.

    Args:
        name: `model_type` in config.json.
        config: the class of its configs, which reads config.json and writes it.
        build: from the config to the network, its parameters not yet set; InputError for sizes that no
            network can have, or that do not divide.
        keys: the map between the names on disk and the network's own.
    """

    name: str
    config: type[Any]
    build: Callable[[Any], Transformer]
    keys: KeyMap


# The module of each, its config and its keys. They are imported when a checkpoint asks for them.
_HOMES = {
    "bahdanau": ("bahdanau", "BahdanauConfig", "BAHDANAU_KEYS"),
    "bart": ("bart", "BartConfig", "BART_KEYS"),
    "bert": ("bert", "BertConfig", "BERT_KEYS"),
    "deberta-v2": ("deberta", "DebertaConfig", "DEBERTA_KEYS"),
    "distilbert": ("distilbert", "DistilBertConfig", "DISTILBERT_KEYS"),
    "electra": ("electra", "ElectraConfig", "ELECTRA_KEYS"),
    "expire-span": ("expire_span", "ExpireSpanConfig", "EXPIRE_SPAN_KEYS"),
    "gemma2": ("gemma", "GemmaConfig", "GEMMA_KEYS"),
    "gemma3_text": ("gemma", "GemmaConfig", "GEMMA_KEYS"),
    "gpt2": ("gpt2", "Gpt2Config", "GPT2_KEYS"),
    "llama": ("llama", "LlamaConfig", "LLAMA_KEYS"),
    "marian": ("bart", "BartConfig", "BART_KEYS"),
    "mbart": ("bart", "BartConfig", "BART_KEYS"),
    "mistral": ("llama", "LlamaConfig", "LLAMA_KEYS"),
    "modernbert": ("modernbert", "ModernBertConfig", "MODERNBERT_KEYS"),
    "mpnet": ("mpnet", "MPNetConfig", "MPNET_KEYS"),
    "perceiver-io": ("perceiver", "PerceiverConfig", "PERCEIVER_KEYS"),
    "phi3": ("llama", "LlamaConfig", "PHI3_KEYS"),
    "qwen2": ("llama", "LlamaConfig", "LLAMA_KEYS"),
    "qwen3": ("llama", "LlamaConfig", "LLAMA_KEYS"),
    "roberta": ("roberta", "RobertaConfig", "ROBERTA_KEYS"),
    "srupp": ("sru", "SruConfig", "SRU_KEYS"),
    "t5": ("t5", "T5Config", "T5_KEYS"),
    "xlm-roberta": ("roberta", "RobertaConfig", "ROBERTA_KEYS"),
}


_GGUF = {"bert": "BERT", "gemma": "GEMMA", "gpt2": "GPT2", "llama": "LLAMA", "t5": "T5"}
"""The modules of families that GGUF files are of, and how the names of their tables begin."""


def gguf_checkpoint(file: GGUFFile) -> tuple[Fields, TensorReader]:
    """A GGUF file as a folder of its family: the fields of config.json, and the tensors by their names there.

    Raises:
        CheckpointError: of an architecture that regard does not implement, or with a field that it does not
            know.
    """
    known: dict[str, Architecture] = {}
    for module, start in _GGUF.items():
        known |= getattr(import_module(f"regard.models.families.{module}"), f"{start}_GGUF")
    architecture = architecture_of(file, known)
    config = config_of(file, architecture)
    return config, tensors_of(file, architecture, config)


FAMILIES = tuple(_HOMES)
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
    module, config_name, keys = _HOMES[model_type]
    home = import_module(f"regard.models.families.{module}")
    config = getattr(home, config_name)
    return Family(
        name=model_type,
        config=config,
        build=home.build,
        keys=getattr(home, keys),
    )
