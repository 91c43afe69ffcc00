"""Unicode's default word boundaries (UAX #29, rules WB1 to WB999).

`regex` has them too, as `\\b` in WORD mode, but departs from the standard where texts are concerned: in
"'apple'" it finds no boundary after the first quote (it tests for a vowel), it joins an odd regional
indicator to what follows, even a blank, and it goes over a row of flags in quadratic time. Only its character
properties are used here.

Each character is written as one sign for its class. What hangs on a character (WB4) is then left out, so that
every rule looks at neighbours, and all rules are one expression over that string of signs.
"""

import re
from typing import Final

import regex  # type: ignore[import-untyped, unused-ignore]

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
        signs = signs.replace("ZP", "Zp").replace("ZQ", "Zq")
        # At the start of the text or of a line there is nothing to hang on.
        signs = _AT_START.sub("O", signs)
        signs = _MARKED_BLANK.sub("V", signs)
        positions = [found.start() for found in _NOT_HANGING.finditer(signs)]
        signs = _HANGING.sub("", signs)
    # From the left, two by two: replace goes on behind what it replaced.
    signs = signs.replace("RR", "Rr")
    return [*(positions[found.start()] for found in _SEGMENT.finditer(signs)), len(text)] if text else [0]
