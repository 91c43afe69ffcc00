"""What stands beside a vocabulary: the family's settings and the tokens that were added to it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from tokenizers import AddedToken

from regard.core.errors import CheckpointError
from regard.core.json import read_object

_T = TypeVar("_T", bool, str, int)

ROLES: Final = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")

# Classes of transformers that say nothing of how a vocabulary is read.
_ANY_CLASS: Final = ("", "PreTrainedTokenizer", "TokenizersBackend", "PythonBackend", "SentencePieceBackend")


@dataclass(frozen=True, slots=True)
class Settings:
    """`tokenizer_config.json`, with what older folders keep in `special_tokens_map.json` and
    `added_tokens.json`, and the class that `config.json` names.

    Attributes:
        folder: Where they were read.
        fields: The settings by name.
        added: The tokens that stand beside the vocabulary, by id.
    """

    folder: Path
    fields: Mapping[str, Any]
    added: Mapping[int, AddedToken]

    @property
    def class_name(self) -> str | None:
        """The class of transformers that reads the files, without "Fast"; None where none is named."""
        name = self.text("tokenizer_class", "").removesuffix("Fast")
        return None if name in _ANY_CLASS else name

    def flag(self, name: str, default: bool) -> bool:
        """A setting that is true or false; null is the default."""
        value = self.fields.get(name, default)
        return default if value is None else self._checked(name, value, bool, "true or false")

    def text(self, name: str, default: str) -> str:
        """A setting that is a string; null is the default."""
        value = self.fields.get(name, default)
        return default if value is None else self._checked(name, value, str, "a string")

    def number(self, name: str, default: int) -> int:
        """A setting that is a count; null is the default."""
        value = self.fields.get(name)
        number = default if value is None else self._checked(name, value, int, "a number of tokens")
        if not 0 <= number < 2**20:
            raise self.error(name, "a number of tokens", value)
        return number

    def _checked(self, name: str, value: object, kind: type[_T], wanted: str) -> _T:
        if type(value) is not kind:
            raise self.error(name, wanted, value)
        return value

    def role(self, role: str, default: str | None, *, lstrip: bool = False) -> AddedToken | None:
        """The token with a role ("mask"), with the way in which it is found in a text.

        Args:
            role: One of `ROLES`.
            default: What the family uses where nothing is stated; None for no token.
            lstrip: Whether the family's token takes the blank before it.
        """
        name = f"{role}_token"
        value = self.fields.get(name, default)
        if value is None:
            return None
        token = _token(value, lstrip=lstrip)
        if token is None:
            raise self.error(name, "a token", value)
        # What was added says more than the plain name does.
        return next((each for each in self.added.values() if each.content == token.content), token)

    def extra(self) -> list[AddedToken]:
        """Special tokens without a role."""
        found = []
        for name in ("additional_special_tokens", "extra_special_tokens"):
            value = self.fields.get(name) or []
            for each in value.values() if isinstance(value, dict) else value:
                token = _token(each)
                if token is None:
                    raise self.error(name, "a list of tokens", value)
                found.append(token)
        return found

    def error(self, name: str, wanted: str, value: object) -> CheckpointError:
        """The error of a setting that is not what it should be."""
        shortened = repr(value)[:60]
        return CheckpointError(
            f"{self.folder}: the tokenizer's setting {name} must be {wanted}; got {shortened}"
        )


def read_settings(folder: Path) -> Settings:
    """The settings of a folder; none of the files has to be there.

    `added_tokens_decoder` in `tokenizer_config.json` makes the two older files void, as in transformers.
    """
    fields = dict(_read(folder / "tokenizer_config.json"))
    if fields.get("tokenizer_class") is None:
        fields["tokenizer_class"] = _read(folder / "config.json").get("tokenizer_class")
    added: dict[int, AddedToken] = {}
    if "added_tokens_decoder" in fields:
        path = folder / "tokenizer_config.json"
        stated = fields["added_tokens_decoder"]
        for key, value in stated.items() if isinstance(stated, dict) else [("", stated)]:
            token = _token(value)
            if token is None or not key.isdecimal():
                raise CheckpointError(f"{path}: added_tokens_decoder must give a token for each id")
            added[int(key)] = token
    else:
        fields.update(_read(folder / "special_tokens_map.json"))
        path = folder / "added_tokens.json"
        special = {token.content for role in ROLES if (token := _token(fields.get(f"{role}_token")))}
        special.update(token.content for token in Settings(folder, fields, {}).extra())
        for content, number in _read(path).items():
            if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                raise CheckpointError(f"{path}: the id of {content!r} must be a number; got {number!r}")
            added[number] = AddedToken(content, special=content in special, normalized=content not in special)
    return Settings(folder, fields, added)


def _read(file: Path) -> dict[str, Any]:
    """The JSON object in a file; an empty one where there is no file."""
    return read_object(file) if file.exists() else {}


def _token(value: object, *, lstrip: bool = False) -> AddedToken | None:
    """A token as JSON has it: a string, or an object with the ways in which it is found."""
    if isinstance(value, str) and value:
        return AddedToken(value, special=True, normalized=False, lstrip=lstrip)
    if not isinstance(value, dict) or not isinstance(value.get("content"), str) or not value["content"]:
        return None
    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    ways = {name: value[name] for name in names if isinstance(value.get(name), bool)}
    # In special_tokens_map.json only the place says that it is special.
    return AddedToken(value["content"], **{"special": True, "normalized": False} | ways)
