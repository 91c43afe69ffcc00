"""Vertical text (VRT): a word a line with its columns, between tags."""

import re
from collections.abc import Iterator, Sequence
from typing import Final
from xml.sax.saxutils import unescape

from regard.core.errors import InputError
from regard.data._tagged import Tagged, Word

_TAG: Final = re.compile(r"<(/?)([A-Za-z][\w:.-]*)((?:\s[^\t]*)?)>")
_ATTRIBUTE: Final = re.compile(r"""([\w:.-]+)\s*=\s*(?:"([^"]*)"|'([^']*)')""")


def vrt(lines: Iterator[str], columns: Sequence[str], date: str = "date") -> Iterator[Tagged]:
    """The sentences of vertical text: a word a line with its columns, between tags; `<g/>` glues two words.

    The attributes of tags are what is known. Where an inner tag has a name that an outer one has, it is
    called TAG_NAME: the `id` of `<s>` within a `<text id="...">` is `s_id`.

    Source: https://cwb.sourceforge.io/files/CWB_Encoding_Tutorial.pdf, section 2
    """
    open_tags: dict[str, dict[str, str]] = {}
    body, glue, first = "", False, 0
    words: list[Word] = []

    def made() -> Tagged:
        known: dict[str, str] = {}
        for tag, attributes in open_tags.items():
            known |= {f"{tag}_{name}" if name in known else name: each for name, each in attributes.items()}
        return Tagged(body, words, f"line {first}", known.pop(date, None), known)

    for number, line in enumerate(lines, 1):
        bare = line.strip()
        if not bare or bare.startswith(("<?", "<!--")):
            continue
        empty = bare.endswith("/>")
        tag = _TAG.fullmatch(f"{bare[:-2]}>" if empty else bare)
        if tag is None:
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
        if name == "g":
            glue = True
        elif words and name in ("s", "p", "text", "doc"):
            yield made()
            body, words, first = "", [], 0
        if closes:
            open_tags.pop(name, None)
        elif not empty:
            attributes = _ATTRIBUTE.findall(rest)
            open_tags[name] = {key: _entities(double or single) for key, double, single in attributes}
    if words:
        yield made()


def _entities(value: str) -> str:
    return unescape(value, {"&quot;": '"', "&apos;": "'"})
