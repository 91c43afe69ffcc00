"""The Hugging Face cache and the hub: a look into the first, a bounded question to the second, a download.

`huggingface_hub` is imported inside the functions, since most uses of regard never need it. Its own settings
(`HF_HOME`, `HF_HUB_CACHE`, `HF_HUB_OFFLINE`, `HF_ENDPOINT`, the token) hold.
"""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from regard.checkpoints.gguf import open_gguf
from regard.core.errors import CheckpointError
from regard.core.files import json_kind, plain_file, read_object, read_objects
from regard.core.tokenizer_files import PARTS, SETTINGS, TOKENIZER, VOCABULARIES
from regard.core.wording import reason

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
        # Only the first entry: the others are modules that come after the network.
        path = str(read_objects(folder / MODULES)[0].get("path", ""))
    except (CheckpointError, IndexError):  # none, or one that those refuse who need what it says
        return folder
    return inside(folder, path) or folder


def inside(folder: Path, path: str) -> Path | None:
    """What a path in one of a folder's files leads to; None where that is outside, or nowhere."""
    place = folder / path
    try:
        # Links are resolved on both sides: a link out of the folder counts as outside.
        stays = place.resolve().is_relative_to(folder.resolve())
        # Asked for its errors only, which exists() hides since Python 3.14: some paths can be resolved, and
        # not be looked at.
        with suppress(FileNotFoundError, NotADirectoryError):
            place.stat()
    except (OSError, RuntimeError, ValueError):  # too long, a loop of links, a NUL
        return None
    return place if stays else None


def layout_of(folder: Path) -> Layout | None:
    """How a folder stores its weights, whole or not; None where it has none that regard reads."""
    # In this order: safetensors beside a pickle count, and the pickle is not opened.
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
    # No folder, no drive, no NUL, and nothing that begins with a dot.
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
    # A tokenizer.json, or the files of one of the older kinds.
    return (folder / TOKENIZER).is_file() or any(
        all((folder / file).is_file() for file in parts) for parts in VOCABULARIES
    )


_UNKNOWN = frozenset({"", "unknown"})


def licence_of(folder: str | PathLike[str]) -> str | None:
    """The licence that a model's card states, or its GGUF file, as it stands there.

    The fields `license` and `license_name` are read. Where `license` is `other` and there is a name, it is
    the name that counts.

    Args:
        folder: a model's folder, or its GGUF file.

    Returns:
        `apache-2.0` or the like; several in a row with commas; None where there is no card, or it states
        none.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "README.md").write_text("---\\nlicense: apache-2.0\\n---\\n# A model")
    ...     licence_of(folder)
    'apache-2.0'
    """
    # Imported here: huggingface_hub takes long, and most uses never need it.
    from huggingface_hub.repocard import metadata_load

    try:
        if Path(folder).is_file():
            # GGUF spells the same fields with dots.
            metadata = open_gguf(folder).fields
            fields = {
                key: metadata.get(f"general.{key.replace('_', '.')}") for key in ("license", "license_name")
            }
        else:
            fields = metadata_load(plain_file(Path(folder) / "README.md")) or {}
    except Exception:  # no such file, no text, or no YAML, whose errors have no class to import from there
        return None
    licences, names = _words(fields.get("license")), _words(fields.get("license_name"))
    # `other` says only that there is a name.
    stated = names if [each.lower() for each in licences] == ["other"] and names else licences
    return ", ".join(stated) or None


def _words(value: object) -> list[str]:
    values = value if isinstance(value, list) else [value]
    # "unknown" says nothing; a licence that says nothing is none.
    return [each for each in values if isinstance(each, str) and each.lower() not in _UNKNOWN]


LOOKUP_SECONDS = 5.0
"""After so long without an answer the hub counts as out of reach."""

_WANTED_FILES = (
    *(CONFIG, "README.md", "[0-9]_*/*"),  # the folders of a sentence model's modules, such as 1_Pooling
    *(name for name in BESIDE if name not in PARTS),
)
"""What is fetched of every repository, beside its weights."""


class HubUnreachable(Exception):
    """The hub gave no answer; the message says why. Never leaves this package."""


class NotOnHub(Exception):
    """The hub answered that it will not give this model; the message says why. Never leaves this package."""


