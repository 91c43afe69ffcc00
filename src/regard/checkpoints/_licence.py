"""The licence that a model's card states, in the YAML at the top of its README.md."""

from os import PathLike
from pathlib import Path

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
