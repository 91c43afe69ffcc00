"""The story of a page: every vector on a token's way is the worked calculation's own."""

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.core.errors import InputError
from regard.models import Kind
from regard.tracing import KeepPolicy, Trace, movement, trace_ids, trace_text
from regard.tracing.comparison import Movement
from regard.tracing.pages import _story
from regard.tracing.pages._story import beside, ending_of, word_at
from regard.views import Page
from tolerances import FP32_OF_LARGEST, FP64, assert_close_to_largest
from unit.models import tiny
from unit.models.folders import write, write_tokenizer
from unit.tracing.conftest import TEXT, make_loaded
from unit.tracing.stacks import loaded as of_network
from unit.views.conftest import block_of, facts_of, steps_of


@dataclass
class Told:
    """A story as a reader of the page has it."""

    facts: Any
    page: Page

    def block(self, name: str, dtype: str) -> Any:
        return block_of(self.page, name, dtype)

    def vectors(self) -> list[np.ndarray]:
        """Of each row (tokens, shown): sums are added up."""
        rows, (tokens, shown) = self.facts["rows"], (len(self.facts["tokens"]), self.facts["shown"])
        count = sum("sum" not in row for row in rows)
        named = self.facts["values"]
        if named["steps"] is None:
            values = self.block(named["values"], "<f4").reshape(count, tokens, shown)
        else:
            steps = steps_of(self.page, named["steps"]).reshape(count, 1, shown)
            values = self.block(named["values"], "<i2").reshape(count, tokens, shown) * steps
        stored, found = iter(values), []
        for row in rows:
            found.append(sum(found[place] for place in row["sum"]) if "sum" in row else next(stored))
        return found

    def lengths(self) -> Any:
        return self.block(self.facts["lengths"], "<f4").reshape(-1, len(self.facts["tokens"]))


def _told(page: Page, kind: str = "encoder") -> Told:
    return Told(facts_of(page)["story"][kind], page)


TRACES: dict[str, Any] = {
    "post-norm": lambda: trace_text(make_loaded(), TEXT),
    "pre-norm": lambda: trace_ids(of_network(tiny.decoder(), tokenizer=False), [3, 5, 7, 4]),
    "both": lambda: trace_ids(of_network(tiny.both(), tokenizer=False), [3, 5, 7], [4, 6, 1, 2]),
}


@pytest.mark.parametrize("name", TRACES)
def test_every_vector_is_that_of_the_worked_calculation(name: str) -> None:
    trace: Trace = TRACES[name]()
    kinds: list[Kind] = [kind for kind in trace.kinds if kind != "cross"]
    for kind in kinds:
        told = _told(trace.page(), kind)
        vectors, lengths, rows = told.vectors(), told.lengths(), told.facts["rows"]
        assert told.facts["tokens"] == list(range(len(trace.stack(kind).tokens)))
        assert told.facts["ids"] == list(trace.stack(kind).encoding.token_ids)
        at = 2
        walked = [place for place, row in enumerate(rows) if row["layer"] is not None]
        for layer in range(len(trace.stack(kind).attention)):
            e = trace.explain(at, layer, kind=kind)
            steps = [*e.before, ("attention", e.output), *e.after]
            wanted = [each if isinstance(each, tuple) else (each.name, each.vector) for each in steps]
            wanted = [(said, vector) for said, vector in wanted if said != "hidden"]
            of_layer = [place for place in walked if rows[place]["layer"] == layer]
            assert [rows[place]["name"] for place in of_layer] == [said for said, _ in wanted]
            for place, (_, vector) in zip(of_layer, wanted, strict=True):
                shown = vectors[place][at]
                assert np.abs(shown - vector[: len(shown)]).max() <= told.facts["difference"] + 1e-6
                assert lengths[place][at] == pytest.approx(np.linalg.norm(vector), rel=1e-5)
        states = {row["hidden"]: place for place, row in enumerate(rows) if "hidden" in row}
        assert list(states) == list(range(len(trace.stack(kind).hidden)))
        for number, place in states.items():
            state = trace.stack(kind).hidden[number][:, : told.facts["shown"]].detach().numpy()
            assert_close_to_largest(vectors[place], state, 1e-4)
        assert 0 < told.facts["difference"] < 5e-4


