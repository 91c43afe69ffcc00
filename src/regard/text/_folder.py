"""From the files of a model's folder to a tokenizer of the `tokenizers` library."""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import tokenizers

from regard.core.errors import CheckpointError
from regard.core.tokenizer_files import MARIAN, SENTENCEPIECE, TOKENIZER, VOCABULARIES
from regard.core.wording import joined
from regard.text._chat import read_template
from regard.text._library import BYTE_PAIRS, WORD_PIECES, read_backend
from regard.text._sentencepiece import PIECES, Renumbered, build_marian
from regard.text._special import Roles, Settings, SpecialIds, read_settings, roles_of

# Names of transformers whose files are read like those of another class.
_OTHER_NAMES: Final = {"MT5Tokenizer": "T5Tokenizer"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A tokenizer from files.

    Attributes:
        path: The file that it was built from, for messages.
        backend: For texts.
        target: For the texts that a decoder is to give; None where they are written like any other.
        special: The ids of its tokens with a role.
        end_ids: Those that end what a decoder writes; () for `eos` alone.
        chat_template: How messages become a text; None where the file does not say.
    """

    path: Path
    backend: tokenizers.Tokenizer | Renumbered
    target: tokenizers.Tokenizer | Renumbered | None
    special: SpecialIds
    end_ids: tuple[int, ...] = ()
    chat_template: str | None = None


def build(folder: Path, tokenizer_class: str) -> Built | None:
    """The tokenizer of a folder without a `tokenizer.json`; None where it has no file of one.

    Raises:
        CheckpointError: Files are damaged, incomplete, or of a kind that is not read.
        MissingExtraError: A SentencePiece model, and its libraries are not installed.
    """
    # By the first file of each kind; others of that kind come with it.
    vocab_files = [files[0] for files in VOCABULARIES if (folder / files[0]).is_file()]
    if not vocab_files:
        return None
    settings = read_settings(folder)
    name = settings.class_name or tokenizer_class
    # The settings name the class; else the model's family does.
    name = _OTHER_NAMES.get(name, name)
    if name in WORD_PIECES and "vocab.txt" in vocab_files:
        path = folder / "vocab.txt"
        backend, roles = WORD_PIECES[name].build(path, settings)
        return _built(path, backend, None, roles)
    if name in BYTE_PAIRS and "vocab.json" in vocab_files:
        path = folder / "vocab.json"
        if not (folder / "merges.txt").is_file():
            raise CheckpointError(
                f"{folder} has vocab.json, but not merges.txt, which belongs to it: add the file"
            )
        backend, roles = BYTE_PAIRS[name].build(path, settings)
        return _built(path, backend, None, roles)
    if name == "MarianTokenizer" and MARIAN[0] in vocab_files:
        # Marian has two models: source and target texts are cut by different ones.
        source, roles = build_marian(folder, settings, target=False)
        target, _ = build_marian(folder, settings, target=True)
        return _built(folder / MARIAN[0], source, target, roles)
    models = [each for each in vocab_files if each in SENTENCEPIECE]
    if name in PIECES and models:
        path = folder / models[0]
        backend, roles = PIECES[name].build(path, settings, name)
        return _built(path, backend, _of_target(backend, settings, name, roles), roles)
    raise CheckpointError(
        f"{folder} has {', '.join(vocab_files)}, from which no {name or 'tokenizer'} is built: add its "
        "tokenizer.json (transformers writes it: AutoTokenizer.from_pretrained(…).save_pretrained(…))"
    )


def complete(path: Path, tokenizer_class: str) -> Built:
    """A `tokenizer.json`, with what the files beside it say: roles, and languages, which it does not have."""
    backend, settings = read_backend(path), read_settings(path.parent)
    roles = roles_of(settings, {})
    name = settings.class_name or tokenizer_class
    target = None
    family = PIECES.get(name)
    # Languages are in tokenizer.json only as tokens: which one is put around texts, the settings say.
    if family is not None and family.languages and backend.token_to_id(family.language(settings)) is not None:
        roles = roles_of(settings, family.defaults)
        family.put_around(backend, settings, roles, target=False)
        target = _of_target(backend, settings, name, roles)
    return _built(path, backend, target, roles)


def doubt(folder: Path, tokenizer_class: str) -> tuple[str, ...]:
    """What the files of a model's tokenizer leave open, and how they were read, in words."""
    path, settings = folder / "vocab.txt", read_settings(folder)
    is_read = (settings.class_name or tokenizer_class) in WORD_PIECES and path.is_file()
    # tokenizer.json, or a setting, says it: no doubt.
    if not is_read or (folder / TOKENIZER).exists() or settings.fields.get("do_lower_case") is not None:
        return ()
    pieces = path.read_text(encoding="utf-8", errors="ignore").splitlines()
    # Special tokens such as [CLS] and signs do not count as capitals.
    capitals = joined([each for each in pieces if each != each.lower() and each[:1] not in "[<"], 3)
    said = f"vocab.txt has capitals ({capitals}), but texts are put into lower case, as no file says"
    way = 'otherwise; for a cased model write {"do_lower_case": false} into tokenizer_config.json'
    return (f"{said} {way}",) if capitals else ()


def _of_target(
    backend: tokenizers.Tokenizer, settings: Settings, name: str, roles: Roles
) -> tokenizers.Tokenizer | None:
    if not PIECES[name].languages:
        return None
    # A copy: a post-processor belongs to one tokenizer.
    target = copy.deepcopy(backend)
    PIECES[name].put_around(target, settings, roles, target=True)
    return target


def _built(
    path: Path,
    backend: tokenizers.Tokenizer | Renumbered,
    target: tokenizers.Tokenizer | Renumbered | None,
    roles: Roles,
) -> Built:
    special, template = SpecialIds.from_roles(backend.token_to_id, roles), read_template(path.parent)
    return Built(path=path, backend=backend, target=target, special=special, chat_template=template)
