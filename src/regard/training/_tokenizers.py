"""The tokenizer of a run: the one that is given, the checkpoint's, or one that is learned from the data."""

import shutil
from collections.abc import Callable
from pathlib import Path

from regard.core.errors import InputError
from regard.core.wording import reason
from regard.models import load_checkpoint
from regard.text import Tokenizer, train_tokenizer, write_tokenizer
from regard.training._data import Side
from regard.training._settings import Settings, TokenizerSettings
from regard.training.tasks import Task


def make_tokenizer(
    settings: Settings, kind: type[Task], side: Side, target: Path, say: Callable[[str], None]
) -> None:
    """Put the tokenizer of a run into a folder, unless it is there.

    Args:
        settings: of the run.
        kind: the objective.
        side: the texts that it is learned from, where none is given.
        target: the folder.
        say: is told what is being done.

    Raises:
        InputError: the one that is given is none, or none can be learned.
    """
    if target.is_dir():
        return
    given, origin = settings.tokenizer, kind.origin(settings.start, settings.task)
    if given.path is not None:
        made = _read(Path(given.path), settings.family or kind.family)
    elif origin is not None:
        made = load_checkpoint(origin).require_tokenizer()
    else:
        made = _learned(given, kind, side, say)
    temporary = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    write_tokenizer(made, temporary, max_length=settings.batch.length)
    temporary.rename(target)


def _read(path: Path, family: str) -> Tokenizer:
    made = None
    if path.is_dir() or path.name == "tokenizer.json":
        made = Tokenizer.from_folder(path if path.is_dir() else path.parent, model_type=family)
    else:
        try:
            made = Tokenizer.from_str(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeError) as error:
            raise InputError(f"tokenizer.path must be a tokenizer.json; {path}: {reason(error)}.") from error
    if made is None:
        raise InputError(f"tokenizer.path must be a tokenizer.json or a folder with one; got {path}.")
    return made


def _learned(given: TokenizerSettings, kind: type[Task], side: Side, say: Callable[[str], None]) -> Tokenizer:
    sort = given.kind or kind.tokenizer_kind
    say(f"learning the tokenizer from the texts to learn from: {sort}")
    return train_tokenizer(
        (text for values, _ in side for text in kind.texts_of(values) if isinstance(text, str)),
        kind=sort,
        size=given.size,
        lowercase=given.lowercase,
        marks=kind.marks,
        # A character that only other texts have must not end a run.
        special=("[UNK]",) if sort == "characters" and kind.marks is None else (),
    )
