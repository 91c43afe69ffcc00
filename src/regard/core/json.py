"""JSON objects, read strictly: what the standard parser lets pass in silence is an error here."""

import json
from pathlib import Path

from regard.core.errors import CheckpointError
from regard.core.wording import reason


def read_object(file: Path) -> dict[str, object]:
    """The JSON object in a file; a CheckpointError where there is no file with one strict JSON object."""
    return parse_object(_bytes(file), str(file))


def read_objects(file: Path) -> list[dict[str, object]]:
    """The list of JSON objects in a file, such as `modules.json`; a CheckpointError where there is none."""
    value = _parse(_bytes(file), str(file))
    if not isinstance(value, list):
        raise CheckpointError(f"{file}: the JSON must be a list; got {json_kind(value)}")
    for number, item in enumerate(value):
        if not isinstance(item, dict):
            raise CheckpointError(
                f"{file}: the JSON must be a list of objects; got {json_kind(item)} at {number}"
            )
    return value


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        raise CheckpointError(f"{file}: no such file; a model folder needs it") from None
    except OSError as error:
        raise CheckpointError(f"{file}: cannot be read ({reason(error)})") from error


def parse_object(data: bytes, where: str) -> dict[str, object]:
    """The JSON object in `data`; `where` names its origin in errors.

    A key that occurs twice is an error, because parsers disagree about which of the two counts, and so are
    `NaN` and `Infinity`, which are not JSON.

    >>> parse_object(b'{"hidden_size": 384}', "config.json")
    {'hidden_size': 384}
    >>> parse_object(b'{"a": 1, "a": 2}', "config.json")
    Traceback (most recent call last):
    regard.core.errors.CheckpointError: config.json: not valid JSON (the key 'a' occurs twice)
    """
    value = _parse(data, where)
    if not isinstance(value, dict):
        raise CheckpointError(f"{where}: the JSON must be an object; got {json_kind(value)}")
    return value


def _parse(data: bytes, where: str) -> object:
    try:
        return json.loads(
            data.decode("utf-8"), object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant
        )
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{where}: not valid UTF-8 ({reason(error)})") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{where}: not valid JSON ({reason(error)})") from error


def json_kind(value: object) -> str:
    """What JSON calls a value: `null`, `bool`, `int`, `float`, `string`, `list` or `object`.

    >>> json_kind(True), json_kind(1), json_kind(None)
    ('bool', 'int', 'null')
    """
    names: dict[type, str] = {bool: "bool", int: "int", float: "float", str: "string", list: "list"}
    return "null" if value is None else names.get(type(value), "object")


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    seen: dict[str, object] = {}
    for key, value in pairs:
        if key in seen:
            raise ValueError(f"the key {key!r} occurs twice")
        seen[key] = value
    return seen


def _refuse_constant(constant: str) -> object:
    raise ValueError(f"{constant} is not a JSON number")
