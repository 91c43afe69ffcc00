"""One text that a decoder wrote."""

from dataclasses import dataclass
from html import escape
from typing import Any


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
