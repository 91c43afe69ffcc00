"""CoNLL-U: sentences with their words, lemmas and parts of speech."""

import re
from collections.abc import Iterator
from itertools import chain
from typing import Final

from regard.core.errors import InputError
from regard.data._tagged import Tagged, Word


def conllu(lines: Iterator[str], date: str = "date") -> Iterator[Tagged]:
    """The sentences of CoNLL-U: words as they stand in the text, with lemma and universal part of speech.

    Words of a multiword token ("del" for "de el") are one, as written, and their lemmas are joined by "+".
    What a comment `# meta::NAME = VALUE` says holds for all of its document.

    Source: https://universaldependencies.org/format.html
    """
    about: dict[str, str] = {}
    of_document: dict[str, str] = {}
    tokens: list[list[str]] = []
    first = 0
    for number, line in enumerate(chain(lines, [""]), 1):
        if line.startswith("#"):
            name, _, value = (part.strip() for part in line[1:].partition("="))
            if name.startswith("newdoc"):
                of_document = {"document": value}
            elif name.startswith("newpar"):
                of_document["paragraph"] = value
            elif name.startswith("meta::"):
                of_document[name.removeprefix("meta::")] = value
            elif value:
                about[name] = value
        elif line.strip():
            first = first or number
            fields = line.split("\t")
            if len(fields) < 4 or not _NUMBER.fullmatch(fields[0]):
                raise InputError(
                    f"line {number} must have the columns of CoNLL-U, by tabs; got {line[:60]!r}."
                )
            tokens.append(fields)
        elif tokens:
            text = about.pop("text", None)
            known = {**of_document, **about}
            yield Tagged(*_sentence(tokens, text), f"line {first}", known.pop(date, None), known)
            about, tokens, first = {}, [], 0


_NUMBER: Final = re.compile(r"\d+([-.]\d+)?")


def _sentence(tokens: list[list[str]], text: str | None) -> tuple[str, list[Word]]:
    surface: list[tuple[str, str, str, bool]] = []  # form, lemma, pos, whether a blank follows
    inside = 0  # the last number that a multiword token covers
    for fields in tokens:
        number, form, lemma, pos = fields[:4]
        glued = len(fields) > 9 and "SpaceAfter=No" in fields[9]
        lemma, pos = ("" if value == "_" and form != "_" else value for value in (lemma, pos))
        if "." in number:
            continue
        if "-" in number:
            inside = int(number.partition("-")[2])
            surface.append((form, "", "", not glued))
        elif int(number) <= inside:
            whole, lemmas, kinds, after = surface[-1]
            surface[-1] = whole, f"{lemmas}+{lemma}".strip("+"), f"{kinds}+{pos}".strip("+"), after
        else:
            surface.append((form, lemma, pos, not glued))
    words, at, blank = [], 0, False
    body, agrees = "" if text is None else text, text is not None
    if agrees:
        for form, lemma, pos, _ in surface:
            start = body.find(form, at)
            if start < 0 or body[at:start].strip():
                agrees = False  # the text is not what the words say: the words are
                break
            at = start + len(form)
            words.append(Word(start, at, lemma, pos))
    if not agrees:
        body, words = "", []
        for form, lemma, pos, after in surface:
            body += " " * blank + form
            words.append(Word(len(body) - len(form), len(body), lemma, pos))
            blank = after
    return body, words