def is_repo_id(name: str) -> bool:
    """Whether a name could be a repository's: NAME or OWNER/NAME of letters, digits, `-`, `_` and `.`.

    >>> is_repo_id("openai-community/gpt2"), is_repo_id("a b")
    (True, False)
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return True


def cached_folder(name: str) -> Path | None:
    """The folder of a repository in the local cache, or None unless config and weights are all there."""
    from huggingface_hub import try_to_load_from_cache

    try:
        config = try_to_load_from_cache(name, CONFIG)
    except (OSError, ValueError):  # an entry that cannot be read, or whose reference is not a name
        return None
    # Not a text: the cache remembers that the hub has no such file, or knows nothing.
    if not isinstance(config, str):
        return None
    folder = Path(config).parent
    # A snapshot may hold the config only, as after a look at the model's page.
    return folder if holds_model(folder) else None


def cached_models() -> Iterator[tuple[str, Path]]:
    """Name and folder of every model in the local cache that could be loaded without network."""
    from huggingface_hub import constants

    for entry in Path(constants.HF_HUB_CACHE).glob("models--*"):
        # OWNER--NAME in the folder's name; two hyphens within a name would not be told apart.
        name = entry.name.removeprefix("models--").replace("--", "/")
        if is_repo_id(name) and (folder := cached_folder(name)) is not None:
            yield name, folder


def download(name: str) -> Path:
    """Fetch what regard reads of a repository into the local cache; a progress bar shows on stderr.

    The question whether the hub has the model is answered within `LOOKUP_SECONDS`; only then does a download
    begin, which takes as long as it takes.

    Pickles are fetched only where there are no safetensors, so never a second copy of the weights.
    """
    _ask_for_config(name)
    # Safetensors first; the two kinds of weights are never fetched both.
    folder = _fetch(name, (*_WANTED_FILES, *_files_of(SAFETENSORS)))
    # The parts of older tokenizers only where there is no tokenizer.json.
    more = [] if (folder / TOKENIZER).is_file() else list(PARTS)
    if layout_of(folder) is None:
        more += _files_of(PICKLES)
    if more:
        folder = _fetch(name, more)
    if not holds_model(folder):
        raise CheckpointError(
            f"{name!r} on the hub has no whole weights that regard reads ({SAFETENSORS.whole}, or "
            f"{PICKLES.whole}, or the index of either and its shards); convert it with transformers' "
            "`save_pretrained` and load that folder"
        )
    return folder


def _files_of(layout: Layout) -> tuple[str, ...]:
    return layout.whole, layout.index, layout.shards


def _fetch(name: str, patterns: Iterable[str]) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=list(patterns)))
    except Exception as error:  # network, disk and server errors share no base class across hub versions
        raise CheckpointError(
            f"the download of {name!r} from the hub broke off ({reason(error)}); run it again to resume"
        ) from error


def _ask_for_config(name: str) -> None:
    from huggingface_hub import constants, errors, get_hf_file_metadata, hf_hub_url

    # Asked before any request, since the user has said so.
    if constants.HF_HUB_OFFLINE:
        raise HubUnreachable("HF_HUB_OFFLINE is set")
    # one HEAD request: hf_hub_download would try again for half a minute
    url = hf_hub_url(name, CONFIG)
    try:
        _within(LOOKUP_SECONDS, lambda: get_hf_file_metadata(url, timeout=LOOKUP_SECONDS))
    except errors.GatedRepoError as error:
        raise NotOnHub(
            "the hub asks for its conditions to be accepted on the model's page, and for `hf auth login`"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise NotOnHub("the hub has no such model, or it is private (then `hf auth login`)") from error
    except errors.EntryNotFoundError as error:
        raise NotOnHub(f"the hub's repository of that name has no {CONFIG}") from error
    except Exception as error:  # as in `download`
        raise HubUnreachable(reason(error)) from error


def _within(seconds: float, ask: Callable[[], object]) -> None:
    """Run `ask` and raise what it raises, or TimeoutError when it has not come back in time.

    A timeout handed to the HTTP client does not cover a name look-up that hangs, so the question is asked in
    a daemon thread, which is left behind if need be.
    """
    # A queue hands the outcome over; the thread may go on after nobody waits any more.
    outcome: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

    def run() -> None:
        try:
            ask()
        except Exception as error:
            outcome.put(error)
        else:
            outcome.put(None)

    # A daemon does not keep the process alive.
    threading.Thread(target=run, name="regard-hub-lookup", daemon=True).start()
    try:
        error = outcome.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
    if error is not None:
        raise error
