"""The sentences of vertical text."""

import pytest

from regard.core.errors import InputError
from regard.data import Tagged, vrt

VERTICAL = """<?xml version="1.0"?>
<!-- made by hand -->
<text id="A1" date="1990" title='He said "x > y" &amp; left'>
<s id="7">
R&amp;D\tNN\tr&d
<g/>
,\t,\t,
yes\tUH\tyes
</s>
<s id="8">
no\tUH\tno
<pb/>
more\tRB
</s>
</text>
<text id="A2">
end\tNN\tend
</text>
"""


def told(entry: Tagged) -> list[tuple[str, str, str]]:
    assert entry.words is not None
    return [(entry.body[word.start : word.stop], word.lemma, word.pos) for word in entry.words]


def test_vrt() -> None:
    first, second, third = vrt(iter(VERTICAL.splitlines()), ("word", "pos", "lemma"))
    assert first.body == "R&D, yes"
    assert told(first) == [("R&D", "r&d", "NN"), (",", ",", ","), ("yes", "yes", "UH")]
    assert first.meta == {"id": "A1", "title": 'He said "x > y" & left', "s_id": "7"}
    assert (first.place, first.date) == ("line 5", "1990")
    assert (second.body, second.meta["s_id"], told(second)[1]) == ("no more", "8", ("more", "", "RB"))
    assert (third.body, third.meta, third.date) == ("end", {"id": "A2"}, None)
    with pytest.raises(InputError, match="line 1 must have a word in its columns"):
        list(vrt(iter(["one"]), ("pos", "word")))
