"""A text with its words, as far as a file says which they are."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a text: where it is, and what the corpus says of it; "" where it says nothing."""

    start: int
    stop: int
    lemma: str = ""
    pos: str = ""


@dataclass(frozen=True, slots=True)
class Tagged:
    """A text of a file, with what the file knows of it.

    Attributes:
        body: the text.
        words: those that it has, in order; None where the corpus does not say.
        place: where it stands in its source, as "line 7".
        date: as the corpus has it, None where it has none.
        meta: whatever else is known of it, by name.
    """

    body: str
    words: list[Word] | None
    place: str
    date: str | None = None
    meta: dict[str, Any] = field(default_factory=dict)
