"""The Hugging Face cache and the hub: a look into the first, a bounded question to the second, a download.

`huggingface_hub` is imported inside the functions, since most uses of regard never need it. Its own settings
(`HF_HOME`, `HF_HUB_CACHE`, `HF_HUB_OFFLINE`, `HF_ENDPOINT`, the token) hold.
"""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from regard.checkpoints._layout import BESIDE, CONFIG, PICKLES, SAFETENSORS, Layout, holds_model, layout_of
from regard.core.errors import CheckpointError
from regard.core.tokenizer_files import PARTS, TOKENIZER
from regard.core.wording import reason

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
    if not isinstance(config, str):
        return None
    folder = Path(config).parent
    return folder if holds_model(folder) else None


def cached_models() -> Iterator[tuple[str, Path]]:
    """Name and folder of every model in the local cache that could be loaded without network."""
    from huggingface_hub import constants

    for entry in Path(constants.HF_HUB_CACHE).glob("models--*"):
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
    folder = _fetch(name, (*_WANTED_FILES, *_files_of(SAFETENSORS)))
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
    outcome: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

    def run() -> None:
        try:
            ask()
        except Exception as error:
            outcome.put(error)
        else:
            outcome.put(None)

    threading.Thread(target=run, name="regard-hub-lookup", daemon=True).start()
    try:
        error = outcome.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
    if error is not None:
        raise error
