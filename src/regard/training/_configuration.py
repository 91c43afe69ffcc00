"""Settings from a file and from the command line; every key is known, or refused with the near ones."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Any

from regard.core.arguments import built, path_of
from regard.core.errors import InputError
from regard.models import load_checkpoint
from regard.training._settings import WORD_OBJECTIVES, BatchSettings, Settings, WordSettings

AnySettings = Settings | WordSettings


def read_settings(
    objective: str, *, file: str | PathLike[str] | None = None, changes: Sequence[str] = (), **given: Any
) -> Settings:
    """Settings from a TOML or JSON file, then from changes such as "optimiser.lr=1e-3", then from `given`.

    Args:
        objective: what is trained for.
        file: its keys are the fields of `Settings`, its tables their sections.
        changes: "a.b=c"; c is read as TOML, or else taken as text.
        given: fields as in a file; None leaves one as it is, and inside a section it is the value None.

    Where nothing gives `batch.length`, it is at most what the checkpoint to go on from takes.

    Raises:
        InputError: a file that cannot be read, an unknown key (near ones are named), a value of another type.

    Example:
        >>> from regard.training import read_settings
        >>> read_settings("clm", changes=["optimiser.lr=0.001", "batch.rows=12"]).optimiser.lr
        0.001
        >>> read_settings("clm", changes=["optimiser.learning=0.001"])
        Traceback (most recent call last):
        regard.core.errors.InputError: optimiser.learning is not a setting; ...
    """
    # Least to most: the file, the changes, the arguments.
    values = _given(objective, file, changes, given)
    settings = built("", values, Settings)
    if "length" in values.get("batch", {}):
        return settings
    # Nobody asked for the default: a checkpoint of shorter texts gets those that it takes.
    origin = settings.start or settings.task.get("teacher")
    return settings if origin is None else replace(settings, batch=_fitting(settings.batch, str(origin)))


def read_word_settings(
    objective: str, *, file: str | PathLike[str] | None = None, changes: Sequence[str] = (), **given: Any
) -> WordSettings:
    """The same for word2vec and FastText: the keys are the fields of `WordSettings`.

    Raises:
        InputError: as `read_settings`.

    Example:
        >>> from regard.training import read_word_settings
        >>> read_word_settings("fasttext", changes=["ngrams.longest=5"]).ngrams.longest
        5
    """
    return built("", _given(objective, file, changes, given), WordSettings)


def _fitting(batch: BatchSettings, checkpoint: str) -> BatchSettings:
    # Its tables of positions may be short.
    network = load_checkpoint(checkpoint).network
    limits = [limit for kind in network.prefixes if (limit := network.limit(kind)) is not None]
    return replace(batch, length=min([batch.length, *limits]))


def _given(
    objective: str, file: str | PathLike[str] | None, changes: Sequence[str], given: Mapping[str, Any]
) -> dict[str, Any]:
    values: dict[str, Any] = {} if file is None else _read(path_of("file", file))
    for change in changes:
        # optimiser.lr=1e-3 names a key in a section.
        key, equals, text = change.partition("=")
        if not equals:
            raise InputError(f"set must be KEY=VALUE, such as optimiser.lr=0.001; got {change!r}.")
        _put(values, key.strip().split("."), _value(text.strip()), change)
    # A file of another objective has other keys.
    if values.get("objective", objective) != objective:
        raise InputError(f"objective must be {objective!r}; the settings say {values['objective']!r}.")
    # None is "not given".
    _merge(
        values, {name: value for name, value in given.items() if value is not None} | {"objective": objective}
    )
    return values


def type_of(objective: str) -> type[AnySettings]:
    """Which kind of settings an objective has."""
    return WordSettings if objective in WORD_OBJECTIVES else Settings


def as_mapping(settings: AnySettings) -> dict[str, Any]:
    """Settings as nested mappings of plain values, as JSON takes them.

    Example:
        >>> as_mapping(Settings(objective="mlm", keep=3))["keep"]
        3
    """
    return json.loads(json.dumps(asdict(settings)))  # type: ignore[no-any-return]


def as_toml(settings: AnySettings) -> str:
    """Settings as a file that `read_settings` reads; a default of None is a comment, another None is "none".

    Example:
        >>> print(as_toml(Settings(objective="clm", steps=20)).split("[batch]")[1].split("[")[0].strip())
        # tokens =
        rows = 32
        length = 128
        # form =
        accumulate = 1
    """
    values = as_mapping(settings)
    # TOML wants plain keys before sections.
    plain = {name: value for name, value in values.items() if not isinstance(value, dict)}
    tables = [
        f"[{name}]\n{_lines(table, getattr(settings, name))}"
        for name, table in values.items()
        if isinstance(table, dict)
    ]
    return "\n".join([_lines(plain, settings), *tables])


def _lines(values: Mapping[str, Any], section: Any) -> str:
    # A dataclass has its defaults as attributes; a table of `model` or `task` has none.
    return "".join(
        f"# {name} =\n"
        if value is None and getattr(type(section), name, None) is None
        else f"{name} = {_toml('none' if value is None else value)}\n"
        for name, value in values.items()
    )


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        inside = ", ".join(f"{name} = {_toml(each)}" for name, each in value.items() if each is not None)
        return f"{{{inside}}}"
    # JSON's texts, numbers, truth values and lists are TOML's too.
    return json.dumps(value)


def _read(file: Path) -> dict[str, Any]:
    try:
        # JSON is what a run writes, TOML what people do.
        text = file.read_text(encoding="utf-8")
        values = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise InputError(f"config must be a file that can be read; {file}: {error.strerror}.") from error
    except ValueError as error:  # TOML's, JSON's and Unicode's errors are ValueErrors
        raise InputError(f"config must be TOML, or JSON in a .json file; {file}: {error}.") from error
    if not isinstance(values, dict):
        raise InputError(f"config must hold a table of settings; {file} holds a {type(values).__name__}.")
    return values


def _value(text: str) -> Any:
    """What a change sets: a value of TOML, or else the text itself."""
    if text in ("none", "None", "null"):  # TOML has no word for it
        return None
    try:
        # As in the file: numbers, lists and quoted texts.
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _put(values: dict[str, Any], path: Sequence[str], value: Any, change: str) -> None:
    *above, last = path
    for depth, name in enumerate(above, 1):
        # Sections are made as they are named.
        values = values.setdefault(name, {})
        if not isinstance(values, dict):
            raise InputError(
                f"set must name a setting in a section: {'.'.join(above[:depth])} is {values!r} already, and "
                f"has no settings of its own; got {change!r}."
            )
    values[last] = value


def _merge(values: dict[str, Any], given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        # Section by section, so that a change of one key leaves the others.
        if isinstance(value, Mapping) and isinstance(values.setdefault(name, {}), dict):
            _merge(values[name], value)
        else:
            values[name] = value
