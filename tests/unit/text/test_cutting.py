"""Expressions over signs cut as they cut over characters."""

import re

import numpy as np
import numpy.typing as npt
import pytest
from tokenizers import Regex, pre_tokenizers

from regard.text._cuts import CUTS
from regard.text._cutting import FIRST_SIGN, cuts

TEXT = "It's ſTRAẞE'ſ  naïve—co\u0308op\t١٢٣½ 1234 日本語\r\n  x=[y]/\U0001d54f‿ǅ \U0001f600'LL "


@pytest.mark.parametrize("name", ["qwen2", "llama3", "tekken", "gpt-4o", "deepseek-coder"])
def test_the_parts_are_those_of_the_library(name: str) -> None:
    steps = [step for step in CUTS[name].steps if isinstance(step, str)]
    found = [TEXT]
    splits = [pre_tokenizers.Split(Regex(step), "isolated") for step in steps]
    signs, expressions = cuts([_json(step) for step in steps])
    for expression in expressions:
        found = [part for text in found for part in _isolated(text, "".join(_sign(signs, text)), expression)]
    wanted = [part for part, _ in pre_tokenizers.Sequence(splits).pre_tokenize_str(TEXT)]
    assert found == wanted


def _json(pattern: str) -> dict[str, object]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _sign(signs: npt.NDArray[np.int64], text: str) -> list[str]:
    return [chr(FIRST_SIGN + int(signs[ord(one)])) for one in text]


def _isolated(text: str, line: str, expression: str) -> list[str]:
    parts, last = [], 0
    for found in re.finditer(expression, line):
        parts += [text[last : found.start()], text[found.start() : found.end()]]
        last = found.end()
    return [part for part in [*parts, text[last:]] if part]
