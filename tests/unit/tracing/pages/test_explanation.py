"""The walk-through says the record's numbers, in 80 columns, whatever the tokens are."""

import io
import json
import re
import unicodedata
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from regard.tracing import Explanation, Step

HEADS, HEAD_DIM, D_MODEL = 3, 5, 15


def make(count: int = 7, /, **fields: Any) -> Explanation:
    """A record whose calculation holds, of random numbers."""
    rng = np.random.default_rng(11)

    def random(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    q, k, v = random(HEAD_DIM), random(count, HEAD_DIM), random(count, HEAD_DIM)
    scores = k @ q
    powers = np.exp(scores * HEAD_DIM**-0.5)
    weights = powers / powers.sum()
    usual: dict[str, Any] = {
        "model": "random",
        "text": "some text",
        "kind": "encoder",
        "layer": 1,
        "head": 2,
        "num_layers": 2,
        "num_heads": HEADS,
        "token": min(4, count - 1),
        "pieces": (min(4, count - 1),),
        "tokens": tuple(f"t{i}" for i in range(count)),
        "token_pieces": tuple(f"Ġt{i}" for i in range(count)),
        "token_ids": tuple(range(100, 100 + count)),
        "key_tokens": tuple(f"t{i}" for i in range(count)),
        "key_pieces": tuple(f"Ġk{i}" for i in range(count)),
        "learned": random(D_MODEL),
        "scaled": None,
        "position": random(D_MODEL),
        "token_type": None,
        "embedded": random(D_MODEL),
        "embedding_norm": "LayerNorm",
        "x": random(D_MODEL),
        "made_from": "x",
        "before": (),
        "q": q,
        "k": k,
        "v": v,
        "formula": "q . k",
        "left": q,
        "right": k,
        "scores": scores,
        "scaled_scores": scores * HEAD_DIM**-0.5,
        "masked_scores": scores * HEAD_DIM**-0.5,
        "weights": weights,
        "scale": HEAD_DIM**-0.5,
        "context": weights @ v,
        "joined": random(HEADS * HEAD_DIM),
        "output": random(D_MODEL),
        "after": (),
        "contextual": random(D_MODEL),
    }
    if "tokens" in fields:
        usual["key_tokens"] = fields["tokens"]
    return Explanation(**(usual | fields))


def printed(explanation: Explanation, width: int = 80) -> str:
    file = io.StringIO()
    Console(file=file, width=width, highlight=False).print(explanation)
    return file.getvalue()


def table(lines: list[str]) -> list[list[str]]:
    """The rows of the table of keys, cell by cell."""
    return [line.split() for line in keys_part(lines) if re.match(r" *\d+ t\d+ ", line)]


def keys_part(lines: list[str]) -> list[str]:
    """The lines of step 6."""
    first, last = (next(at for at, line in enumerate(lines) if line.startswith(f"{n}. ")) for n in (6, 7))
    return lines[first:last]


def columns(line: str) -> int:
    """The columns of a line, by Unicode's own tables and not by the library that laid it out."""
    return sum(
        0 if unicodedata.combining(char) or char in "\u200d\ufe0f" else
        2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in line
    )  # fmt: skip


def test_says_every_number_of_the_row() -> None:
    e = make()
    lines = printed(e).splitlines()
    rows = table(lines)
    assert [row[:2] for row in rows] == [[str(key), f"t{key}"] for key in range(7)]
    for key, row in enumerate(rows):
        assert row[2:4] == [f"{e.k[key, 0]:.3f}", f"{e.k[key, 1]:.3f}"]
        assert row[4:7] == [f"{e.scores[key]:.4f}", f"{e.scaled_scores[key]:.4f}", f"{e.weights[key]:.4f}"]
        assert len("".join(row[7:])) == round(14 * e.weights[key])
    text = "\n".join(lines)
    for name in ("learned", "x", "q", "context", "joined", "output", "contextual"):
        [line] = [line for line in lines if re.match(rf"  {name} +-?\d", line)]
        assert line.split()[1:6] == [f"{value:.4f}" for value in getattr(e, name)[:5]]
    assert "Attention of t4 (token 4), layer 1 of 0..1, head 2 of 0..2" in text
    assert "The scale is 0.447214 = 1/√5." in text
    assert "The weights of all 7 tokens sum to 1.000000." in text
    assert "t0:100 t1:101" in text


def test_works_out_the_largest_weight() -> None:
    e = make()
    best, second = np.argsort(-e.weights)[:2]
    text = printed(e)
    products = f"{e.q[0]:.4f} x {e.k[best, 0]:.4f} + {e.q[1]:.4f} x {e.k[best, 1]:.4f}"
    assert f"Worked out for the largest, t{best}:" in text
    assert f"q . k = {products} + … 5 terms = {e.scores[best]:.4f}" in text
    total = np.exp(e.masked_scores.astype(float) - e.masked_scores[best]).sum()
    assert f"= 1 / {total:.4f} = {e.weights[best]:.4f}" in text
    first = f"{e.weights[best]:.4f} x {e.v[best, 0]:.4f}"
    then = f"{e.weights[second]:.4f} x {e.v[second, 0]:.4f}"
    assert f"context[0] = {first} + {then} + … 7 terms = {e.context[0]:.4f}" in text


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize(
    "fields",
    [
        {"tokens": tuple("河" * i for i in range(1, 8)), "text": "河岸" * 400},
        {"tokens": ("👍",) * 7, "text": "👍 " * 300},
        {"tokens": ("w" * 100,) * 7, "text": "w" * 3000, "pieces": tuple(range(1, 7)), "token": 1},
        {"tokens": ("[bold]x[/bold]", "[/x]", "\x1b[31m", "\n", "\t", ":smile:", "e\u0301")},
        {"model": "m" * 200},
        {"scores": np.full(7, -123456.789), "masked_scores": np.full(7, -98765.4321)},
        {"x": np.full(15, -1e30), "contextual": np.full(15, np.nan)},
        {"k": np.full((7, 5), -12345.678), "q": np.full(5, -9999.5), "v": np.full((7, 5), -99999.5)},
        {"masked_scores": np.array([-np.inf] * 6 + [0.0]), "weights": np.array([0.0] * 6 + [1.0])},
        {"masked_scores": np.full(7, -np.inf), "weights": np.zeros(7), "context": np.zeros(5)},
    ],
)  # fmt: skip
def test_fits_its_columns(fields: dict[str, Any], width: int) -> None:
    lines = printed(make(**fields), width).splitlines()
    assert max(map(columns, lines)) <= width
    numbers = [line.split()[0] for line in keys_part(lines) if line[:5].strip().isdigit()]
    assert numbers == list("0123456")


def test_a_row_that_may_attend_to_nothing() -> None:
    e = make(masked_scores=np.full(7, -np.inf), weights=np.zeros(7), context=np.zeros(5))
    text = printed(e)
    assert "weight = 0, since the mask forbids every key" in text
    assert [row[6:] for row in table(text.splitlines())] == [["-inf", "0.0000"]] * 7


def test_one_token_and_one_dimension() -> None:
    e = make(1, q=np.ones(1), k=np.ones((1, 1)), v=np.ones((1, 1)), context=np.ones(1), scale=1.0)
    text = printed(e)
    assert "sum to 1.000000" in text
    assert "The scale is 1 = 1/√1." in text


def test_another_scale_is_no_root() -> None:
    assert "The scale is 1." in printed(make(scale=1.0))


def test_many_tokens_are_summed_up() -> None:
    e = make(503, token=250, pieces=(250,), text="t " * 5000)
    lines = printed(e).splitlines()
    assert len(lines) < 100
    assert max(map(columns, lines)) <= 80
    text = "\n".join(lines)
    assert "(218 more) … t218:318" in text
    assert "t281:381 … (221 more)" in text.replace("\n", " ")
    order = np.argsort(-e.weights)
    assert f"471 more {1 - e.weights[order[:32]].sum():42.4f}".split() in [line.split() for line in lines]
    assert [int(row[0]) for row in table(lines)] == sorted(order[:32].tolist())
    assert "The weights of all 503 tokens sum to 1.000000." in text


def test_text_is_printed_literally_and_not_obeyed() -> None:
    e = make(
        text="[bold]x[/bold] \x1b[31m \x07 \u202e :smile:\nnext",
        model="\x1b]0;title\x07",
        tokens=("[CLS]", "[/x]", "\x1b[2J", "\x9b1m", "t", "\u2066", "[SEP]"),
    )
    text = printed(e)
    assert not [char for char in text if unicodedata.category(char) in ("Cc", "Cf") and char != "\n"]
    assert "“[bold]x[/bold] ␛[31m ␇ \\u202e :smile:↵next”" in text
    assert "[/x]:101 ␛[2J:102 \\x9b1m:103" in text
    assert e.to_json()["text"] == e.text
    assert e.to_json()["tokens"] == list(e.tokens)


def test_pieces_and_token_type_are_named() -> None:
    text = printed(make(pieces=(4, 5), token_type=np.full(15, 0.25)))
    assert "The word is 2 tokens: t4 (4), t5 (5). This is the first; --token asks for one." in text
    assert "Position and token type, added, then LayerNorm" in text
    assert "token type         0.2500" in text
    assert "The word is" not in printed(make())
    assert "token type" not in printed(make())


def test_a_scaled_embedding_is_a_step_of_its_own() -> None:
    assert not re.search(r"^  scaled ", printed(make(scaled=None)), re.MULTILINE)
    shown = printed(make(scaled=np.full(D_MODEL, 2.5)))
    assert re.search(r"^  learned .*\n  scaled +2\.5000 ", shown, re.MULTILINE)


def test_what_is_not_there_is_not_printed() -> None:
    text = printed(make(position=None, output=None))
    assert "3. Nothing is added for the position" in text
    assert not re.search(r"^  (position|output) ", text, re.MULTILINE)
    of_type = printed(make(position=None, token_type=np.full(15, 0.25)))
    assert "3. Token type, added" in of_type
    assert "token type         0.2500" in of_type
    assert "3. Position, added" in printed(make())
    assert make(position=None, output=None).to_json()["position"] is None


def test_cross_attention_is_over_the_other_text_s_tokens() -> None:
    keys = tuple(f"s{i}" for i in range(7))
    e = make(kind="cross", tokens=("a", "b", "c"), token_ids=(7, 8, 9), token=1, pieces=(1,), key_tokens=keys)
    text = printed(e)
    assert text.startswith("Cross-attention of b (token 1), layer 1 of 0..1")
    assert "a:7 b:8 c:9" in text
    keys = re.findall(r"^ *(\d+) (s\d) ", "\n".join(keys_part(text.splitlines())), re.MULTILINE)
    assert keys == [(str(i), f"s{i}") for i in range(7)]
    assert f"Worked out for the largest, s{int(np.argmax(e.weights))}:" in text
    assert "The weights of all 7 tokens sum to 1.000000." in text
    assert "… 7 terms" in text
    assert "5. Query q, made from the state (5 dimensions)" in printed(make(made_from="the state"))
    assert "5. Query q, made from x (5 dimensions)" in printed(make())
    assert printed(make(kind="decoder")).startswith("Attention of t4")
    many = make(503, kind="cross", tokens=("a", "b"), token_ids=(7, 8), token=1, pieces=(1,))
    many = replace(many, key_tokens=tuple(f"s{i}" for i in range(503)))
    assert "471 more" in printed(many)


def test_layer_0_reads_the_sum() -> None:
    assert "Input x of layer 0: what the embeddings give" in printed(make(layer=0))
    assert "Input x of layer 1: the output of layer 0" in printed(make())


def test_json_holds_every_field_and_no_infinity() -> None:
    e = make(masked_scores=np.array([1.5, -np.inf, 2, 3, 4, 5, 6], np.float32))
    plain = json.loads(json.dumps(e.to_json(), allow_nan=False))
    assert set(plain) == set(Explanation.__dataclass_fields__)
    assert plain["masked_scores"] == [1.5, None, 2, 3, 4, 5, 6]
    assert plain["k"] == e.k.tolist()
    assert plain["token_type"] is None
    assert plain["pieces"] == [4]
    assert plain["scale"] == e.scale


def test_a_sink_takes_its_share_and_is_no_key() -> None:
    plain = make()
    powers = np.exp(plain.masked_scores.astype(float))
    total = powers.sum() + np.exp(0.75)
    weights, sink = (powers / total).astype(np.float32), float(np.exp(0.75) / total)
    e = make(weights=weights, sink=sink, context=weights @ plain.v)
    best = int(np.argmax(weights))
    text = printed(e)
    assert [row[6] for row in table(text.splitlines())] == [f"{weight:.4f}" for weight in weights]
    assert f"The weights of all 7 tokens sum to {1 - sink:.6f}." in text
    assert f"The rest, {sink:.6f}, goes to the head's sink, which has no value." in text
    assert "sum over keys and sink of exp(scaled)" in text
    assert f"= 1 / {total / powers[best]:.4f} = {weights[best]:.4f}" in text
    assert "… 7 terms" in text
    assert json.loads(json.dumps(e.to_json()))["sink"] == sink
    assert "sink" not in printed(plain)
    assert plain.to_json()["sink"] is None


def test_a_sink_may_take_everything() -> None:
    text = printed(make(weights=np.zeros(7), context=np.zeros(5), sink=1.0))
    assert "The rest, 1.000000, goes to the head's sink" in text
    assert "= 1 / inf = 0.0000" in text


def test_every_step_is_shown() -> None:
    """The sum of the embeddings, its norm, the mask, values, and what follows the attention."""
    masked = np.array([1.5, -np.inf, 2, 3, 4, 5, 6], np.float32)
    powers = np.where(np.isfinite(masked), np.exp(masked), 0)
    after = (Step("x + attention", np.full(15, 0.125)), Step("LayerNorm", np.full(15, 0.375)))
    e = make(
        masked_scores=masked,
        weights=powers / powers.sum(),
        before=(Step("RMSNorm", np.full(15, 0.5)),),
        after=after,
    )
    text = printed(e)
    lines = text.splitlines()
    total = " ".join(f"{value:.4f}" for value in (e.learned + e.position)[:5])
    [summed] = [line for line in lines if line.startswith("  sum ")]
    assert " ".join(summed.split()[1:6]) == total
    assert [row[5:7] for row in table(lines)][:2] == [[f"{e.scaled_scores[0]:.4f}", f"{e.weights[0]:.4f}"],
                                                     [f"{e.scaled_scores[1]:.4f}", "-inf"]]  # fmt: skip
    assert "Query q, made from x by way of RMSNorm" in text
    assert re.search(r"^  RMSNorm +0\.5000", text, re.MULTILINE)
    assert re.search(r"^  x \+ attention +0\.1250 .*\n  LayerNorm +0\.3750", text, re.MULTILINE)
    start = next(at for at, line in enumerate(lines) if line.startswith("7. ")) + 2
    order = np.argsort(-e.weights, kind="stable")
    shares = [line.split()[-1] for line in lines[start : start + len(order)]]
    assert shares == [f"{e.weights[key] * e.v[key, 0]:.4f}" for key in order]
    assert json.loads(json.dumps(e.to_json()))["after"][0]["name"] == "x + attention"


def test_it_shows_itself() -> None:
    e = make(tokens=("<b>", *"cdefgh"))
    assert "Attention of" in str(e)
    assert "&lt;b&gt;" in e._repr_html_()
    assert e.to_pandas()["weight"].tolist() == pytest.approx(e.weights.tolist())
    assert e.to_arrow().column_names == ["key", "token", "piece", "score", "scaled", "seen", "weight"]
    assert e.to_pandas()["piece"].tolist() == e.to_json()["key_pieces"] == [f"Ġk{i}" for i in range(7)]
