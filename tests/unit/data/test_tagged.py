"""CoNLL-U and vertical text: words with what a file says of them."""

import pytest

from regard.core.errors import InputError
from regard.data import Tagged, conllu, vrt

SPANISH = """# newdoc id = d1
# meta::date = 1999
# meta::genre = news
# newpar id = p1
# sent_id = s1
# text = Vámonos al mar.
1-2\tVámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tvamos\tir\tVERB\t_\t_\t_\t_\t_\t_
2\tnos\tnosotros\tPRON\t_\t_\t_\t_\t_\t_
3-4\tal\t_\t_\t_\t_\t_\t_\t_\t_
3\ta\ta\tADP\t_\t_\t_\t_\t_\t_
4\tel\tel\tDET\t_\t_\t_\t_\t_\t_
4.1\tausente\tausente\tADJ\t_\t_\t_\t_\t_\t_
5\tmar\tmar\tNOUN\t_\t_\t_\t_\t_\tSpaceAfter=No
6\t.\t.\tPUNCT\t_\t_\t_\t_\t_\t_

# sent_id = s2
1\tSí\tsí\tINTJ\t_\t_\t_\t_\t_\t_
"""


def told(entry: Tagged) -> list[tuple[str, str, str]]:
    assert entry.words is not None
    return [(entry.body[word.start : word.stop], word.lemma, word.pos) for word in entry.words]


def test_conllu() -> None:
    first, second = conllu(iter(SPANISH.splitlines()))
    assert first.body == "Vámonos al mar."
    assert told(first) == [
        ("Vámonos", "ir+nosotros", "VERB+PRON"),
        ("al", "a+el", "ADP+DET"),
        ("mar", "mar", "NOUN"),
        (".", ".", "PUNCT"),
    ]
    assert (first.place, first.date) == ("line 7", "1999")
    assert first.meta == {"document": "d1", "genre": "news", "paragraph": "p1", "sent_id": "s1"}
    assert (second.body, second.date, second.meta["genre"]) == ("Sí", "1999", "news")
    assert second.place == "line 18"


def rows(*tokens: tuple[str, str], text: str | None) -> list[str]:
    head = [] if text is None else [f"# text = {text}"]
    lines = enumerate(tokens, 1)
    return head + [f"{n}\t{form}\t_\tX\t_\t_\t_\t_\t_\t{misc}" for n, (form, misc) in lines]


@pytest.mark.parametrize(
    ("tokens", "text", "body"),
    [
        ([("don", "SpaceAfter=No"), ("'t", "_"), ("go", "_")], None, "don't go"),
        ([("New York", "_"), ("grew", "_")], "New  York grew", "New York grew"),  # words win over the text
        ([("a", "_"), ("b", "_")], "a  b", "a  b"),  # blanks may differ
        ([("a", "_"), ("b", "_")], "a x b", "a b"),  # what no word says is not the text
        ([("b", "_"), ("a", "_")], "a b", "b a"),
        ([("x", "SpaceAfter=No|Lang=en"), ("\u3000", "_")], "y", "x\u3000"),
    ],
)
def test_the_text_of_conllu(tokens: list[tuple[str, str]], text: str | None, body: str) -> None:
    [entry] = conllu(iter(rows(*tokens, text=text)))
    assert entry.body == body
    assert [form for form, _, _ in told(entry)] == [form for form, _ in tokens]


@pytest.mark.parametrize("line", ["EU\tNNP\tB-NP\tB-ORG", "1 The the DET", "1\tThe"])
def test_what_is_no_conllu(line: str) -> None:
    with pytest.raises(InputError, match="line 1 must have the columns of CoNLL-U, by tabs"):
        list(conllu(iter([line])))


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


def test_vrt() -> None:
    first, second, third = vrt(iter(VERTICAL.splitlines()), ("word", "pos", "lemma"))
    assert first.body == "R&D, yes"
    assert told(first) == [("R&D", "r&d", "NN"), (",", ",", ","), ("yes", "yes", "UH")]
    assert first.meta == {"document": "1", "id": "A1", "title": 'He said "x > y" & left', "s_id": "7"}
    assert (first.place, first.date) == ("line 5", "1990")
    assert (second.body, second.meta["s_id"], told(second)[1]) == ("no more", "8", ("more", "", "RB"))
    assert (third.body, third.meta, third.date) == ("end", {"document": "2", "id": "A2"}, None)
    with pytest.raises(InputError, match="line 1 must have a word in its columns"):
        list(vrt(iter(["one"]), ("pos", "word")))
