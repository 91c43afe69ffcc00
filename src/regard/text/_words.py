"""The words of a text: found in the text alone, or given.

No tokenizer takes part: the same text has the same words under every model, so that a word can be named,
counted and compared between models whose pieces differ.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, Self
from unicodedata import normalize

import regex  # type: ignore[import-untyped, unused-ignore]

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
        >>> from regard.text import Words
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
        # One blank between words: spans follow by adding up.
        text = super().__new__(cls, " ".join(words))
        # The end of each word before; -1 before the first.
        ends = accumulate(words, lambda end, word: end + 1 + len(word), initial=-1)
        text.spans = tuple((end + 1, end + 1 + len(word)) for end, word in zip(ends, words, strict=False))
        return text

    def __getnewargs__(self) -> tuple[Any]:
        return (self.words,)

    @property
    def words(self) -> list[str]:
        """The words."""
        return [self[start:end] for start, end in self.spans]

    @classmethod
    def if_listed(cls, value: Any) -> Any:
        """Words of a list, a tuple or an array of texts; any other value as it is."""
        listed = value.tolist() if hasattr(value, "tolist") else value
        return cls(listed) if isinstance(listed, list | tuple) and isinstance([*listed, 0][0], str) else value


def each_text(name: str, texts: object) -> Iterator[str]:
    """Several texts one by one, each a string or a list of words; InputError says which is neither."""
    # What has no `shape` is taken as one axis.
    got, axes = type(texts).__name__, getattr(texts, "shape", (0,))
    is_table = isinstance(texts, Mapping) or hasattr(texts, "columns")
    if is_table or len(axes) != 1:
        # Iterating over it would give its headings, or its rows.
        one = "table['text']" if is_table else f"array[:, 0] of an array of shape {axes}"
        raise InputError(f"{name} must be one column of texts; got {got}: give one, such as {one}.")
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise InputError(f"{name} must be several texts, such as a list; got {got}: write [text].")
    for place, entry in enumerate(texts):
        try:
            text = Words.if_listed(entry)
        except InputError as error:
            raise InputError(f"{name}[{place}]: {error}") from error
        if not isinstance(text, str):
            shown, way_out = type(text).__name__, "turn it into one"
            # Gaps in a table's column are None or NaN.
            if text is None or isinstance(text, float):
                shown, way_out = repr(text), "leave such rows out first, as series.dropna() does"
            raise InputError(f"{name}[{place}] must be a text, or a list of words; got {shown}: {way_out}.")
        yield text


SIGNS: Final = {
    "C": r"\p{WB=CR}",
    "L": r"\p{WB=LF}",
    "N": r"\p{WB=Newline}",
    "Z": r"\p{WB=ZWJ}",
    "X": r"[\p{WB=Extend}\p{WB=Format}]",
    "Q": r"[\p{WB=ALetter}&&\p{Extended_Pictographic}]",
    "P": r"\p{Extended_Pictographic}",
    "A": r"\p{WB=ALetter}",
    "H": r"\p{WB=Hebrew_Letter}",
    "K": r"\p{WB=Katakana}",
    "0": r"\p{WB=Numeric}",
    "_": r"\p{WB=ExtendNumLet}",
    "'": r"\p{WB=Single_Quote}",
    '"': r"\p{WB=Double_Quote}",
    ".": r"\p{WB=MidNumLet}",
    ":": r"\p{WB=MidLetter}",
    ",": r"\p{WB=MidNum}",
    "R": r"\p{WB=Regional_Indicator}",
    "W": r"\p{WB=WSegSpace}",
    "O": r"(?s:.)",
}
"""The signs of the Word_Break classes. The first that fits counts: some pictographs are letters too ("ℹ")."""

_SIGN_PATTERNS: Final = {sign: regex.compile(rf"(?V1){pattern}") for sign, pattern in SIGNS.items()}


class _SignOf(dict[int, str]):
    """For `str.translate`: the sign of a code point, looked up once."""

    def __missing__(self, code_point: int) -> str:
        # The first pattern that fits, as SIGNS has them in order.
        character = chr(code_point)
        sign = next(sign for sign, pattern in _SIGN_PATTERNS.items() if pattern.match(character))
        self[code_point] = sign
        return sign


_SIGN_OF: Final = _SignOf()

# After the steps in `boundaries`: p and q follow a joiner, V is a blank with a mark on it, r ends a flag.
_LETTER: Final = "[AQqH]"
_JOINED: Final = "|".join(
    (
        r"(?<=C)(?=L)",  # WB3
        r"(?=[pq])",  # WB3c
        r"(?<=W)(?=[WV])",  # WB3d
        rf"(?<={_LETTER})(?=[AQqH0]|[:.']{_LETTER})",  # WB5, WB6, WB9
        rf"(?<={_LETTER}[:.'])(?={_LETTER})",  # WB7
        r"""(?<=H)(?='|"H)|(?<=H")(?=H)""",  # WB7a to WB7c
        r"(?<=0)(?=[AQqH0]|[,.']0)",  # WB8, WB10, WB12
        r"(?<=0[,.'])(?=0)",  # WB11
        r"(?<=K)(?=K)",  # WB13
        r"(?<=[AQqH0K_])(?=_)|(?<=_)(?=[AQqH0K])",  # WB13a, WB13b
        r"(?<=R)(?=r)",  # WB15, WB16
    )
)
# A row of letters first: it is nearly all of most texts.
_SEGMENT: Final = re.compile(rf".(?:(?<={_LETTER}){_LETTER}+|(?:{_JOINED}).)*")
SEGMENT: Final = _SEGMENT.pattern
"""From one boundary to the next, in signs; JavaScript reads it too."""

