"""How a checkpoint wants its sentence vectors made: the files that sentence-transformers writes beside it."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from regard.checkpoints import MODULES, SENTENCE, Fields, inside, open_gguf, read_config, read_config_list
from regard.core.errors import CheckpointError, InputError
from regard.core.files import read_small
from regard.embedding._pooling import Kind
from regard.embedding._steps import Dense, Norm, Step, Unit, read_dense, read_norm, read_unit
from regard.text import Words

_FIRST: Final = frozenset({"Transformer", "BERT", "RoBERTa", "DistilBERT", "XLMRoBERTa"})
"""What the module of the network has been called: before version 0.3 each family had a class of its own."""

_PROMPTS: Final = "config_sentence_transformers.json"
_TOKENIZER: Final = "tokenizer_config.json"

_FLAGS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        "pooling_mode_cls_token": "cls",
        "pooling_mode_max_tokens": "max",
        "pooling_mode_mean_tokens": "mean",
        "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
        "pooling_mode_weightedmean_tokens": "weighted_mean",
        "pooling_mode_lasttoken": "last",
    }
)
"""Poolings by the flags of older files, in the order in which those of one file are joined."""

_NAMES: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        "cls": "cls",
        "max": "max",
        "mean": "mean",
        "mean_sqrt_len_tokens": "mean_sqrt_len",
        "weightedmean": "weighted_mean",
        "lasttoken": "last",
    }
)
"""Poolings by the names of newer files."""

_STEPS: Final[Mapping[str, Callable[[Path], Step]]] = MappingProxyType(
    {"Dense": read_dense, "LayerNorm": read_norm, "Normalize": read_unit}
)
"""Modules that may follow the pooling, and how they are read; `Dropout` as well, which does nothing here."""

_LONGEST: Final = 2**31
"""A larger limit on tokens means that there is none: tokenizers without one say 10^30."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SentenceSettings:
    """How a checkpoint wants its sentence vectors made.

    Args:
        pooling: the poolings, whose vectors are joined end to end.
        steps: what is done to the pooled vector, in this order.
        max_seq_length: the most tokens a text may have, special ones included; None where the files name
            no limit.
        lowercases: whether texts and prompts are put into lower case first.
        include_prompt: whether the prompt's tokens are pooled with the others.
        prompts: what is put before a text, by name.
        default_prompt_name: the prompt of a text for which none is named; None for none.
        truncate_dim: how many entries of a vector are kept; None for all.
        dimensions: the sizes to which vectors may be cut, since they were trained for it (Matryoshka).

    Example:
        >>> SentenceSettings().pooling
        ('mean',)
    """

    pooling: tuple[Kind, ...] = ("mean",)
    steps: tuple[Step, ...] = ()
    max_seq_length: int | None = None
    lowercases: bool = False
    include_prompt: bool = True
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    truncate_dim: int | None = None
    dimensions: tuple[int, ...] = ()

    @property
    def plain_pooling(self) -> Literal["mean", "cls", "last"] | None:
        """How a page makes one vector of a text; None where the checkpoint asks for more than it has."""
        plain = all(isinstance(step, Unit) for step in self.steps) and not self.lowercases
        # Pages know one pooling and the length 1.
        if len(self.pooling) > 1 or not plain or self.prompt():
            return None
        match self.pooling[0]:
            case "mean" | "cls" | "last" as kind:
                return kind
        return None

    def width(self, d_model: int) -> int:
        """The size of a sentence vector, made of vectors of a size, before it is cut.

        Raises:
            InputError: a step does not take vectors of the size that the one before it gives.
        """
        size = d_model * len(self.pooling)
        for step in self.steps:
            # Each step must take what the one before gives.
            takes, gives = _sizes(step)
            if takes not in (None, size):
                raise InputError(
                    f"d_model is {d_model}, but the {type(step).__name__} after the pooling does not take "
                    f"vectors of size {size}; the checkpoint's modules do not belong to its weights."
                )
            size = size if gives is None else gives
        return size

    def prompt(self, *, prompt: str | None = None, name: str | None = None) -> str:
        """What is put before a text: the prompt given, the one named, the checkpoint's own, or nothing.

        Raises:
            InputError: both are given, or the checkpoint has no prompt of that name.

        Example:
            >>> settings = SentenceSettings(prompts={"query": "query: "}, default_prompt_name="query")
            >>> settings.prompt(), settings.prompt(prompt=""), settings.prompt(name="query")
            ('query: ', '', 'query: ')
        """
        if prompt is not None and name is not None:
            raise InputError("prompt and prompt_name cannot both be given; give one of them.")
        if prompt is not None:
            return prompt
        name = self.default_prompt_name if name is None else name
        # No prompt anywhere.
        if name is None:
            return ""
        if name not in self.prompts:
            known = ", ".join(repr(each) for each in self.prompts) or "none"
            raise InputError(f"prompt_name must be a prompt of the checkpoint ({known}); got {name!r}.")
        return self.prompts[name]

    def prepared(self, text: str, prompt: str = "") -> str:
        """The text as the tokenizer gets it: after the prompt, in lower case where the checkpoint says so.

        Example:
            >>> SentenceSettings(lowercases=True).prepared("ΟΔΟΣ", "Query: ")
            'query: οδοσ'
        """
        if isinstance(text, Words):
            return Words([self.prepared(word) for word in (prompt.strip(), *text.words) if word])
        whole = prompt + text
        # Letter by letter, as the tokenizers library does it: str.lower() would give the last letter ς.
        return "".join(letter.lower() for letter in whole) if self.lowercases else whole


