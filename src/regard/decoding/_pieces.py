"""New tokens as text: where it begins, where a stop cuts it, and how much of it no later token changes."""

import re
from collections.abc import Sequence

from regard.text import Tokenizer

_Ids = Sequence[int]

_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
"""A token that is a byte, in vocabularies that fall back to those; a run of them is read as a whole."""

_BROKEN = "\N{REPLACEMENT CHARACTER}"


class Pieces:
    """The text of tokens that follow a prompt.

    Args:
        tokenizer: of what is written.
        before: the tokens of the prompt; () where what is written begins a text of its own.
        stops: texts before which it ends.
        begun: tokens that were given as its beginning: part of it, but no stop is looked for in them.
    """

    def __init__(
        self, tokenizer: Tokenizer, before: _Ids, stops: Sequence[str] = (), begun: _Ids = ()
    ) -> None:
        self._tokenizer, self._stops = tokenizer, tuple(stops)
        # Read after a token of the prompt, a first word keeps its blank.
        plain = (id for id in reversed(before) if not tokenizer.is_special(id) and not self._is_byte(id))
        self._before = [id for id in [next(plain, None)] if id is not None]
        self._begun: list[int] = []
        self._skipped = len(self._read([]))
        self._begun = list(begun)
        self._given = len(self._read([])) - self._skipped

    def text(self, ids: Sequence[int]) -> str:
        """All of it, cut before the first stop."""
        text = self._read(ids)[self._skipped :]
        return text[: self._stop_in(text)]

    def has_stop(self, ids: Sequence[int]) -> bool:
        """Whether there is a stop in it."""
        return bool(self._stops) and self._stop_in(self._read(ids)[self._skipped :]) is not None

    def settled(self, ids: Sequence[int]) -> str:
        """What of it stays, whatever follows: no part of a character, nor of what may become a stop."""
        end = len(ids)
        while end and self._is_byte(ids[end - 1]):
            end -= 1
        text = self.text(ids[:end]).rstrip(_BROKEN)
        begun = (
            size for stop in self._stops for size in range(len(stop) - 1, 0, -1) if text.endswith(stop[:size])
        )
        return text[: len(text) - max(begun, default=0)]

    def _read(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode([*self._before, *self._begun, *ids], skip_special=True)

    def _stop_in(self, text: str) -> int | None:
        places = (text.find(stop, max(0, self._given - len(stop) + 1)) for stop in self._stops)
        return min((place for place in places if place >= 0), default=None)

    def _is_byte(self, id: int) -> bool:
        return _BYTE.fullmatch(self._tokenizer.piece_of(id) or "") is not None