_HANGING: Final = re.compile("[XZ]+")
_NOT_HANGING: Final = re.compile("[^XZ]")
_AT_START: Final = re.compile("(?:^|(?<=[CLN]))[XZ]")
_MARKED_BLANK: Final = re.compile("W(?=[XZ])")


def boundaries(text: str) -> list[int]:
    """Where a text may be cut into words: its start, its end, and every boundary between, each once.

    In code points, in time linear in the length of the text.
    """
    signs = text.translate(_SIGN_OF)
    positions: list[int] | range = range(len(text))
    if "X" in signs or "Z" in signs:
        # A pictograph behind a joiner becomes p or q: WB3c joins those only.
        signs = signs.replace("ZP", "Zp").replace("ZQ", "Zq")
        # At the start of the text or of a line there is nothing to hang on.
        signs = _AT_START.sub("O", signs)
        # A blank with a mark on it is no blank that joins to others (WB3d).
        signs = _MARKED_BLANK.sub("V", signs)
        # Marks and joiners hang on what is before them (WB4): they are taken out, and their places
        # remembered.
        positions = [match.start() for match in _NOT_HANGING.finditer(signs)]
        signs = _HANGING.sub("", signs)
    # From the left, two by two: replace goes on behind what it replaced.
    signs = signs.replace("RR", "Rr")
    return [*(positions[match.start()] for match in _SEGMENT.finditer(signs)), len(text)] if text else [0]


INVISIBLE: Final = r"[\p{White_Space}\p{Cc}\p{DI}[\p{Cf}--\p{PCM}]]"
"""What prints nothing. The prepended marks (the Arabic number sign, ...) are format characters that print."""

_UNSEEN_HEAD: Final = regex.compile(rf"(?V1){INVISIBLE}*+")

_IGNORABLE: Final = regex.compile(r"(?V1)\p{DI}+")
_BLANKS: Final = regex.compile(r"(?V1)\p{White_Space}+")
_UNPRINTABLE: Final = regex.compile(r"(?V1)[\p{Cc}\p{Cs}\p{Bidi_Control}]")

_SHOWN_AT_MOST: Final = 60


def split_words(text: str) -> list[tuple[int, int]]:
    r"""The words of a text: the segments between Unicode word boundaries that have something to see.

    The boundaries are the default ones of UAX #29. A punctuation mark is a word of its own, "don't" is one
    word, an emoji of several code points is one, and so is each Chinese character. Thai, Lao, Khmer and
    Burmese, which write no blanks, come out in parts of a syllable: their words need a dictionary. White
    space, control characters, zero-width spaces and whatever else prints nothing are no words, nor the start
    of one.

    Args:
        text: Any string, the empty one too; of `Words` it is the given ones.

    Returns:
        For each word its start and end, in code points, `text[start:end]` being the word. In order, without
        overlap, none empty.

    Raises:
        InputError: `text` is not a string.

    Example:
        >>> text = "Don't flood\tthe bank."
        >>> split_words(text)
        [(0, 5), (6, 11), (12, 15), (16, 20), (20, 21)]
        >>> [text[start:end] for start, end in split_words(text)]
        ["Don't", 'flood', 'the', 'bank', '.']
    """
    if not isinstance(text, str):
        raise InputError(f"text must be a string to be split into words; got {type(text).__name__}")
    if isinstance(text, Words):
        return list(text.spans)
    words = []
    for start, end in itertools.pairwise(boundaries(text)):
        # A mark after a blank is joined to the blank: the word begins at the mark.
        seen = _UNSEEN_HEAD.match(text, start, end).end()
        if seen == end:
            continue
        # The narrow blank that groups digits joins letters too: "word<U+202F>;" must not end in it.
        while text[end - 1].isspace():
            end -= 1
        words.append((seen, end))
    return words


def fold(text: str, case: bool = False) -> str:
    r"""The form in which spellings of one word are equal: without case, unless `case` keeps it, canonical,
    without unseen characters, with straight apostrophes.
    """
    # Canonical first: case folding may undo the order of marks.
    text = normalize("NFD", str(_IGNORABLE.sub("", text)))
    # Typographic apostrophes (U+2019, U+02BC) as straight ones.
    return normalize("NFC", text if case else text.casefold()).translate({0x2019: "'", 0x2BC: "'"})


def single_spaced(text: str) -> str:
    """The text with every run of white space made one blank, and none at its ends."""
    return str(_BLANKS.sub(" ", text)).strip()


def shown(text: str) -> str:
    r"""The text as it can stand in a message: one line, in quotes, shortened, without control characters."""
    line = single_spaced(text)
    if len(line) > _SHOWN_AT_MOST:
        line = line[: _SHOWN_AT_MOST - 1] + "…"
    line = _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), line)
    return f'"{line}"'