def read_sentence_settings(folder: str | PathLike[str]) -> SentenceSettings:
    """Read what sentence-transformers wrote beside a checkpoint.

    Read are `modules.json`, the folders it names, `sentence_bert_config.json` (or its older names),
    `config_sentence_transformers.json`, the tokenizer's own limit, and of the model card the sizes of a
    Matryoshka loss (https://arxiv.org/abs/2205.13147). A folder without `modules.json` has
    mean pooling, or the last token's vector where its config names a language model (`...ForCausalLM`), and
    nothing after it: as sentence-transformers does.

    Args:
        folder: the model's folder, or its GGUF file, which says no more than a pooling.

    Raises:
        CheckpointError: a file is damaged or missing; or has a field or a module that regard does not know,
            which may change the result.

    Example:
        >>> from regard.checkpoints import find
        >>> settings = read_sentence_settings(find("all-MiniLM-L6-v2").folder)
        >>> settings.pooling, settings.steps, settings.max_seq_length
        (('mean',), (Unit(),), 256)
    """
    folder = Path(folder)
    # A GGUF file says it itself.
    if folder.is_file():
        return _of_gguf(folder)
    if not (folder / MODULES).exists():
        pooling: Kind = "last" if _is_language_model(folder) else "mean"
        return SentenceSettings(pooling=(pooling,), max_seq_length=_tokenizer_limit(folder))
    modules = [_Module.read(config, folder) for config in read_config_list(folder, MODULES)]
    kinds = [module.kind for module in modules]
    # The network, then the pooling, then any known steps.
    if not (_FIRST & set(kinds[:1]) and kinds[1:2] == ["Pooling"]):
        kind_names = ", ".join(kinds) or "none"
        raise CheckpointError(
            f"{folder / MODULES}: the modules must begin with Transformer and Pooling, which regard puts "
            f"into one vector a text; got {kind_names}"
        )
    transformer, pooling_module, *rest = modules
    for module in rest:
        if module.kind not in (*_STEPS, "Dropout"):
            raise CheckpointError(
                f"{folder / MODULES}: the module {module.kind!r} after the pooling is not one that regard "
                f"knows; it supports {', '.join(sorted((*_STEPS, 'Dropout')))}"
            )
    kinds_of, include_prompt = _read_pooling(read_config(pooling_module.folder))
    limit, lowercases = _read_transformer(transformer.folder)
    steps = tuple(_STEPS[module.kind](module.folder) for module in rest if module.kind != "Dropout")
    return SentenceSettings(
        pooling=kinds_of,
        steps=steps,
        max_seq_length=limit,
        lowercases=lowercases,
        include_prompt=include_prompt,
        dimensions=_trained_sizes(folder),
        **_read_prompts(folder),
    )


