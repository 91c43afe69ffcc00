"""Texts whose words a file gives, with what it says of them: CoNLL-U, and vertical text (VRT)."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, NamedTuple
from xml.sax.saxutils import unescape

from regard.core.errors import InputError

Parts = tuple[tuple[str, str, str], ...]
"""The words that are joined in one, as "zu" and "dem" in "zum": each with its lemma and part of speech."""


class Word(NamedTuple):
    """A word of a text: where it is, and what the corpus says of it; "" where it says nothing."""

    start: int
    stop: int
    lemma: str = ""
    pos: str = ""
    parts: Parts = ()


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


def conllu(lines: Iterator[str], date: str = "date") -> Iterator[Tagged]:
    """The sentences of CoNLL-U: words as they stand in the text, with lemma and universal part of speech.

    Words of a multiword token ("del" for "de el") are one, as written, with these as its parts; their lemmas
    are joined by "+".
    What a comment `# meta::NAME = VALUE` says holds for all of its document, which is `document`: as `newdoc`
    calls it, or else its number.

    Source: https://universaldependencies.org/format.html
    """
    # Comments of this sentence, and of its document.
    about: dict[str, str] = {}
    of_document: dict[str, str] = {}
    tokens: list[list[str]] = []
    first = count = 0
    # One blank line more, which ends the last sentence.
    for number, line in enumerate(chain(lines, [""]), 1):
        if line.startswith("#"):
            name, _, value = (part.strip() for part in line[1:].partition("="))
            # A document without a name gets its number.
            if name.startswith("newdoc"):
                count += 1
                of_document = {"document": value or str(count)}
            elif name.startswith("newpar"):
                of_document["paragraph"] = value
            elif name.startswith("meta::"):
                of_document[name.removeprefix("meta::")] = value
            elif value:
                about[name] = value
        elif line.strip():
            first = first or number
            # id, form, lemma, part of speech, and six more.
            fields = line.split("\t")
            if len(fields) < 4 or not _NUMBER.fullmatch(fields[0]):
                raise InputError(
                    f"line {number} must have the columns of CoNLL-U, by tabs; got {line[:60]!r}."
                )
            tokens.append(fields)
        elif tokens:
            # The text as it stands, if the file has it.
            text = about.pop("text", None)
            known = {**of_document, **about}
            yield Tagged(*_sentence(tokens, text), f"line {first}", known.pop(date, None), known)
            about, tokens, first = {}, [], 0


_NUMBER: Final = re.compile(r"\d+([-.]\d+)?")


def _sentence(tokens: list[list[str]], text: str | None) -> tuple[str, list[Word]]:
    # form, lemma, pos, whether a blank follows, parts
    surface: list[tuple[str, str, str, bool, Parts]] = []
    inside = 0  # the last number that a multiword token covers
    for fields in tokens:
        number, form, lemma, pos = fields[:4]
        # The last column says that no blank follows.
        glued = len(fields) > 9 and "SpaceAfter=No" in fields[9]
        lemma, pos = ("" if value == "_" and form != "_" else value for value in (lemma, pos))
        # An empty node, which no text has.
        if "." in number:
            continue
        # 3-4: one form for the words 3 and 4, which follow.
        if "-" in number:
            inside = int(number.partition("-")[2])
            surface.append((form, "", "", not glued, ()))
        # A word within it gives its lemma and part of speech, joined by "+".
        elif int(number) <= inside:
            whole, lemmas, kinds, after, parts = surface[-1]
            lemmas, kinds = (f"{all}+{own}".strip("+") for all, own in ((lemmas, lemma), (kinds, pos)))
            surface[-1] = whole, lemmas, kinds, after, (*parts, (form, lemma, pos))
        else:
            surface.append((form, lemma, pos, not glued, ()))
    words, at, blank = [], 0, False
    body, agrees = "" if text is None else text, text is not None
    # Each word is looked for behind the one before; only blanks may lie between.
    if agrees:
        for form, lemma, pos, _, parts in surface:
            start = body.find(form, at)
            if start < 0 or body[at:start].strip():
                agrees = False  # the text is not what the words say: the words are
                break
            at = start + len(form)
            words.append(Word(start, at, lemma, pos, parts))
    # The text is put together from the words.
    if not agrees:
        body, words = "", []
        for form, lemma, pos, after, parts in surface:
            body += " " * blank + form
            words.append(Word(len(body) - len(form), len(body), lemma, pos, parts))
            blank = after
    return body, words


_TAG: Final = re.compile(r"<(/?)([A-Za-z][\w:.-]*)((?:\s[^\t]*)?)>")
_ATTRIBUTE: Final = re.compile(r"""([\w:.-]+)\s*=\s*(?:"([^"]*)"|'([^']*)')""")


def vrt(lines: Iterator[str], columns: Sequence[str], date: str = "date") -> Iterator[Tagged]:
    """The sentences of vertical text: a word a line with its columns, between tags; `<g/>` glues two words.

    The attributes of tags are what is known, and as `document` the number of the <text> or <doc>. Where an
    inner tag has a name that an outer one has, it is called TAG_NAME: the `id` of `<s>` within a
    `<text id="...">` is `s_id`. A feature set such as `topic="|war|sea|"` is a list.

    Source: https://cwb.sourceforge.io/files/CWB_Encoding_Tutorial.pdf, section 2
    """
    open_tags: dict[str, dict[str, str | list[str]]] = {}
    body, glue, first, count = "", False, 0, 0
    words: list[Word] = []

    def made() -> Tagged:
        known: dict[str, Any] = {"document": str(count)} if count else {}
        for tag, attributes in open_tags.items():
            # The inner of two attributes with one name gets its tag before it.
            known |= {f"{tag}_{name}" if name in known else name: each for name, each in attributes.items()}
        when = known.pop(date, None)
        return Tagged(body, words, f"line {first}", None if when is None else str(when), known)

    for number, line in enumerate(lines, 1):
        bare = line.strip()
        if not bare or bare.startswith(("<?", "<!--")):
            continue
        # A tag without content, such as <g/>.
        empty = bare.endswith("/>")
        tag = _TAG.fullmatch(f"{bare[:-2]}>" if empty else bare)
        if tag is None:
            # A line that is no tag is a word.
            fields = dict(zip(columns, map(_entities, line.rstrip("\r\n").split("\t")), strict=False))
            form = fields.get("word", "")
            if not form:
                raise InputError(f"line {number} must have a word in its columns; got {line[:60]!r}.")
            body += form if glue or not body else f" {form}"
            first = first or number
            words.append(
                Word(len(body) - len(form), len(body), fields.get("lemma", ""), fields.get("pos", ""))
            )
            glue = False
            continue
        closes, name, rest = tag.groups()
        # No blank before the next word.
        if name == "g":
            glue = True
        elif words and name in ("s", "p", "text", "doc"):
            yield made()
            body, words, first = "", [], 0
        # What a closed tag said no longer holds.
        if closes:
            open_tags.pop(name, None)
        elif not empty:
            count += name in ("text", "doc")
            attributes = _ATTRIBUTE.findall(rest)
            open_tags[name] = {key: _value(_entities(double or single)) for key, double, single in attributes}
    if words:
        yield made()


def _value(value: str) -> str | list[str]:
    """The value of an attribute; of a feature set of CWB, such as "|a|b|", its values."""
    return [*filter(None, value.split("|"))] if value[:1] == value[-1:] == "|" else value


def _entities(value: str) -> str:
    return unescape(value, {"&quot;": '"', "&apos;": "'"})
