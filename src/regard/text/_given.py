"""Texts that are cut into words already, and several texts in whatever holds them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Self

from regard.core.errors import InputError


class Words(str):
    """A text that is cut into words already: these with blanks between them. It can stand for any text.

    Its words are the given ones, and the tokenizer reads each by itself: the ids are those of transformers
    with `is_split_into_words=True`, and with `add_prefix_space=True` for tokenizers such as GPT-2's.

    Args:
        words: none of them blank.

    Attributes:
        spans: the start and the end of each word in the text.

    Raises:
        InputError: one is no text, or blank.

    Example:
        >>> text = Words(["New York", "lost", "."])
        >>> text, text.spans
        ('New York lost .', ((0, 8), (9, 13), (14, 15)))
    """

    spans: tuple[tuple[int, int], ...]

    def __new__(cls, words: Sequence[str]) -> Self:
        if isinstance(words, str):
            raise InputError(f"words must be a list of words; got the text {words!r:.80}.")
        for place, word in enumerate(words):
            if not isinstance(word, str) or not word.strip():
                raise InputError(f"words[{place}] must be a text that is not blank; got {word!r}.")
        made = super().__new__(cls, " ".join(words))
        ends = accumulate(words, lambda end, word: end + 1 + len(word), initial=-1)
        made.spans = tuple((end + 1, end + 1 + len(word)) for end, word in zip(ends, words, strict=False))
        return made

    def __getnewargs__(self) -> tuple[Any]:
        return (self.words,)

    @property
    def words(self) -> list[str]:
        """The words."""
        return [self[start:end] for start, end in self.spans]

    @classmethod
    def of(cls, value: Any) -> Any:
        """Words of a list, a tuple or an array of texts; any other value as it is."""
        listed = value.tolist() if hasattr(value, "tolist") else value
        return cls(listed) if isinstance(listed, list | tuple) and isinstance([*listed, 0][0], str) else value


def each_text(name: str, texts: object) -> Iterator[str]:
    """Several texts one by one, each a string or a list of words; InputError says which is neither."""
    got, axes = type(texts).__name__, getattr(texts, "shape", (0,))
    is_table = isinstance(texts, Mapping) or hasattr(texts, "columns")
    if is_table or len(axes) != 1:
        # Iterating over it would give its headings, or its rows.
        one = "table['text']" if is_table else f"array[:, 0] of an array of shape {axes}"
        raise InputError(f"{name} must be one column of texts; got {got}: give one, such as {one}.")
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise InputError(f"{name} must be several texts, such as a list; got {got}: write [text].")
    for place, given in enumerate(texts):
        try:
            text = Words.of(given)
        except InputError as error:
            raise InputError(f"{name}[{place}]: {error}") from error
        if not isinstance(text, str):
            shown, way_out = type(text).__name__, "turn it into one"
            if text is None or isinstance(text, float):
                shown, way_out = repr(text), "leave such rows out first, as series.dropna() does"
            raise InputError(f"{name}[{place}] must be a text, or a list of words; got {shown}: {way_out}.")
        yield text