_GGUF_POOLINGS: Final[Mapping[int, Kind]] = MappingProxyType({1: "mean", 2: "cls", 3: "last"})
"""By the numbers of llama.cpp."""


def _of_gguf(file: Path) -> SentenceSettings:
    """The settings of a GGUF file: the pooling that it names, or that of a folder that names none."""
    fields = open_gguf(file).fields
    start = fields.get("general.architecture")
    # 0 is "none": then as llama.cpp's models are used.
    number = fields.get(f"{start}.pooling_type", 0)
    if number not in (0, *_GGUF_POOLINGS):
        raise CheckpointError(
            f"{file}: the field '{start}.pooling_type' must be 0 to 3 (none, mean, the first token, the "
            f"last); got {number}, with which a text becomes no vector"
        )
    usual: Kind = "mean" if start in ("bert", "t5", "t5encoder") else "last"
    return SentenceSettings(pooling=(_GGUF_POOLINGS.get(number, usual),))


def _sizes(step: Step) -> tuple[int | None, int | None]:
    """The widths of the vectors that a step takes and gives; None for any."""
    match step:
        case Dense():
            return step.weight.shape[1], step.weight.shape[0]
        case Norm():
            return len(step.weight), None
        case Unit():
            return None, None


@dataclass(frozen=True)
class _Module:
    """An entry of `modules.json`: a class of sentence-transformers and the folder with its files."""

    kind: str
    folder: Path

    @classmethod
    def read(cls, config: Fields, folder: Path) -> "_Module":
        path, kind = config.require("path", str), config.require("type", str)
        arguments = config.get("kwargs", list, [])
        config.done(inert=("idx", "name"))
        # sentence_transformers.models.Pooling, in any of its spellings.
        package, _, name = kind.rpartition(".")
        if package.split(".")[0] != "sentence_transformers":
            raise CheckpointError(
                f"{config.file}: the module {kind!r} is code of its own, which regard does not run; it knows "
                "those of sentence_transformers"
            )
        if arguments:
            raise CheckpointError(f"{config.file}: the module {kind!r} takes arguments {arguments}; none may")
        place = inside(folder, path)
        if place is None:
            raise CheckpointError(
                f"{config.file}: the field {config.path + 'path'!r} must stay inside {folder}; got {path!r}"
            )
        return cls(name, place)


def _read_pooling(config: Fields) -> tuple[tuple[Kind, ...], bool]:
    """The poolings, and whether the prompt takes part."""
    # Several flags join several poolings.
    flags = {flag: config.get(flag, bool, False) for flag in _FLAGS}
    kinds: tuple[Kind, ...] = tuple(_FLAGS[flag] for flag, is_on in flags.items() if is_on) or ("mean",)
    if "pooling_mode" in config.values:  # then the flags are void
        is_one = isinstance(config.values["pooling_mode"], str)
        named = [config.require("pooling_mode", str)] if is_one else config.list_of("pooling_mode", str, [])
        if unknown := [name for name in named if name not in _NAMES]:
            raise CheckpointError(
                f"{config.file}: the field 'pooling_mode' is {unknown[0]!r}; "
                f"regard supports {', '.join(_NAMES)}"
            )
        if not named:
            raise CheckpointError(f"{config.file}: the field 'pooling_mode' names no pooling")
        kinds = tuple(_NAMES[name] for name in named)
    include_prompt = config.get("include_prompt", bool, True)
    config.done(inert=("word_embedding_dimension", "embedding_dimension"))
    return kinds, include_prompt


