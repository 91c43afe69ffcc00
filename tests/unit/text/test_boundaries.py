"""The boundaries of UAX #29, against the rules written out one by one."""

from __future__ import annotations

import functools
import random

import pytest
import regex

from regard.text._boundaries import boundaries


@functools.cache
def break_class(character: str) -> str:
    """A character's Word_Break value, of those that the rules name."""
    for name in BREAK_CLASSES:
        if regex.match(rf"(?V1)\p{{WB={name}}}", character):
            return name
    return "Other"


BREAK_CLASSES = (
    *("CR", "LF", "Newline", "Extend", "ZWJ", "Format", "Katakana", "Hebrew_Letter", "ALetter", "Numeric"),
    *("Single_Quote", "Double_Quote", "MidNumLet", "MidLetter", "MidNum", "ExtendNumLet"),
    *("Regional_Indicator", "WSegSpace"),
)
LETTER = ("ALetter", "Hebrew_Letter")
MID_LETTER = ("MidLetter", "MidNumLet", "Single_Quote")
MID_NUM = ("MidNum", "MidNumLet", "Single_Quote")
LINE_END = ("CR", "LF", "Newline")
HANGING = ("Extend", "Format", "ZWJ")


def breaks(text: str) -> list[int]:
    """Where UAX #29 breaks a text, rule by rule (WB1 to WB999), in quadratic time."""
    classes = [break_class(character) for character in text]
    found = [0]
    for i in range(1, len(text)):
        before, after = classes[i - 1], classes[i]
        if before == "CR" and after == "LF":
            continue  # WB3
        if before in LINE_END or after in LINE_END:
            found.append(i)  # WB3a, WB3b
            continue
        if before == "ZWJ" and regex.match(r"\p{Extended_Pictographic}", text[i]):
            continue  # WB3c
        if before == after == "WSegSpace" or after in HANGING:
            continue  # WB3d, WB4
        # WB4: from here on what hangs on a character is skipped.
        left = [
            c for j, c in enumerate(classes[:i]) if c not in HANGING or j == 0 or classes[j - 1] in LINE_END
        ]
        right = [c for c in classes[i:] if c not in HANGING]
        one, two = left[-1], left[-2] if len(left) > 1 else ""
        nxt, far = right[0], right[1] if len(right) > 1 else ""
        run = len(left) - len("".join("R" if c == "Regional_Indicator" else "-" for c in left).rstrip("R"))
        joined = (
            (one in LETTER and nxt in LETTER)  # WB5
            or (one in LETTER and nxt in MID_LETTER and far in LETTER)  # WB6
            or (two in LETTER and one in MID_LETTER and nxt in LETTER)  # WB7
            or (one == "Hebrew_Letter" and nxt == "Single_Quote")  # WB7a
            or (one == far == "Hebrew_Letter" and nxt == "Double_Quote")  # WB7b
            or (two == nxt == "Hebrew_Letter" and one == "Double_Quote")  # WB7c
            or (one in (*LETTER, "Numeric") and nxt == "Numeric")  # WB8, WB9
            or (one == "Numeric" and nxt in LETTER)  # WB10
            or (two == nxt == "Numeric" and one in MID_NUM)  # WB11
            or (one == far == "Numeric" and nxt in MID_NUM)  # WB12
            or (one == nxt == "Katakana")  # WB13
            or (one in (*LETTER, "Numeric", "Katakana", "ExtendNumLet") and nxt == "ExtendNumLet")  # WB13a
            or (one == "ExtendNumLet" and nxt in (*LETTER, "Numeric", "Katakana"))  # WB13b
            or (nxt == "Regional_Indicator" and run % 2 == 1)  # WB15, WB16
        )
        if not joined:
            found.append(i)
    return [*found, len(text)]


def test_boundaries_are_those_of_the_standard() -> None:
    rng = random.Random(2)
    alphabet = "abשℹ1,.:'\"_ \u3000\r\n\x85\u0301\u00ad\u200d\ufe0f👩❤🏽🇫🇷🇩日カ\u202f\u00a0\u0600$ก\u200b"
    assert {break_class(c) for c in alphabet} == {*BREAK_CLASSES, "Other"}
    for _ in range(5000):
        # Few kinds at a time, so that they meet in all orders.
        text = "".join(rng.choices(rng.sample(alphabet, k=4), k=rng.randint(1, 10)))
        assert boundaries(text) == breaks(text), ascii(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [0]),
        ("a\ud800b", [0, 1, 2, 3]),
        ("'apple'", [0, 1, 6, 7]),
        ("l'arbre o'clock", [0, 7, 8, 15]),
        ("🇫🇷🇩 x", [0, 2, 3, 4, 5]),
        ("\u0301a", [0, 1, 2]),
        ('צ"ל "א"', [0, 3, 4, 5, 6, 7]),
        ("👩\u200d👧a", [0, 3, 4]),
        ("ℹ\u200dℹa", [0, 4]),
    ],
)
def test_boundaries_of(text: str, expected: list[int]) -> None:
    assert boundaries(text) == expected
