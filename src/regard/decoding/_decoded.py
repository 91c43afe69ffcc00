"""One text that a decoder wrote: as tokens, and as the text of them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from regard.text import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """One text that a decoder wrote, as tokens.

    Args:
        token_ids: the new tokens, without the one that ended them.
        log_probabilities: log p of each given all before it, and of the end where there was one: the model's
            own, after `Rules.repetition_penalty`; 0 for a token that was forced. Temperature and filters
            decide what is chosen, not what is told here.
        score: what texts are ranked by: `log_probability`, divided by what a length counts for.
        ended: whether it came to an end or a stop, and not to the most tokens that it could have.
    """

    token_ids: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    score: float
    ended: bool

    @property
    def log_probability(self) -> float:
        """The sum of `log_probabilities`: log p of the text as a whole, its end included."""
        return sum(self.log_probabilities)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Written(Decoded):
    """One text that a model wrote: `str()` gives the text alone.

    Args:
        prompt: what it goes on from, or the source of a translation.
        text: what was written, without special tokens, and cut before a stop. After a prompt it begins with a
            blank where one belongs: prompt + text is the whole.
        token_ids, log_probabilities, score, ended: as in `Decoded`; of a text that a stop cut all the tokens,
            those of the stop included.

    Example:
        >>> Written(
        ...     prompt="A river", text=" bank", token_ids=(7,), log_probabilities=(-0.5, -1.5), score=-2.0,
        ...     ended=True,
        ... )
        Written(' bank', 1 token, log p -2.00, ended)
    """

    prompt: str
    text: str

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        tokens = f"{len(self.token_ids)} token{'s' * (len(self.token_ids) != 1)}"
        end = "ended" if self.ended else "cut at the limit"
        return f"Written({self.text!r}, {tokens}, log p {self.log_probability:.2f}, {end})"

    def _repr_html_(self) -> str:
        prompt, text = escape(self.prompt), escape(self.text)
        return (
            f'<div style="white-space:pre-wrap"><span style="opacity:.6">{prompt}</span><b>{text}</b></div>'
        )

    def to_json(self) -> dict[str, Any]:
        """Its fields as plain values."""
        return {
            "prompt": self.prompt,
            "text": self.text,
            "token_ids": list(self.token_ids),
            "log_probabilities": list(self.log_probabilities),
            "score": self.score,
            "ended": self.ended,
        }


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
