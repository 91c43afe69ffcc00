"""The sentences that are worked out: by hand, and never a claim of a model before training."""

import inspect
import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.cli.heads import heads as heads_command
from regard.tracing import Trace
from regard.tracing.comparison import words_alike
from regard.tracing.patterns import heads_of_trace
from regard.views import claims, moved
from unit.models.untrained import FAMILIES, SENTENCES, untrained

NODE = shutil.which("node", path=Path(sys.executable).parent)
STATIC = Path(__file__).parents[3] / "src/regard/views/static"  # a wheel has its bundles alone


def _run(
    folder: Path,
    texts: Sequence[Mapping[str, Any]],
    moves: Sequence[Any] = (),
    nexts: Sequence[Any] = (),
    words: Sequence[Any] = (),
    boths: Sequence[Any] = (),
    more: Sequence[Any] = (),
) -> dict[str, Any]:
    given = {"texts": texts, "moves": moves, "nexts": nexts, "words": words, "boths": boths, "more": more}
    (folder / "given.json").write_text(json.dumps(given), encoding="utf-8")
    script = Path(__file__).with_name("said_run.mjs")
    done = subprocess.run(
        [str(NODE), str(script), str(STATIC), str(folder / "given.json")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _text(words: str, rows: Mapping[int, list[float]], heads: int = 1) -> dict[str, Any]:
    """Words in brackets are special; "un|cut" is one word of two pieces. Rows that are left out are even."""
    tokens: list[dict[str, Any]] = []
    for number, word in enumerate(words.split()):
        special = word.startswith("[")
        tokens += [
            {"text": piece, "special": special, "sequence": 0, "word": None if special else number}
            for piece in word.split("|")
        ]
    count = len(tokens)
    given = [rows.get(query, [1 / count] * count) for query in range(count)]
    named = [word.replace("|", "") for word in words.split()]
    return {"kind": "encoder", "tokens": tokens, "words": named, "layers": [[given] * heads]}


def _row(count: int, **shares: float) -> list[float]:
    """The shares by place, "at3"; what is left is spread over the other places."""
    row = [math.nan] * count
    for place, share in shares.items():
        row[int(place[2:])] = share
    left = (1 - sum(shares.values())) / (count - len(shares))
    return [left if math.isnan(each) else each for each in row]


OF, MOST = "\u00a0% of its attention", "spreads its attention: at most"
# Of eleven tokens each has a share of 9 % where it is even; six times these odds are 37.5 %.
MANY = "[CLS] the bank of a river bank is wide . [SEP]"
TWICE = "[CLS] bank by the river bank is wide . . [SEP]"
CUT = "[CLS] x un|cut|s of grass [SEP]"

SAID = [
    (MANY, {1: _row(11, at5=0.6)}, 0, f"the gives 60{OF} to river."),
    (MANY, {1: _row(11, at5=0.38)}, 0, f"the gives 38{OF} to river."),
    (MANY, {1: _row(11, at5=0.37)}, 0, f"the {MOST} 37 %, to river; an even share is 9 %."),
    (MANY, {1: _row(11, at1=0.3)}, 0, f"the {MOST} 30 %, to itself; an even share is 9 %."),
    (MANY, {1: _row(11, at0=0.3)}, 0, f"the {MOST} 30 %, to [CLS]; an even share is 9 %."),
    (MANY, {}, 0, "the spreads its attention evenly over the 11 words and marks that it may see."),
    (MANY, {1: _row(11, at5=0.9999)}, 0, f"the gives more than 99{OF} to river."),
    # a word of the same text
    (TWICE, {1: _row(11, at5=0.6)}, 0, f"bank gives 60{OF} to the other bank."),
    ("bank " * 5, {0: _row(5, at3=0.7)}, 0, f"bank gives 70{OF} to another bank."),
    # itself, where that gets most; and what comes next
    (MANY, {1: _row(11, at1=0.75)}, 0, f"the keeps 75{OF} for itself."),
    (MANY, {1: _row(11, at1=0.5, at5=0.4)}, 0, f"the keeps 50{OF} for itself, and gives 40 % to river."),
    (MANY, {1: _row(11, at5=0.5, at8=0.4)}, 0, f"the gives 50{OF} to river, and gives 40 % to wide."),
    (MANY, {1: _row(11, at0=0.55, at5=0.4)}, 0, f"the rests 55{OF} on [CLS], and gives 40 % to river."),
    # marks: those with a tenth of what all of them get have a name
    (MANY, {1: _row(11, at0=0.6, at10=0.25)}, 0, f"the looks at no word: 85{OF} rests on [CLS] and [SEP]."),
    (MANY, {1: _row(11, at0=0.6, at10=0.01)}, 0, f"the looks at no word: 60{OF} rests on [CLS]."),
    (MANY, {1: _row(11, at0=0.49)}, 0, f"the rests 49{OF} on [CLS]."),
    (MANY, {1: _row(11, at9=0.7)}, 0, f"the looks at no word: 70{OF} rests on “.”."),
    (". . .", {0: [0.02, 0.96, 0.02]}, 0, f". gives 96{OF} to another “.”."),
    # a decoder's word sees those before it
    ("one two three", {0: [1.0, 0.0, 0.0]}, 0, "one can see no other word."),
    ("a b c", {1: [0.4, 0.6, 0.0]}, 1, "b spreads its attention evenly over the 2 words that it may see."),
    ("a b c", {1: [0.9, 0.1, 0.0]}, 1, f"b gives 90{OF} to a."),
    # to a word in pieces goes their sum, whose even share is larger; from it goes their mean
    (CUT, {1: _row(8, at2=0.3, at3=0.3, at4=0.3)}, 0, f"x gives 90{OF} to uncuts."),
    (CUT, {1: _row(8, at2=0.25, at3=0.25, at4=0.25)}, 0, f"x {MOST} 75 %, to uncuts; an even share is 38 %."),
    (
        CUT,
        {2: _row(8, at6=0.9)} | dict.fromkeys((3, 4), _row(8, at6=0.6)),
        1,
        f"uncuts gives 70{OF} to grass.",
    ),
]

# A decoder's first word is where attention rests, as a mark is; where that is one, it is called so.
REST = "here looks at no other word"
FIRST, BEGUN = "When Mary made the tea for us all now here", "[BOS] a b c"
SAID_OF_DECODERS = [
    (FIRST, {9: _row(10, at0=0.9)}, 9, f"{REST}: 90{OF} rests on the first word (When)."),
    (
        FIRST,
        {9: _row(10, at0=0.5, at4=0.45)},
        9,
        f"here rests 50{OF} on the first word (When), and gives 45 % to tea.",
    ),
    (FIRST, {0: _row(10, at0=1)}, 0, "When can see no other word."),
    (BEGUN, {3: _row(4, at0=0.95)}, 2, f"c looks at no word: 95{OF} rests on [BOS]."),
]


def test_what_a_word_looks_at(tmp_path: Path) -> None:
    cases = [*SAID, *SAID_OF_DECODERS]
    texts = [_text(words, rows) for words, rows, *_ in SAID]
    texts += [_text(words, rows) | {"kind": "decoder"} for words, rows, *_ in SAID_OF_DECODERS]
    told = _run(tmp_path, texts)["texts"]
    found = [head["said"][word] for [[head]], (*_, word, _) in zip(told, cases, strict=True)]
    wanted = [re.sub(r"(?<=\d) %", "\u00a0%", said) for *_, said in cases]
    assert found == [f"In its one head, {said}" for said in wanted]


# Of two sentences that differ in a word, what "it" looks at: the rows of both, each a share by place.
BIG, SMALL = "[CLS] trophy or case it big [SEP] x x x x", "[CLS] trophy or case it small [SEP] x x x x"
FAR = "[CLS] small trophy or old case it is [SEP] x x"
BOTH = [
    (SMALL, {"at1": 0.6}, {"at1": 0.7}, f"it gives trophy 60{OF} with big, 70 % with small: the arc stays."),
    # Odds of 1.5, and of 0.67: less than half of them.
    (SMALL, {"at1": 0.6}, {"at1": 0.4}, f"it gives trophy 60{OF} with big, 40 % with small: the arc fades."),
    (SMALL, {"at1": 0.4}, {"at1": 0.6}, f"it gives trophy 40{OF} with big, 60 % with small: the arc grows."),
    # What is no claim by itself is what the other's claim has become; and it is no change where it is near.
    (SMALL, {"at1": 0.4}, {"at1": 0.3}, f"it gives trophy 40{OF} with big, 30 % with small: the arc stays."),
    (SMALL, {"at1": 0.6}, {}, f"it gives trophy 60{OF} with big, 9 % with small: the arc fades."),
    (
        SMALL,
        {"at1": 0.6},
        {"at3": 0.7},
        f"it gives trophy 60{OF} with big, and case 70 % with small: the arc moves.",
    ),
    (SMALL, {"at5": 0.6}, {"at5": 0.7}, f"it gives big 60{OF}, and small 70 %: the arc follows the change."),
    (SMALL, {"at5": 0.6}, {}, f"it gives big 60{OF}, and small 9 %: the arc fades."),
    (SMALL, {}, {"at5": 0.6}, f"it gives big 9{OF}, and small 60 %: the arc grows."),
    (SMALL, {"at0": 0.9}, {"at4": 0.9}, "it looks at no other word in either sentence."),
    (FAR, {"at1": 0.6}, {"at2": 0.6}, f"it gives trophy 60{OF} above, 60 % below: the arc stays."),
    (FAR, {"at1": 0.6}, {"at4": 0.7}, f"it gives trophy 60{OF} above, and old 70 %: the arc moves."),
    # Nothing stands in the place of what was added.
    (FAR, {}, {"at4": 0.7}, f"it spreads its attention above, and gives old 70{OF}: the arc is new."),
    # Where another word gets more, the arc that is drawn is no claim, but it is not this one either.
    (
        SMALL,
        {"at1": 0.6},
        {"at1": 0.2, "at3": 0.35},
        f"it gives trophy 60{OF} with big, and spreads its attention with small: the arc is gone.",
    ),
    (
        SMALL,
        {"at0": 0.7, "at3": 0.1},
        {"at1": 0.6},
        f"it looks at no other word with big, and gives trophy 60{OF} with small: the arc is new.",
    ),
]


def test_what_becomes_of_an_arc_in_another_sentence(tmp_path: Path) -> None:
    boths = [
        (_text(BIG, {4: _row(11, **one)}), _text(text, {text.split().index("it"): _row(11, **other)}), "it")
        for text, one, other, _ in BOTH
    ]
    found = [said for [[said]] in _run(tmp_path, [], boths=boths)["boths"]]
    wanted = [re.sub(r"(?<=\d) %", "\u00a0%", said) for *_, said in BOTH]
    assert found == [f"In its one head, {said}" for said in wanted]


def test_what_other_heads_do_is_one_line(tmp_path: Path) -> None:
    rests, spread = _row(11, at0=0.6, at10=0.3), _row(11)
    looks = {at: _row(11, at5=0.6) for at in (1, 2, 3)} | {4: rests, 6: rests, 7: spread, 8: spread, 9: rests}
    texts = [_text(MANY, looks), _text(MANY, dict.fromkeys(range(1, 10), rests)), _text(MANY, {}, heads=3)]
    [[[one]], [[two]], [heads]] = _run(tmp_path, texts)["texts"]
    assert one["others"] == "9 other heads: at rest on [CLS] and [SEP], or spread over many words"
    assert two["others"] == "9 heads: at rest on [CLS] and [SEP]"
    assert heads[0]["others"] == "9 heads: spread over many words"
    assert heads[0]["said"][0].startswith("In one of 3 heads, the ")
    assert one["does"] == ["looks"] * 3 + ["rests", "spreads", "rests", "spreads", "spreads", "rests"]


def test_where_most_words_look_at_the_same_one_it_says_so(tmp_path: Path) -> None:
    """Four of the seven others look most at river, two of them by far; the others need not."""
    at = {1: 0.6, 2: 0.6, 3: 0.2, 4: 0.2}
    rows = {query: _row(11, at5=share) for query, share in at.items()} | {6: _row(11, at8=0.7)}
    [[[found]]] = _run(tmp_path, [_text(MANY, rows | {7: _row(11, at8=0.2), 8: _row(11, at1=0.2)})])["texts"]
    said = "4 of 8 words look most at river here."
    assert found["shared"] == [""] * 9
    rows |= {7: _row(11, at5=0.2)}
    [[[found]]] = _run(tmp_path, [_text(MANY, rows | {8: _row(11, at1=0.2)})])["texts"]
    said = said.replace("4 of", "5 of")
    assert found["shared"] == [said, said, "", "", "", "", "", "", ""]  # of a word with a link to it


def test_how_far_words_move(tmp_path: Path) -> None:
    words = ("Write", "poem", "about")

    def moves(*each: float) -> list[dict[str, Any]]:
        return [
            {"text": text, "first": at, "moved": far}
            for at, (text, far) in enumerate(zip(words, each, strict=False))
        ]

    beside = " Two different words here are 0.59 apart."
    cases = {
        "Write moves by 0.11, and about most, by 0.17." + beside: (moves(0.114, 0.02, 0.166), 0, 0.588),
        "about moves most, by 0.17." + beside: (moves(0.114, 0.02, 0.166), 2, 0.588),
        "poem moves by less than 0.01, and Write most, by 0.11." + beside: (moves(0.11, 0.002), 1, 0.588),
        "no word moves by more than 0.02." + beside: (moves(0.011, 0.002), 0, 0.588),
        "Write moves by 0.01, and poem most, by 0.03." + beside: (moves(0.01, 0.03), 0, 0.588),  # 5 % of it
        "about moves most, by 0.02.": (moves(0.01, 0.01, 0.02), None, None),
        "Write moves by 0.02.": (moves(0.02), 0, None),
    }
    assert _run(tmp_path, [], list(cases.values()))["moves"] == list(cases)


def test_what_a_decoder_goes_on_with(tmp_path: Path) -> None:
    def tokens(**shares: float) -> list[dict[str, Any]]:
        return [{"text": f"␣{text}", "probability": share} for text, share in shares.items()]

    before, on = tokens(Mary=0.931, the=0.042, a=0.001), "the model goes on with"
    cases = {
        "the model still goes on with Mary, 93 % → 71 %.": tokens(Mary=0.708, the=0.2),
        f"{on} the (4 % → 51 %), no longer with Mary (93 % → 40 %).": tokens(the=0.51, Mary=0.4),
        f"{on} her (less than 1 % → 51 %), no longer with Mary (93 % → at most 20 %).": tokens(
            her=0.51, the=0.2
        ),
    }
    nexts = [{"before": before, "after": after} for after in cases.values()]
    said = [re.sub(r"(?<=\d) %", "\u00a0%", each) for each in cases]
    assert _run(tmp_path, [], nexts=nexts)["nexts"] == said
    alone = {"before": [{"text": "␣", "probability": 1.0}], "after": [{"text": "␣", "probability": 0.5}]}
    said = "the model still goes on with ␣, 100\u00a0% → 50\u00a0%."
    assert _run(tmp_path, [], nexts=[alone])["nexts"] == [said]


def test_two_words_are_as_far_apart_as_in_python(tmp_path: Path) -> None:
    model = regard.load()
    texts = ["The bank, by the river: a BANK.", "bank Bank .", "un-sinkable ships"]
    traces = [model.trace(text) for text in texts]
    words = [
        [[word.text, trace.embedding(word.span).tolist()] for word in trace.encoding.words]
        for trace in traces
    ]
    one, none, other = _run(tmp_path, [], words=words)["apart"]
    assert none is None
    assert [one, other] == pytest.approx([1 - words_alike([traces[at]]) for at in (0, 2)], abs=1e-6)


def _given(trace: Trace) -> dict[str, Any]:
    """A trace as `said_run.mjs` reads it."""
    [kind] = trace.kinds
    encoding = trace.stack(kind).encoding
    tokens = [
        {"text": each.text, "special": each.special, "sequence": each.sequence, "word": each.word}
        for each in encoding.tokens
    ]
    words = [each.text for each in encoding.words]
    layers = [trace.weights(layer).tolist() for layer in trace.layers_of(kind)]
    return {"kind": kind, "tokens": tokens, "words": words, "layers": layers}


NO_CLAIM = re.compile(
    r"In one of \d+ heads, \S+( can see no other word"
    r"| spreads its attention evenly over the \d+ words( and marks)? that it may see"
    r"| spreads its attention: at most \d+\u00a0%, to \S+; an even share is \d+\u00a0%)\."
)
SIZES = {"small": (48, 6), "base": (768, 12)}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("family", FAMILIES)
def test_before_training_no_word_looks_at_any(family: str, size: str, tmp_path: Path) -> None:
    """The largest odds over even ones: 1.1 in the small models, 3.4 in the others. A claim needs 6."""
    d_model, num_heads = SIZES[size]
    models = [untrained(family, seed, d_model=d_model, num_heads=num_heads) for seed in range(3)]
    traces = [model.trace(text) for model in models for text in SENTENCES]
    told = [
        head
        for layers in _run(tmp_path, list(map(_given, traces)))["texts"]
        for heads in layers
        for head in heads
    ]
    assert len(told) == 3 * len(SENTENCES) * 3 * num_heads
    for head in told:
        assert {*head["does"]} == {"spreads"}
        assert [said for said in head["said"] if not NO_CLAIM.fullmatch(said)] == []
        assert {*head["shared"]} == {""}


def test_before_training_no_arc_of_two_sentences_does_anything(tmp_path: Path) -> None:
    boths = []
    for family in FAMILIES:
        model = untrained(family, 0, d_model=768, num_heads=12)
        texts = (SENTENCES[0], SENTENCES[0].replace("big", "poem").replace("The", "Write"))
        given = [_given(model.trace(text)) for text in texts]
        boths += [(*given, word) for word in ("it", "suitcase", "too")]
    found = [
        said for layers in _run(tmp_path, [], boths=boths)["boths"] for heads in layers for said in heads
    ]
    assert len(found) > 100
    nothing = r"In one of \d+ heads, \S+ looks at no other word in either sentence\."
    assert [each for each in found if not re.fullmatch(nothing, each)] == []


def test_a_trained_model_has_claims(tmp_path: Path) -> None:
    """What the test above would not notice: that nothing is ever claimed."""
    [layers] = _run(tmp_path, [_given(regard.load().trace(SENTENCES[1]))])["texts"]
    does = [each for heads in layers for head in heads for each in head["does"]]
    counts = {name: does.count(name) for name in ("looks", "rests", "spreads")}
    assert min(counts.values()) > 100, counts


def test_a_word_moves_beside_others() -> None:
    said = "The word {} (1 - cosine); two different words of one text are 0.59 apart (others)."
    assert moved([0.11, 0.223, 0.15], 0.588) == said.format("moves by 0.11 to 0.22")
    assert moved([0.029], 0.588) == said.format("hardly moves, by 0.03")
    assert moved([0.03], 0.588) == said.format("moves by 0.03")
    alone = "The word moves by 0.00 (1 - cosine); no text has two different words."
    assert moved([0.0], math.nan) == alone


def test_a_threshold_stands_once() -> None:
    named = inspect.signature(heads_command).parameters["threshold"].default
    assert float(getattr(named, "default", named)) == claims()["effect"]
    trace = untrained("bert", 0).trace(SENTENCES[0])
    assert heads_of_trace(trace).threshold == claims()["effect"]


_PARIS = {"text": "Paris", "probability": 0.64, "tempered": 0.8}


def _from(**shares: float) -> list[dict[str, Any]]:
    return [{"text": text.replace("stop", "."), "share": share} for text, share in shares.items()]


WRITTEN = {
    "Paris comes next, with 64\u00a0%.": ("writtenSaid", _PARIS, 0, []),
    "Paris may come next, with 64\u00a0%: it is read from of.": ("writtenSaid", _PARIS, 1, _from(of=1)),
    # Twice the odds of an even share: 0.5 of three, whose even odds are 1 to 2.
    "Paris comes next, with 64\u00a0%: it is read mostly from France (51\u00a0%).": (
        "writtenSaid",
        _PARIS,
        0,
        _from(capital=0.2, of=0.29, France=0.51),
    ),
    "Paris comes next, with 64\u00a0%: it is read most from France (50\u00a0%).": (
        "writtenSaid",
        _PARIS,
        0,
        _from(capital=0.2, of=0.3, France=0.5),
    ),
    "Paris comes next, with 64\u00a0%: it is read from “.” more than from any other word "
    "(49\u00a0%, where an even share is 33\u00a0%).": (
        "writtenSaid",
        _PARIS,
        0,
        _from(capital=0.2, of=0.31, stop=0.49),
    ),
    "At temperature 0 it always writes the likeliest word, though that has 64\u00a0%.": (
        "temperatureSaid",
        0,
        _PARIS | {"tempered": 1},
    ),
    "At temperature 0.7 likely words are drawn more often: "
    "the first one with 80\u00a0% instead of 64\u00a0%.": ("temperatureSaid", 0.7, _PARIS),
    "At temperature 0.5 likely words are drawn more often.": (
        "temperatureSaid",
        0.5,
        {"probability": 0.995, "tempered": 0.9999},
    ),
    "At temperature 1 each word is drawn with the model’s own share.": ("temperatureSaid", 1, _PARIS),
    "At temperature 1.5 unlikely words get their chance: "
    "the first one with 80\u00a0% instead of 64\u00a0%.": ("temperatureSaid", 1.5, _PARIS),
    "": ("wroteSaid", {"words": 1, "likeliest": 1}),
    "It wrote 7 tokens; 1 was the likeliest.": ("wroteSaid", {"words": 7, "likeliest": 1}),
    "It wrote 7 tokens; 5 were the likeliest.": ("wroteSaid", {"words": 7, "likeliest": 5}),
    "It wrote 7 tokens; each was the likeliest.": ("wroteSaid", {"words": 7, "likeliest": 7}),
}


def test_what_is_said_of_the_next_word(tmp_path: Path) -> None:
    assert _run(tmp_path, [], more=list(WRITTEN.values()))["more"] == list(WRITTEN)


def test_why_a_word_stands_out(tmp_path: Path) -> None:
    """Shares of what raises a score, by hand: 4 of it, of which 1 is taken back; and of what lowers one."""
    names = ["[CLS]", "a", "poem", "of", "mine"]

    def why(total: float, along: float, *parts: tuple[str, int | None, float]) -> list[Any]:
        told = [dict(zip(("said", "source", "value"), part, strict=True)) for part in parts]
        return ["reasonSaid", {"total": total, "parts": told, "along": along}, 2, names]

    word, head = ("the word itself", None, 2.4), ("head 1.4", 1, 1.0)
    begins, network = "poem stands out here", "the feed-forward network of layer 0"
    follows, next_is = "head 1.4 told poem that it follows a", "head 0.2 told poem that of comes next"
    cases = {
        f"{begins} mostly because of the word itself; a quarter because {follows}.": why(
            3, 4, word, head, ("biases", None, 0.3)
        ),
        f"{begins}: a third because {next_is}; a fifth because of {network}; "
        "a tenth because head 2.0 told poem of mine.": why(
            3, 4, ("head 0.2", 3, 1.3), ("feed-forward 0", None, 0.8), ("head 2.0", 4, 0.4)
        ),
        "poem is held back here: half because head 3.1 told poem of itself.": why(
            -1, -4, ("head 3.1", 2, -2.1)
        ),
        f"{begins}: many small parts, the largest because of its position.": why(
            1, 9, ("its position", None, 0.2)
        ),
    }
    assert _run(tmp_path, [], more=list(cases.values()))["more"] == list(cases)
