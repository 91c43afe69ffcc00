"""The licence that a model's card states, read from the few lines of YAML at the top of its README.md."""

import re
from os import PathLike
from pathlib import Path

_CARD = "README.md"
_READ_AT_MOST = 65536
_FENCE = re.compile(r"---[ \t]*")
_KEY = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*)[ \t]*:(?:[ \t]+(.*))?")
_ITEM = re.compile(r"[ \t]*-[ \t]+(.*)")
_PLAIN = re.compile(r"[^\s,\[\]{}#&*!|>'\"%@`:](?:[^\[\]{}#:\n]|:(?=\S)|(?<=\S)#)*")
_UNKNOWN = frozenset({"", "~", "null", "unknown"})


def licence_of(folder: str | PathLike[str]) -> str | None:
    """The licence that a model's card states, as it states it.

    Cards of the hub begin with a block of YAML between two lines `---`. Of YAML only this is read: the fields
    `license` and `license_name` at the left margin, with one word or quoted text, or a list of those. Where
    `license` is `other` and there is a name, it is the name that counts.

    Args:
        folder: a model's folder.

    Returns:
        `apache-2.0` or the like; several in a row with commas; None where there is no card, or it states
        none, or not in this form.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "README.md").write_text("---\\nlicense: apache-2.0\\n---\\n# A model")
    ...     licence_of(folder)
    'apache-2.0'
    """
    try:
        with (Path(folder) / _CARD).open("rb") as stream:
            text = stream.read(_READ_AT_MOST).decode("utf-8-sig", errors="replace")
    except OSError:
        return None
    fields = _front_matter(text.splitlines())
    licence, name = fields.get("license", []), fields.get("license_name", [])
    stated = name if [each.lower() for each in licence] == ["other"] and name else licence
    return ", ".join(stated) or None


def _front_matter(lines: list[str]) -> dict[str, list[str]]:
    """The values of the two fields, as lists; nothing where the block is missing or has no end."""
    if not lines or not _FENCE.fullmatch(lines[0]):
        return {}
    end = next((number for number, line in enumerate(lines[1:], 1) if _FENCE.fullmatch(line)), None)
    if end is None:
        return {}
    fields: dict[str, list[str]] = {}
    open_list: list[str] = []
    for line in lines[1:end]:
        if (key := _KEY.fullmatch(line)) is not None:
            value = (key[2] or "").strip()
            inside = value[1:-1].split(",") if value.startswith("[") and value.endswith("]") else [value]
            open_list = [] if _without_comment(value) else fields.setdefault(key[1], [])
            fields[key[1]] = open_list if not _without_comment(value) else _scalars(inside)
        elif (item := _ITEM.fullmatch(line)) is not None:
            open_list += _scalars([item[1]])
        elif line.strip() and not line.lstrip().startswith("#"):
            open_list = []  # something of another kind: what follows belongs to it
    return fields


def _scalars(texts: list[str]) -> list[str]:
    read = (_scalar(_without_comment(text)) for text in texts)
    return [value for value in read if value is not None and value.lower() not in _UNKNOWN]


def _without_comment(text: str) -> str:
    text = text.strip()
    quote = text[:1] if text[:1] in ("'", '"') else None
    end = text.find(quote, 1) + 1 if quote else 0
    comment = re.search(r"(?:^|\s)#", text[end:])
    return (text[:end] + text[end:][: comment.start()] if comment else text).strip()


def _scalar(text: str) -> str | None:
    """A plain word or a quoted text; None for what needs more of YAML."""
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        inside = text[1:-1]
        return inside if text[0] not in inside and "\\" not in inside else None
    return text if _PLAIN.fullmatch(text) else None