def test_names_the_way_and_its_sums() -> None:
    rows = _told(trace_text(make_loaded(), TEXT).page()).facts["rows"]
    first = [(row["part"], row["name"], row.get("sum"), row.get("hidden")) for row in rows[:11]]
    assert first == [
        ("embedding", "learned", None, None),
        ("embedding", "position", None, None),
        ("embedding", "token type", None, None),
        ("embedding", "sum", [0, 1, 2], None),
        ("embedding", "LayerNorm", None, 0),
        ("attention", "attention", None, None),
        ("attention", "x + attention", [4, 5], None),
        ("attention", "LayerNorm", None, None),
        ("feed-forward", "feed-forward", None, None),
        ("feed-forward", "x + feed-forward", [7, 8], None),
        ("feed-forward", "LayerNorm", None, 1),
    ]
    rows = _told(TRACES["both"]().page(), "decoder").facts["rows"]
    assert [row["part"] for row in rows if row["layer"] == 0 and row["name"].startswith("x + ")] == [
        "attention", "cross-attention", "feed-forward",
    ]  # fmt: skip
    assert rows[-1] == {"layer": 2, "part": "final", "name": "final RMSNorm", "hidden": 3}


def test_tells_neurons_heads_and_how_far_it_moved() -> None:
    trace = trace_text(make_loaded(), TEXT)
    told = _told(trace.page())
    neurons, parts, count = told.facts["neurons"], told.facts["parts"], len(trace.tokens)
    places = told.block(neurons["places"], "<i4").reshape(2, count, neurons["top"])
    values = told.block(neurons["values"], "<f4").reshape(places.shape)
    lengths = told.block(parts["lengths"], "<f4").reshape(2, count, parts["heads"])
    moved = told.block(told.facts["moved"], "<f4").reshape(2, 3, 3, count)
    assert parts["attentions"] == [{"kind": "encoder", "layer": 0}, {"kind": "encoder", "layer": 1}]
    for layer in (0, 1):
        [hidden] = (step.vector for step in trace.explain("bank", layer).after if step.name == "hidden")
        order = np.argsort(-np.abs(hidden))[:5]
        assert places[layer, 4].tolist() == order.tolist()
        assert_close_to_largest(values[layer, 4], hidden[order], FP32_OF_LARGEST)
        active = told.block(neurons["active"], "<i4").reshape(2, count)
        assert active[layer, 4] == (hidden > 0).sum()
        weight = trace.require_model().network.encoder.layers[layer].attention.output.weight  # type: ignore[union-attr]
        for head in range(3):
            added = weight[:, 5 * head : 5 * head + 5] @ trace.context(layer, head)[4]
            assert lengths[layer, 4, head] == pytest.approx(float(added.detach().norm()), rel=1e-5)
    learned, *states = [trace.embeddings(layer) for layer in (0, "input", 1, 2)]
    for place, state in enumerate(states):
        for to, other in enumerate((learned, states[0], states[max(0, place - 1)])):
            cosine = torch.cosine_similarity(state, other, dim=1)
            assert np.abs(moved[0, to, place] - cosine.numpy()).max() < 1e-6
            assert np.abs(moved[1, to, place] - (state - other).norm(dim=1).numpy()).max() < 1e-5


def test_says_what_can_be_seen_and_no_more(trace: Trace) -> None:
    rows = _told(replace(trace, loaded=None).page()).facts["rows"]
    assert [row["name"] for row in rows if row["layer"] == 0] == ["attention", "output"]
    assert (rows[-1]["part"], rows[-1]["hidden"]) == ("output", 2)
    facts = _told(replace(trace, loaded=None).page()).facts
    assert (facts["neurons"], facts["parts"], facts["vocabulary"]) == (None, None, None)
    both: Trace = TRACES["both"]()
    assert both.decoder is not None
    crossed = replace(both.decoder, cross_attention=both.decoder.cross_attention[::2], cross_layers=(0, 2))
    rows = _told(replace(both, decoder=crossed).page(), "decoder").facts["rows"]
    assert [row["name"] for row in rows if row["layer"] == 1] == ["attention", "output"]
    kept = trace_text(make_loaded(), TEXT, keeping=KeepPolicy(keep="qkv"))
    assert "encoder-story" not in kept.page().html


def test_a_long_text_s_story_is_of_the_tokens_around_a_place(
    trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_story, "MOST_TOKENS", 4)
    for around, tokens in ((0, (0, 1, 2, 3)), (4, (2, 3, 4, 5)), (8, (5, 6, 7, 8))):
        story = _story.story_record(trace, "encoder", around)
        assert story is not None
        assert story.tokens == tokens
        whole = trace.explain(tokens[1], 1).contextual
        assert_close_to_largest(story.rows[-1].values[1], whole[:32], FP32_OF_LARGEST)


