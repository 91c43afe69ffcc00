"""Tokens that stand for no text: their ids, the sets that families have, and what puts them around texts."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Final, Self

import tokenizers
from tokenizers import AddedToken, processors

from regard.core.errors import CheckpointError, InputError
from regard.text._settings import ROLES, Settings

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
    def of(cls, id_of: Callable[[str], int | None], roles: Roles) -> Self:
        """The ids that the vocabulary gives to the tokens with a role."""
        return cls(
            **{each.name: id_of(roles[each.name].content) for each in fields(cls) if each.name in roles}
        )


def special_ids(backend: tokenizers.Tokenizer, roles: Mapping[str, str]) -> SpecialIds:
    """The ids of the tokens that somebody gives a role; an unknown role or token is an InputError."""
    for role, token in roles.items():
        if role not in ROLES:
            raise InputError(f"roles must be of {', '.join(ROLES)}; got {role!r}.")
        if backend.token_to_id(token) is None:
            raise InputError(f"roles: {role} must be a token of the vocabulary; got {token!r}.")
    return SpecialIds(**{role: backend.token_to_id(token) for role, token in roles.items()})


def roles_of(settings: Settings, defaults: Mapping[str, str], *, lstrip: Iterable[str] = ()) -> Roles:
    """The token of each role, as stated, else as the family has it."""
    taking = tuple(lstrip)
    found = {}
    for role in ROLES:
        token = settings.role(role, defaults.get(role), lstrip=role in taking)
        if token is not None:
            found[role] = token
    return found


def add_special(backend: tokenizers.Tokenizer, settings: Settings, roles: Roles) -> None:
    """Adds the tokens that stand beside the vocabulary, each at the id that was stated."""
    for number, token in sorted(settings.added.items()):
        backend.add_tokens([token])
        got = backend.token_to_id(token.content)
        if got != number:
            raise CheckpointError(
                f"{settings.folder}: the added token {token.content!r} must have id {number}, but the "
                f"vocabulary gives it {got}: the two do not belong together; fetch both again"
            )
    known = {token.content for token in settings.added.values()}
    more = [token for token in (*roles.values(), *settings.extra()) if token.content not in known]
    for token in more:
        token.special = True
    backend.add_tokens(more)


def template(
    backend: tokenizers.Tokenizer, single: str, pair: str, settings: Settings
) -> processors.TemplateProcessing:
    """What is put around one text and around two, in the notation of `tokenizers` ("[CLS] $A [SEP]:1")."""
    names = {part.rsplit(":", 1)[0] if part[-2:] in (":0", ":1") else part for part in pair.split()}
    wanted = sorted(name for name in names if name not in ("$A", "$B"))
    ids = {name: backend.token_to_id(name) for name in wanted}
    for name, number in ids.items():
        if number is None:
            raise CheckpointError(
                f"{settings.folder}: the vocabulary has no {name!r}, which stands around every text; the "
                "files do not belong together"
            )
    # As lists: a string is cut at blanks, but not at the same ones.
    return processors.TemplateProcessing(
        single=single.split(), pair=pair.split(), special_tokens=list(ids.items())
    )


def around(prefix: Iterable[str], suffix: Iterable[str], *, apart: bool) -> tuple[str, str]:
    """The templates of `prefix` TEXT `suffix`; two texts follow each other, or each has its own (`apart`)."""
    head, tail = list(prefix), list(suffix)
    single = [*head, "$A", *tail]
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
        names = sorted({part.removesuffix(":1") for part in self.pair.split()} - {"$A", "$B"})
        return processors.TemplateProcessing(
            single=self.single.split(),
            pair=self.pair.split(),
            special_tokens=[(name, id_of(name)) for name in names],
        )


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
