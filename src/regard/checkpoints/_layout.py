"""The files of a model's folder: which make it a model, by the hub's names, and the licence on its card."""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from regard.core.errors import CheckpointError
from regard.core.json import json_kind, read_object, read_objects
from regard.core.tokenizer_files import PARTS, SETTINGS, TOKENIZER, VOCABULARIES

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
MODULES = "modules.json"
"""Where sentence-transformers lists the network and what comes after it."""

SENTENCE = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""Its length limit, by the names of all versions."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One way to store a model's weights: in one file, or in shards that an index lists.

    Only `torch.load` in its safe mode may open pickles.
    """

    whole: str
    index: str
    suffix: str
    is_pickle: bool

    @property
    def shards(self) -> str:
        """A pattern for the names of the shards, as they are on the hub."""
        return f"{self.whole.removesuffix(self.suffix)}-*{self.suffix}"


SAFETENSORS = Layout(WEIGHTS, INDEX, ".safetensors", is_pickle=False)
PICKLES = Layout("pytorch_model.bin", "pytorch_model.bin.index.json", ".bin", is_pickle=True)

LAYOUTS = (SAFETENSORS, PICKLES)
"""The ways that regard reads, the first that a folder has being the one that counts."""

BESIDE = (
    *(TOKENIZER, *SETTINGS, *PARTS, "generation_config.json"),
    *("LICENSE", "LICENSE.txt", "LICENSE.md", "NOTICE", "USE_POLICY.md"),
    # what a sentence model adds: its length limit, its prompts, and what comes after the network
    *(MODULES, *SENTENCE, "config_sentence_transformers.json"),
)
"""What belongs to a model beside its config and weights: tokenizer, terms, how it is used."""


def network_folder(folder: Path) -> Path:
    """Where a model's config, weights and tokenizer lie: in its folder, or in the one inside that
    `modules.json` names first, as sentence-transformers before 2.0 wrote it (`0_Transformer`)."""
    try:
        inside = folder / str(read_objects(folder / MODULES)[0].get("path", ""))
    except (CheckpointError, IndexError):  # none, or one that those refuse who need what it says
        return folder
    return inside if inside.resolve().is_relative_to(folder.resolve()) else folder


def layout_of(folder: Path) -> Layout | None:
    """How a folder stores its weights, whole or not; None where it has none that regard reads."""
    for layout in LAYOUTS:
        if (folder / layout.whole).exists() or (folder / layout.index).exists():
            return layout
    return None


def read_index(folder: Path, layout: Layout = SAFETENSORS) -> dict[str, str]:
    """The shard of every tensor, as the index of a sharded checkpoint lists them.

    A shard is a file in the same folder. An index that names anything else is refused, so that a checkpoint
    from a stranger cannot make regard open a file elsewhere.
    """
    file = folder / layout.index
    shards = read_object(file).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        got = "nothing" if not shards else json_kind(shards)
        raise CheckpointError(f"{file}: 'weight_map' must be an object, from tensors to shards; got {got}")
    for name, shard in shards.items():
        if not isinstance(shard, str) or not _is_plain_shard_name(shard, layout.suffix):
            raise CheckpointError(
                f"{file}: the shard of {name!r} must be the name of a {layout.suffix} file in the same "
                f"folder; got {shard!r}"
            )
    return shards


def _is_plain_shard_name(shard: str, suffix: str) -> bool:
    forbidden = {"/", "\\", ":", "\0"}
    return shard.endswith(suffix) and not shard.startswith(".") and not forbidden & set(shard)


def holds_weights(folder: Path) -> bool:
    """Whether all weight files of a folder are there; none of them is opened but the index."""
    layout = layout_of(folder)
    if layout is None:
        return False
    if (folder / layout.whole).is_file():
        return True
    try:
        return all((folder / shard).is_file() for shard in set(read_index(folder, layout).values()))
    except CheckpointError:
        return False


def holds_model(folder: Path) -> bool:
    """Whether a folder has a config and all of its weight files."""
    folder = network_folder(folder)
    return (folder / CONFIG).is_file() and holds_weights(folder)


def holds_tokenizer(folder: Path) -> bool:
    """Whether a folder has a tokenizer, or what one is built from."""
    return (folder / TOKENIZER).is_file() or any(
        all((folder / file).is_file() for file in parts) for parts in VOCABULARIES
    )


_UNKNOWN = frozenset({"", "unknown"})


def licence_of(folder: str | PathLike[str]) -> str | None:
    """The licence that a model's card states, as it states it.

    The fields `license` and `license_name` are read. Where `license` is `other` and there is a name, it is
    the name that counts.

    Args:
        folder: a model's folder.

    Returns:
        `apache-2.0` or the like; several in a row with commas; None where there is no card, or it states
        none.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "README.md").write_text("---\\nlicense: apache-2.0\\n---\\n# A model")
    ...     licence_of(folder)
    'apache-2.0'
    """
    from huggingface_hub.repocard import metadata_load

    try:
        fields = metadata_load(Path(folder) / "README.md") or {}
    except Exception:  # no such file, no text, or no YAML, whose errors have no class to import from there
        return None
    licences, names = _words(fields.get("license")), _words(fields.get("license_name"))
    stated = names if [each.lower() for each in licences] == ["other"] and names else licences
    return ", ".join(stated) or None


def _words(value: object) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [each for each in values if isinstance(each, str) and each.lower() not in _UNKNOWN]
