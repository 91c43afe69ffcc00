"""The families of models, a file each: its config, the building of its network, its key map.

The private files are what several families share. Here they are listed by the `model_type` of config.json.
"""

from importlib import import_module

from regard.checkpoints import Fields, GGUFFile, TensorReader
from regard.core.arguments import one_of
from regard.models.families._family import Family
from regard.models.families._gguf import Architecture, architecture_of, config_of, tensors_of

# The modules, each imported when a checkpoint asks for a family of it.
_HOMES = {
    "bahdanau": ("bahdanau",),
    "bart": ("bart", "marian", "mbart"),
    "bert": ("bert",),
    "deberta": ("deberta-v2",),
    "distilbert": ("distilbert",),
    "electra": ("electra",),
    "expire_span": ("expire-span",),
    "gemma": ("gemma2", "gemma3_text"),
    "gpt2": ("gpt2",),
    "llama": ("llama", "mistral", "phi3", "qwen2", "qwen3"),
    "modernbert": ("modernbert",),
    "mpnet": ("mpnet",),
    "perceiver": ("perceiver-io",),
    "roberta": ("roberta", "xlm-roberta"),
    "sru": ("srupp",),
    "t5": ("t5",),
}


_GGUF = {"bert": "BERT", "gemma": "GEMMA", "gpt2": "GPT2", "llama": "LLAMA", "t5": "T5"}
"""The modules of families that GGUF files are of, and how the names of their tables begin."""


def gguf_checkpoint(file: GGUFFile) -> tuple[Fields, TensorReader]:
    """A GGUF file as a folder of its family: the fields of config.json, and the tensors by their names there.

    Raises:
        CheckpointError: of an architecture that regard does not implement, or with a field that it does not
            know.
    """
    # Few modules: all of them are asked.
    known: dict[str, Architecture] = {}
    for module, start in _GGUF.items():
        known |= getattr(import_module(f"regard.models.families.{module}"), f"{start}_GGUF")
    architecture = architecture_of(file, known)
    config = config_of(file, architecture)
    return config, tensors_of(file, architecture, config)


# By name, without importing any.
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
FAMILIES = tuple(sorted(_HOME_OF))
"""Every family, by `model_type`."""


def family_of(model_type: str) -> Family:
    """The family of that name.

    Raises:
        InputError: regard does not implement it; the message lists those it does.

    Example:
        >>> family_of("bert").name
        'bert'
    """
    hint = " regard.lens(model, tokenizer) traces the model of transformers."
    one_of("model_type", model_type, FAMILIES, hint=hint)
    home = import_module(f"regard.models.families.{_HOME_OF[model_type]}")
    families: tuple[Family, ...] = home.FAMILIES
    return next(family for family in families if family.name == model_type)