def test_a_decoder_ends_with_its_next_words(tmp_path: Path) -> None:
    write_tokenizer(write(tmp_path, "gpt2"), 31)
    model = regard.load(tmp_path)
    trace = model.trace("w1 w2 w3")
    ending = ending_of(trace, "decoder")
    assert ending is not None
    with torch.no_grad():
        logits = model(torch.tensor([model.tokenizer.encode("w1 w2 w3").token_ids])).logits
    best = logits[0, -1].double().softmax(dim=0).topk(10).values.tolist()
    assert [each["probability"] for each in ending["next"]] == pytest.approx(best, rel=1e-3)


def test_an_encoder_ends_with_its_words_where_they_mean_something_else() -> None:
    model = regard.load()
    trace = model.trace("Write a poem about a man fishing on a river bank.")
    ending = ending_of(trace, "encoder", first=4)
    assert ending is not None
    beside = ending["beside"]
    assert [*beside["of"]] == [4, 7, 1, 10, 3, 11, 6, 8]  # the word that it opens on, and the longest others
    assert beside["of"][11]["text"] == "She keeps her savings in a bank."
    assert beside["of"][3]["text"] == "What does the word poem mean?"
    two = movement([trace, model.trace("What does the word poem mean?")], "poem").project(directions=True)
    np.testing.assert_allclose(beside["of"][3]["points"], two.points, rtol=1e-3, atol=1e-3)
    assert ending_of(trace, "encoder", with_words=False) is None


NODE = shutil.which("node", path=Path(sys.executable).parent)
STATIC = Path(__file__).parents[4] / "src/regard/views/static"  # a wheel has its bundles alone


def test_the_page_projects_as_python_does(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    apart = rng.standard_normal((2, 8, 30)) * np.linspace(3, 0.1, 30)
    together = apart.copy()
    together[:, 0] = apart[0, 0]  # one row of the table
    alike = np.stack([apart[0], apart[0]])
    line = np.zeros((2, 4, 3))
    line[0, :, 1] = [0, 1, 2, 3]
    cases = [apart, together, alike, line, np.zeros((2, 3, 2))]
    (tmp_path / "pairs.json").write_text(json.dumps([case.tolist() for case in cases]), encoding="utf-8")
    script = Path(__file__).with_name("beside_run.mjs")
    done = subprocess.run(
        [str(NODE), str(script), str(STATIC), str(tmp_path / "pairs.json")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for vectors, found in zip(cases, json.loads(done.stdout), strict=True):
        steps = tuple(map(str, range(vectors.shape[1])))
        names = {"model": "m", "words": ("bank", "coast"), "texts": ("x", "y"), "steps": steps}
        wanted = Movement(vectors=vectors, **names).project()
        assert not wanted.ends  # of two words there is a way in common
        size = max(1.0, float(np.abs(vectors).max()))
        np.testing.assert_allclose(found["points"], wanted.points, rtol=0, atol=FP64 * size * 10)
        np.testing.assert_allclose(found["far"], wanted.true[:, 0, 1], rtol=0, atol=FP64 * size * 10)
        np.testing.assert_allclose(found["share"], wanted.share, rtol=0, atol=FP64 * 10)
        part = None if wanted.apart is None else pytest.approx(wanted.apart, abs=FP64 * 10)
        assert found["apart"] == part


def test_the_word_is_the_same_or_the_one_most_like_it() -> None:
    model = regard.load()
    trace = model.trace("The trophy does not fit into the suitcase.")
    other = model.trace("The prize would not go in my bag.")
    words = {token: beside(trace, other, word_at(trace, token))["words"] for token in (2, 4, 8)}
    assert words == {2: ["trophy", "prize"], 4: ["not", "not"], 8: ["suitcase", "bag"]}
    assert beside(trace, other)["words"] == ["trophy", "prize"]  # of those with four letters and more
    twice = model.trace("A bank by a bank.")
    assert beside(twice, trace, word_at(twice, 5))["words"][0] == "bank#2"
    with pytest.raises(InputError, match="part of a word of the text; got 0"):
        word_at(trace, 0)
    with pytest.raises(InputError, match="second must have a word"):
        beside(trace, model.trace("..."))