def _read_transformer(folder: Path) -> tuple[int | None, bool]:
    """The most tokens of a text, and whether it is put into lower case."""
    # Each kind of network has its own file name.
    name = next((name for name in SENTENCE if (folder / name).exists()), None)
    if name is None:
        return _tokenizer_limit(folder), False
    config = read_config(folder, name)
    limit = _positive(config, "max_seq_length")
    lowercases = config.get("do_lower_case", bool, None) or False
    config.expect("transformer_task", ("feature-extraction",), "feature-extraction")
    config.expect("module_output_name", ("token_embeddings", None), None)
    # Models that read pictures too have this: the text's part must be the usual one.
    modalities = config.sub("modality_config")
    if modalities is not None and (text := modalities.sub("text")) is not None:
        text.expect("method", ("forward",), "forward")
        text.expect("method_output_name", ("last_hidden_state",), "last_hidden_state")
    config.sub("processing_kwargs")  # empty, or what is in it is refused below
    for length in ("query_length", "document_length", "query_expansion"):
        config.expect(length, (None,), None)  # of vectors by token, for late interaction
    for prefix in ("model", "tokenizer", "processor", "config"):
        for ending in ("args", "kwargs"):
            if (arguments := config.sub(f"{prefix}_{ending}")) is not None:
                arguments.done(_ARGUMENTS)
    config.done(inert=("unpad_inputs",))
    return _tokenizer_limit(folder) if limit is None else limit, lowercases


_ARGUMENTS: Final = frozenset(
    {"add_pooling_layer", "attn_implementation", "dtype", "torch_dtype", "trust_remote_code", "use_cache"}
)
"""Arguments of transformers' loading that change no vector, beyond the type in which it is worked out."""


def _read_prompts(folder: Path) -> dict[str, Any]:
    """What `config_sentence_transformers.json` says; of its other fields none changes a vector."""
    if not (folder / _PROMPTS).exists():
        return {}
    config = read_config(folder, _PROMPTS)
    config.expect("model_type", ("SentenceTransformer",), "SentenceTransformer")
    inside = config.sub("prompts")
    texts: dict[str, str] = {}
    if inside is not None:
        # null: a prompt that the one who loads the model was to fill in, which nobody did
        texts = {name: inside.get(name, str, None) or "" for name in inside.values}
    default = config.get("default_prompt_name", str, None)
    if default is not None and default not in texts:
        raise CheckpointError(
            f"{config.file}: the field 'default_prompt_name' is {default!r}, which is not among the "
            f"prompts: {', '.join(repr(name) for name in texts) or 'there are none'}"
        )
    return {
        "prompts": texts,
        "default_prompt_name": default,
        "truncate_dim": _positive(config, "truncate_dim"),
    }


def _trained_sizes(folder: Path) -> tuple[int, ...]:
    """Those that every `matryoshka_dims` of the model card names: one stands there for each data set."""
    card = folder / "README.md"
    text = read_small(card).decode("utf-8", "replace") if card.is_file() else ""
    # From the card's code, as sentence-transformers writes it.
    found = re.findall(r"""["']matryoshka_dims["']: *\[([\d,\s]+)\]""", text)
    sizes = [{int(number) for number in re.findall(r"\d+", each)} for each in found]
    return tuple(sorted(set.intersection(*sizes))) if sizes else ()


def _positive(config: Fields, key: str) -> int | None:
    """A number from 1 on; None where the file has none."""
    number = config.get(key, int, None)
    if number is not None and number < 1:
        raise CheckpointError(f"{config.file}: the field {key!r} must be 1 or more; got {number}")
    return number


def _tokenizer_limit(folder: Path) -> int | None:
    """The tokenizer's own limit, which counts where the model's files have none."""
    if not (folder / _TOKENIZER).exists():
        return None
    config = read_config(folder, _TOKENIZER)
    limit = config.values.get("model_max_length")
    # 1e30 in some files.
    if isinstance(limit, float) and limit >= _LONGEST:
        return None
    number = _positive(config, "model_max_length")
    return None if number is None or number >= _LONGEST else number


def _is_language_model(folder: Path) -> bool:
    """Whether the checkpoint was made to write on from left to right: its last token has seen the others."""
    if not (folder / "config.json").exists():
        return False
    config = read_config(folder)
    # The class says it, unless the file says that all tokens see each other.
    architectures = config.list_of("architectures", str, None) or [""]
    return architectures[0].endswith("ForCausalLM") and config.values.get("is_causal", True) is True
