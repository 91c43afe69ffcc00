"""What stands beside a vocabulary: the family's settings, added tokens, and what is put around texts."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import tokenizers
from tokenizers import AddedToken, processors

from regard.core.arguments import one_of
from regard.core.errors import CheckpointError, InputError
from regard.core.files import read_object

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
        # "BertTokenizerFast" reads the same files as "BertTokenizer".
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
        # 2^20: more would be damage, and would be made in memory.
        if not 0 <= number < 2**20:
            raise self.error(name, "a number of tokens", value)
        return number

    def _checked(self, name: str, value: object, kind: type[_T], wanted: str) -> _T:
        # `type() is`: True is an int to isinstance.
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
        tokens = []
        # transformers has renamed the setting; both may stand in files.
        for name in ("additional_special_tokens", "extra_special_tokens"):
            value = self.fields.get(name) or []
            # A dict names them; the names do not matter here.
            for entry in value.values() if isinstance(value, dict) else value:
                token = _token(entry)
                if token is None:
                    raise self.error(name, "a list of tokens", value)
                tokens.append(token)
        return tokens

    def error(self, name: str, wanted: str, value: object) -> CheckpointError:
        """The error of a setting that is not what it should be."""
        shortened = " ".join(repr(value).split())[:60]
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
    # The newer form has all added tokens by id, with how each is found.
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
        # Older files say what is special by the place where a token stands.
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
    # A plain string says nothing of how it is found: as special tokens are by default.
    if isinstance(value, str) and value:
        return AddedToken(value, special=True, normalized=False, lstrip=lstrip)
    if not isinstance(value, dict) or not isinstance(value.get("content"), str) or not value["content"]:
        return None
    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    ways = {name: value[name] for name in names if isinstance(value.get(name), bool)}
    # In special_tokens_map.json only the place says that it is special.
    return AddedToken(value["content"], **{"special": True, "normalized": False} | ways)


Roles = Mapping[str, AddedToken]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecialIds:
    """The ids of tokens with a role; None where the tokenizer's files name none.

    Attributes:
        bos: Begins a text.
        eos: Ends a text.
        unk: Stands for what the vocabulary cannot spell.
        sep: Stands between two texts.
        pad: Fills up a batch.
        cls: The token whose embedding stands for the text.
        mask: Stands for a token that is to be predicted.

    Example:
        >>> from regard.text import SpecialIds
        >>> SpecialIds(cls=101, sep=102).mask is None
        True
    """

    bos: int | None = None
    eos: int | None = None
    unk: int | None = None
    sep: int | None = None
    pad: int | None = None
    cls: int | None = None
    mask: int | None = None

    @classmethod
    def from_roles(cls, id_of: Callable[[str], int | None], roles: Roles) -> Self:
        """The ids that the vocabulary gives to the tokens with a role."""
        return cls(
            **{each.name: id_of(roles[each.name].content) for each in fields(cls) if each.name in roles}
        )


def special_ids(backend: tokenizers.Tokenizer, roles: Mapping[str, str]) -> SpecialIds:
    """The ids of the tokens that somebody gives a role; an unknown role or token is an InputError."""
    for role, token in roles.items():
        one_of("roles", role, ROLES)
        if backend.token_to_id(token) is None:
            raise InputError(f"roles: {role} must be a token of the vocabulary; got {token!r}.")
    return SpecialIds(**{role: backend.token_to_id(token) for role, token in roles.items()})


def roles_of(settings: Settings, defaults: Mapping[str, str], *, lstrip: Iterable[str] = ()) -> Roles:
    """The token of each role, as stated, else as the family has it."""
    taking = tuple(lstrip)
    roles = {}
    for role in ROLES:
        token = settings.role(role, defaults.get(role), lstrip=role in taking)
        if token is not None:
            roles[role] = token
    return roles


def add_special(backend: tokenizers.Tokenizer, settings: Settings, roles: Roles) -> None:
    """Adds the tokens that stand beside the vocabulary, each at the id that was stated."""
    # In the order of ids, since the library numbers them as they come.
    for number, token in sorted(settings.added.items()):
        backend.add_tokens([token])
        got = backend.token_to_id(token.content)
        if got != number:
            raise CheckpointError(
                f"{settings.folder}: the added token {token.content!r} must have id {number}, but the "
                f"vocabulary gives it {got}: the two do not belong together; fetch both again"
            )
    known = {token.content for token in settings.added.values()}
    # Special tokens without a stated id: those that the vocabulary has keep theirs.
    more = [token for token in (*roles.values(), *settings.extra()) if token.content not in known]
    for token in more:
        token.special = True
    backend.add_tokens(more)


def template(
    backend: tokenizers.Tokenizer, single: str, pair: str, settings: Settings
) -> processors.TemplateProcessing:
    """What is put around one text and around two, in the notation of `tokenizers` ("[CLS] $A [SEP]:1")."""
    # The template of a pair has every token that a single text has.
    ids = {name: backend.token_to_id(name) for name in _special_in(pair)}
    for name, number in ids.items():
        if number is None:
            raise CheckpointError(
                f"{settings.folder}: the vocabulary has no {name!r}, which stands around every text; the "
                "files do not belong together"
            )
    return _processing(single, pair, ids)


def _special_in(pair: str) -> list[str]:
    """The names of the special tokens in a template."""
    return sorted({part.removesuffix(":0").removesuffix(":1") for part in pair.split()} - {"$A", "$B"})


def _processing(single: str, pair: str, ids: Mapping[str, Any]) -> processors.TemplateProcessing:
    # As lists: a string is cut at blanks, but not at the same ones.
    return processors.TemplateProcessing(
        single=single.split(), pair=pair.split(), special_tokens=list(ids.items())
    )


def around(prefix: Iterable[str], suffix: Iterable[str], *, apart: bool) -> tuple[str, str]:
    """The templates of `prefix` TEXT `suffix`; two texts follow each other, or each has its own (`apart`)."""
    head, tail = list(prefix), list(suffix)
    single = [*head, "$A", *tail]
    # ":1" gives the second text its type.
    second = [f"{part}:1" for part in (*head, "$B", *tail)]
    pair = [*single, *second] if apart else [*head, "$A", "$B", *tail]
    return " ".join(single), " ".join(pair)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Special tokens by role, in the order of their ids, and what stands around one text and around two."""

    roles: Mapping[str, str]
    single: str | None = None
    pair: str | None = None

    def around(self, id_of: Callable[[str], int | None]) -> processors.TemplateProcessing | None:
        """What puts them around texts."""
        if self.single is None or self.pair is None:
            return None
        return _processing(self.single, self.pair, {name: id_of(name) for name in _special_in(self.pair)})


MARKS: Final = {
    "gpt2": Marks(roles={"bos": "<|endoftext|>", "eos": "<|endoftext|>"}),
    "bert": Marks(
        roles={"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"},
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
    ),
    "bart": Marks(
        roles={
            "bos": "<s>",
            "pad": "<pad>",
            "eos": "</s>",
            "unk": "<unk>",
            "mask": "<mask>",
            "cls": "<s>",
            "sep": "</s>",
        },
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
    ),
    "t5": Marks(
        roles={"pad": "<pad>", "eos": "</s>", "unk": "<unk>"}, single="$A </s>", pair="$A </s> $B </s>"
    ),
    "none": Marks(roles={}),
}
"""The special tokens of each family, with the ids that it gives them by default."""
