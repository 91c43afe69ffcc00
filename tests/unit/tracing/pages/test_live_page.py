"""The forward pass of a live page, in JavaScript, against Python's on the weights that the page holds."""

import base64
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer as Backend
from tokenizers import models
from torch import Tensor

import regard
from regard.checkpoints import Packed
from regard.core.errors import InputError
from regard.models import Loaded
from regard.positions import DynamicNTKScaling, LinearScaling, Rotary
from regard.text import Tokenizer
from regard.tracing import Trace, Write, Zero
from regard.tracing.pages._live_page import LiveModel, live_loss, live_model
from regard.tracing.pages._names import MANY, MOST_WEIGHTS, names_of
from regard.tracing.pages._next import marks_of
from regard.tracing.reasons import pairs_of_head
from regard.tracing.record import is_punctuation
from unit.models import tiny
from unit.models.folders import network
from unit.models.in_blocks import in_blocks
from unit.views.conftest import facts_of

NODE = shutil.which("node", path=Path(sys.executable).parent)
STATIC = Path(__file__).parents[4] / "src/regard/views/static"  # a wheel has its bundles alone
IDS = [3, 1, 4, 1, 5, 9, 2]
CLOSE = 1e-4


def _loaded(family: str, **changes: Any) -> Loaded:
    torch.manual_seed(0)
    net = network(family, **changes)
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return tiny.loaded(net, family=family)


class Case(NamedTuple):
    """Requests to a live page's model, by WebAssembly or by JavaScript alone."""

    model: LiveModel
    requests: Sequence[Mapping[str, Any]]
    wasm: bool = True


def _ran(folder: Path, *cases: Case) -> list[dict[str, Any]]:
    """What the page says of each, in one process."""
    given = []
    for number, (model, requests, wasm) in enumerate(cases):
        (folder / str(number)).mkdir()
        for name, block in model.weights.blocks.items():
            (folder / str(number) / name).write_bytes(block)
        said = {"blocks": number, "description": model.description}
        given.append(said | {"requests": requests, "wasm": wasm})
    (folder / "given.json").write_text(json.dumps(given), encoding="utf-8")
    script = Path(__file__).with_name("live_run.mjs")
    done = subprocess.run([str(NODE), str(script), str(STATIC), str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


def _check(run: Mapping[str, Any], trace: Trace) -> None:
    """q, k, v of every layer and the residual stream, each against the largest of its numbers."""
    (kind,) = trace.kinds
    passage = trace.stack(None)
    pairs: list[tuple[list[float], Tensor]] = list(zip(run["hidden"], passage.hidden, strict=True))
    for layer, found in enumerate(run["layers"]):
        inputs = trace.attention_of(layer, kind).inputs
        pairs += [(found["q"], inputs.q), (found["k"], inputs.k), (found["v"], inputs.v)]
    for numbers, wanted in pairs:
        expected = wanted.detach().numpy().ravel()
        np.testing.assert_allclose(numbers, expected, rtol=0, atol=CLOSE * max(1, np.abs(expected).max()))


SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("bert", {"num_layers": 3}),
    "bert with a masked-LM head": ("bert", {"head": "masked-lm", "activation": "relu"}),
    "bert, untied": ("bert", {"head": "masked-lm", "tie_word_embeddings": False}),
    "distilbert": ("distilbert", {"head": "masked-lm"}),
    "gpt2": ("gpt2", {}),
    "gpt2, untied and scaled by layer": (
        "gpt2",
        {"tie_word_embeddings": False, "scale_by_layer": True, "activation": "gelu"},
    ),
    "gpt2 without a head": ("gpt2", {"head": None}),
    "llama, in groups": ("llama", {}),
    "llama, pairs of neighbours": (
        "llama",
        {"rotary": Rotary(10, base=1000.0, layout="interleaved", rotary_dim=6), "tie_word_embeddings": True},
    ),
    "mistral": ("mistral", {"sliding_window": 7}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {}),
    "gemma2": ("gemma2", {"sliding_window": 7, "softcap": 2.0, "final_softcap": 1.5}),
    "gemma3, each kind of layer turned its own way": (
        "gemma3_text",
        {
            "sliding_window": 7,
            "rope": {
                "sliding_attention": Rotary(10, base=100.0),
                "full_attention": Rotary(10, base=1e4, scaling=LinearScaling(8.0)),
            },
        },
    ),
}
_NORMED = ("qwen3", "gemma2", "gemma3, each kind of layer turned its own way")


TYPES = [0, 0, 0, 1, 1, 3, 1]


class OfShape(NamedTuple):
    """A model, what it was asked, and the answers by WebAssembly ("wasm") and by JavaScript alone ("js")."""

    live: LiveModel
    asked: list[dict[str, Any]]
    answers: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, OfShape]:
    """All shapes, run in one process."""
    models: dict[str, LiveModel] = {}
    asked: dict[str, list[dict[str, Any]]] = {}
    for shape, (family, changes) in SHAPES.items():
        live = models[shape] = live_model(_loaded(family, **changes))
        last = len(live.description["layers"]) - 1
        asked[shape] = [
            {"ids": [7]},
            {"ids": IDS, "predict": [] if live.description["head"] is None else [6, 2, 4]},
            {"ids": IDS[:4]},
            *([{"ids": IDS, "types": TYPES}] if family == "bert" else []),
            {"ids": IDS, "why": [last, 1]},
            {"ids": IDS, "why": [0, 0]},
            {"ids": IDS, "why": [last, 2], "off": [[0, 1]]},
        ]
    cases = [Case(models[shape], asked[shape], wasm) for shape in SHAPES for wasm in (True, False)]
    answers = iter(_ran(tmp_path_factory.mktemp("shapes"), *cases))
    return {
        shape: OfShape(models[shape], asked[shape], {how: next(answers) for how in ("wasm", "js")})
        for shape in SHAPES
    }


@pytest.mark.parametrize("shape", SHAPES)
def test_the_pass_is_pythons(shape: str, shapes: dict[str, OfShape]) -> None:
    live, asked, answers = shapes[shape]
    model = regard.Model(live.rounded)
    traces = [model.trace(token_ids=request["ids"]) for request in asked[:3]]
    with torch.no_grad():
        logits = model.network(torch.tensor([IDS])).logits
        types = {"token_types": torch.tensor([TYPES])} if "types" in asked[3] else {}
        typed = model.network(torch.tensor([IDS]), **types).last_hidden_state.ravel()
    for how, answer in answers.items():
        assert answer["how"] == how
        for run, trace in zip(answer["runs"], traces, strict=False):
            _check(run, trace)
        if types:
            np.testing.assert_allclose(answer["runs"][3]["hidden"][-1], typed, atol=CLOSE)
        predicted = answer["runs"][1]["predicted"]
        assert [each["at"] for each in predicted] == asked[1]["predict"]
        for each in predicted:
            assert logits is not None
            wanted = logits[0, each["at"]].softmax(0).topk(10)
            assert [best["id"] for best in each["best"]] == wanted.indices.tolist()
            np.testing.assert_allclose(
                [best["probability"] for best in each["best"]], wanted.values, atol=CLOSE
            )


@pytest.mark.parametrize("shape", [each for each in SHAPES if each not in _NORMED])
def test_why_a_head_looks_there_is_pythons(shape: str, shapes: dict[str, OfShape]) -> None:
    live, asked, answers = shapes[shape]
    model = regard.Model(live.rounded)
    traces = {
        "on": model.trace(token_ids=IDS),
        "off": model.edited(Zero("head", layer=0, head=1)).trace(token_ids=IDS),
    }
    for request, run in zip(asked[-3:], answers["wasm"]["runs"][-3:], strict=True):
        trace = traces["off" if "off" in request else "on"]
        wanted, found = pairs_of_head(trace, *request["why"], trace.kind(None)), run["why"]
        assert [pair[:2] for pair in found["pairs"]] == [pair[:2] for pair in wanted["pairs"]]
        for one, other in zip(found["pairs"], wanted["pairs"], strict=True):
            assert one[2] == pytest.approx(other[2], abs=0.011)
            # In Python a distance that adds nothing is a part, too.
            told = [
                [of["parts"][part], source, value]
                for of, pair in ((wanted, other),)
                for part, source, value in pair[3]
            ]
            for (name, source, value), (part, taken, ours) in zip(told, one[3], strict=False):
                if abs(value) > 0.02:
                    assert (found["parts"][part], taken) == (name, source)
                    assert ours == pytest.approx(value, abs=0.011)


def test_why_is_not_said_where_it_is_not_known(tmp_path: Path, shapes: dict[str, OfShape]) -> None:
    """Of weights that were dragged and words that are unseen; of keys that are normed, and of sublayers."""
    live = live_model(_loaded("bert"))
    weight = {"layer": 0, "head": 0, "query": 2, "key": 3, "value": 0.5}
    asked = [{"ids": IDS, "why": [1, 0]} | edit for edit in ({"weights": [weight]}, {"unseen": [2]}, {})]
    (answer,) = _ran(tmp_path, Case(live, asked))
    told = [run["why"] is None for run in answer["runs"]]
    assert told == [True, True, False]
    for shape in _NORMED:
        assert shapes[shape].answers["wasm"]["runs"][-2]["why"] is None


def _dragged(key: int, value: float, *further: tuple[int, float]) -> Any:
    """What regard.Write makes of one row: some weights get a value, the others share the rest as before."""

    def function(row: Tensor) -> Tensor:
        changes = {key: value, **dict(further)}
        others = torch.ones(row.shape[-1])
        others[list(changes)] = 0
        kept = row * others
        made = kept * (1 - sum(changes.values())) / kept.sum(dim=-1, keepdim=True)
        for at, given in changes.items():
            made[..., at] = given
        return made

    return function


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_edits_are_pythons(family: str, tmp_path: Path) -> None:
    live = live_model(_loaded(family, num_layers=3))
    weight = {"layer": 1, "head": 2, "query": 4}
    cases: list[tuple[dict[str, Any], list[Any]]] = [
        ({"off": [[1, 0]]}, [Zero("head", layer=1, head=0)]),
        ({"off": [[0, 1], [2, 2]]}, [Zero("head", layer=0, head=1), Zero("head", layer=2, head=2)]),
        ({"weights": [weight | {"key": 3, "value": 0.9}]}, [Write("weights", _dragged(3, 0.9), **weight)]),
        ({"weights": [weight | {"key": 3, "value": 1.0}]}, [Write("weights", _dragged(3, 1.0), **weight)]),
        (
            {
                "off": [[2, 1]],
                "weights": [weight | {"key": 3, "value": 0.5}, weight | {"key": 0, "value": 0.1}],
            },
            [Zero("head", layer=2, head=1), Write("weights", _dragged(3, 0.5, (0, 0.1)), **weight)],
        ),
        # No other token looks at the first two, which in a decoder see nothing else.
        ({"unseen": [0, 1]}, [Zero("scores", query=[2, 3, 4, 5, 6], key=[0, 1])]),
        ({}, []),
    ]
    (answer,) = _ran(tmp_path, Case(live, [{"ids": IDS} | asked for asked, _ in cases]))
    plain = regard.Model(live.rounded)
    for (_, edits), run in zip(cases, answer["runs"], strict=True):
        model = plain.edited(*edits) if edits else plain
        output = model(torch.tensor([IDS])).last_hidden_state.detach().ravel()
        np.testing.assert_allclose(run["hidden"][-1], output, atol=CLOSE)
    # What a page adds to the scores gives the dragged weights: of two in one row, and of one that takes all.
    for number, wanted in ((3, {3: 1.0}), (4, {3: 0.5, 0: 0.1})):
        row = plain.trace(token_ids=IDS).weights(1, 2)[4].double()
        for each in answer["runs"][number]["layers"][1]["dragged"]:
            row[each["key"]] *= np.exp(each["bias"])
        row /= row.sum()
        for key, value in wanted.items():
            assert float(row[key]) == pytest.approx(value, abs=1e-5)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        *(("bert", {}), ("gpt2", {"d_model": 36}), ("distilbert", {}), ("llama", {})),
        # Of a GELU by tanh, float32 keeps no sign of what is far below 0.
        ("gemma2", {"sliding_window": 7, "activation": "silu"}),
    ],
)
def test_the_facts_of_a_run_are_those_of_a_page(family: str, changes: dict[str, Any], tmp_path: Path) -> None:
    live = live_model(_loaded(family, **changes))
    trace = regard.Model(live.rounded).trace(token_ids=IDS)
    page = trace.page().html
    tokens = [
        {"text": str(id), "surface": str(id), "special": False, "sequence": 0, "word": None} for id in IDS
    ]
    encoded = {"text": None, "pair": None, "ids": IDS, "tokens": tokens, "words": []}
    (answer,) = _ran(tmp_path, Case(live, [{"ids": IDS, "encoded": encoded}]))
    (made,) = answer["runs"]
    (kind,) = trace.kinds
    wanted = facts_of(page)

    ours, theirs = made["facts"]["kinds"][kind], wanted["kinds"][kind]
    known = ("layer", "heads", "kvHeads", "headDim", "softcap", "mask", "bias", "sinks", "rotary")
    for one, other in zip(ours["layers"], theirs["layers"], strict=True):
        for each in (one, other):  # the same numbers, under names of their own
            each["rotary"] = each["rotary"] and each["rotary"] | {"frequencies": None}
        assert {name: one[name] for name in known} == {name: other[name] for name in known}
        assert one["scale"] == pytest.approx(other["scale"])
    # Those that only a trace can tell are not worked out in the browser.
    for name, values in ours["statistics"].items():
        np.testing.assert_allclose(values, theirs["statistics"][name], atol=CLOSE, err_msg=name)
    for one, other in zip(ours["measures"][0]["layers"], theirs["measures"][0]["layers"], strict=True):
        np.testing.assert_allclose(one["most"], other["most"], rtol=1e-3)

    (told, expected) = (each["story"][kind] for each in (made["facts"], wanted))
    for name in ("tokens", "ids", "vocabulary", "dim", "shown", "rows"):
        assert told[name] == expected[name], name
    for part in ("neurons", "parts"):
        plain = {
            name: value for name, value in told[part].items() if isinstance(expected[part][name], int | list)
        }
        assert plain == {name: expected[part][name] for name in plain}
    named = ["lengths", "moved"]
    pairs = [(told[name], expected[name]) for name in named]
    pairs += [(told["neurons"][name], expected["neurons"][name]) for name in ("places", "values", "active")]
    pairs += [(told["parts"]["lengths"], expected["parts"]["lengths"])]
    for one, other in pairs:
        dtype = "<i4" if other.endswith(("neurons", "active")) else "<f4"
        numbers = np.frombuffer(base64.b64decode(made["blocks"][one]), dtype)
        stored = re.search(f'id="regard-{other}">(.*?)</script>', page)
        assert stored is not None
        np.testing.assert_allclose(
            numbers, np.frombuffer(base64.b64decode(stored[1]), dtype), atol=CLOSE, rtol=CLOSE, err_msg=other
        )
    # Of the vectors the first numbers: the contextual embedding is the last of those that are no sum.
    rows = [row for row in told["rows"] if "sum" not in row]
    values = np.frombuffer(base64.b64decode(made["blocks"][told["values"]["values"]]), "<f4")
    last = values.reshape(len(rows), len(IDS), told["shown"])[-1]
    np.testing.assert_allclose(last, trace.embeddings()[:, : told["shown"]], atol=CLOSE)


MARKED = 'In 1969, 12 % of all listeners wrote: "Why isn\'t it?" (So did the listeners of 1969.)'


def _for_names(trace: Trace) -> dict[str, Any]:
    """A request whose answer is the facts of a page, with what the names of heads need."""
    encoding = trace.stack(None).encoding
    special = [token.special for token in encoding.tokens]
    tokens = [
        {"text": each.text, "surface": each.surface, "special": each.special} for each in encoding.tokens
    ]
    return {
        "ids": trace.token_ids,
        "special": special,
        "marks": [is_punctuation(token, encoding.words) for token in encoding.tokens],
        "encoded": {"text": None, "pair": None, "ids": trace.token_ids, "tokens": tokens, "words": []},
    }


def _check_names(facts: Mapping[str, Any], trace: Trace) -> None:
    """The names of heads: the same, in the same order; an effect may round to its neighbour."""
    wanted = names_of(trace, MOST_WEIGHTS)
    assert facts["names"] == {name: wanted[name] for name in ("said", "patterns")}
    (kind,) = trace.kinds
    for ours, theirs in zip(facts["kinds"][kind]["names"], wanted["kinds"][kind], strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert [each | {"effect": None} for each in one] == [each | {"effect": None} for each in other]
            assert [each["effect"] for each in one] == pytest.approx(
                [each["effect"] for each in other], abs=2 * CLOSE
            )


def test_a_decoders_heads_have_pythons_names(tmp_path: Path) -> None:
    loaded = _loaded("gpt2", max_seq_len=41, vocab_size=11)
    for name, parameter in loaded.network.named_parameters():
        if ".q." in name:
            parameter.data *= 16  # heads that look at few tokens
    live = live_model(loaded)
    trace = regard.Model(live.rounded).trace(token_ids=torch.randint(0, 11, (40,)).tolist())
    names = live.description["names"] | {"most": 6 * 40**2 - 1}
    fewer = replace(live, description=live.description | {"names": names})
    asked = [_for_names(trace)]
    (run,), (run_of_fewer,) = (each["runs"] for each in _ran(tmp_path, Case(live, asked), Case(fewer, asked)))
    _check_names(run["facts"], trace)
    assert any(head for layer in run["facts"]["kinds"]["decoder"]["names"] for head in layer)
    assert run_of_fewer["facts"]["names"] == {"said": MANY, "patterns": []}


_ROW = {"layer": 0, "head": 0, "query": 2, "key": 0, "value": 0.5}
REFUSED: dict[str, dict[str, Any]] = {
    "1 to 11 tokens; got 12": {"ids": [1] * 12},
    "1 to 11 tokens; got 0": {"ids": []},
    "from 0 to 30; got 31": {"ids": [1, 31]},
    "no head 2.0": {"off": [[2, 0]]},
    "no head 0.3": {"weights": [_ROW | {"head": 3}]},
    "no token 7": {"weights": [_ROW | {"query": 7}]},
    "cannot see token 3": {"weights": [_ROW | {"key": 3}]},
    "no other word": {"weights": [_ROW | {"query": 0}]},
    "between 0 and 1; got 1.5": {"weights": [_ROW | {"value": 1.5}]},
    "at most 1 together": {"weights": [_ROW | {"key": key, "value": 0.6} for key in (0, 1)]},
    "says no next word": {"predict": [0]},
}


def test_what_cannot_be_run_is_said(tmp_path: Path) -> None:
    live = live_model(_loaded("gpt2", head=None))
    (answer,) = _ran(tmp_path, Case(live, [{"ids": IDS} | each for each in (*REFUSED.values(), {})]))
    for said, run in zip(REFUSED, answer["runs"], strict=False):
        assert said in run["error"]
    _check(answer["runs"][-1], regard.Model(live.rounded).trace(token_ids=IDS))


def test_a_damaged_file_is_said(tmp_path: Path) -> None:
    short, damaged = live_model(_loaded("bert")), live_model(_loaded("bert"))
    del short.weights.blocks["layers.1"][-1]
    damaged.weights.blocks["layers.1"][100] ^= 1
    answers = _ran(tmp_path, *(Case(model, [{"ids": IDS}]) for model in (short, damaged)))
    for answer, said in zip(answers, ("cut short", "damaged"), strict=True):
        assert said in answer["error"]


def test_the_default_model(tmp_path: Path) -> None:
    loaded = regard.load().loaded
    live = live_model(loaded)
    text = "Write a poem about a man fishing on a river bank."
    traces = [regard.Model(live.rounded).trace(each) for each in (text, MARKED, "a river bank")]
    (answer,) = _ran(tmp_path, Case(live, [{"ids": traces[0].token_ids}, *map(_for_names, traces)]))
    _check(answer["runs"][0], traces[0])
    for trace, run in zip(traces, answer["runs"][1:], strict=True):
        _check_names(run["facts"], trace)
    assert (
        sum(len(head) for layer in answer["runs"][2]["facts"]["kinds"]["encoder"]["names"] for head in layer)
        > 40
    )
    assert sum(map(len, live.weights.blocks.values())) < 26e6
    weight, embedding = live_loss(loaded, live.rounded, [(text, None)])
    assert 0 < weight < 0.05
    assert 0.998 < embedding < 1
    # Loading is unharmed: what was packed is a copy.
    assert torch.equal(
        loaded.network.state_dict()["encoder.embeddings.tokens.weight"][7],
        regard.load().network.state_dict()["encoder.embeddings.tokens.weight"][7],
    )


_SUBJECTS = (
    "The capital of France",
    "My grandmother's garden",
    "The old lighthouse",
    "A good recipe",
    "The river bank",
)
_GO_ON = (
    " is",
    " was full of",
    " and the",
    ", they said,",
    "? It",
    " in 1969",
    " never",
    " taught us how to",
    ":",
    "",
)
PROMPTS = [subject + rest for subject in _SUBJECTS for rest in _GO_ON]


@pytest.mark.parametrize("count", [2, pytest.param(50, marks=pytest.mark.slow)])
def test_the_default_decoder(count: int, tmp_path: Path) -> None:
    loaded = regard.load("smollm2").loaded
    live = live_model(loaded)
    assert live.rounded is loaded
    assert sum(map(len, live.weights.blocks.values())) < 102e6
    ids = [list(loaded.require_tokenizer().encode(text).token_ids) for text in PROMPTS[::-1][:count]]
    new = 20 if count > 2 else 4
    asked = [{"ids": each, "next": True} for each in ids] + [{"ids": each, "greedy": new} for each in ids]
    (answer,) = _ran(tmp_path, Case(live, asked))
    runs = answer["runs"]
    for each, run, written in zip(ids, runs[:count], runs[count:], strict=True):
        with torch.no_grad():
            logits = loaded.network(torch.tensor([each + written])).logits[0]
        np.testing.assert_allclose(run["logits"], logits[len(each) - 1], rtol=0, atol=1e-3)
        assert logits[len(each) - 1 : -1].argmax(dim=1).tolist() == written


def test_other_models_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"qwen2, qwen3; tiny is of modernbert; without --live"):
        live_model(_loaded("modernbert"))
    with pytest.raises(InputError, match="has decoders that look back; tiny looks ahead"):
        live_model(_loaded("gemma3_text", is_bidirectional=True, head=None))
    with pytest.raises(InputError, match="tiny has mish"):
        live_model(_loaded("bert", activation="mish"))
    with pytest.raises(InputError, match="those of tiny depend on the text's length"):
        live_model(_loaded("llama", rotary=Rotary(10, base=100.0, scaling=DynamicNTKScaling(2.0, 5))))
    with monkeypatch.context() as patch:
        patch.setattr("regard.tracing.pages._live_page.MOST_PARAMETERS", 1000)
        with pytest.raises(InputError, match="at most 0 million parameters; tiny has 0 million"):
            live_model(_loaded("bert"))
    edited = regard.Model(_loaded("bert")).edited(Zero("head", layer=0, head=0))
    with pytest.raises(InputError, match="tiny is of bert, edited or seen by the lens"):
        live_model(replace(_loaded("bert"), network=edited.network))


@pytest.mark.parametrize(
    ("against", "pair", "message"),
    [
        (" ", None, "^text 2 of 2: text is empty"),
        ("bank " * 600, None, "^text 2 of 2: .*takes at most 512"),
        ("a river bank", None, "^against must be another text"),
        ("a bank", "a river", "^against must .* stand without a pair"),
    ],
)
def test_a_second_text_that_the_page_could_not_open_on(against: str, pair: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        regard.load().live_page("a river bank", pair, against=against)


def test_what_was_read_before_is_kept(tmp_path: Path) -> None:
    live = live_model(_loaded("llama", max_seq_len=200))
    long = (IDS * 20)[:130]
    off, weight = {"off": [[1, 4]]}, {"layer": 0, "head": 5, "query": 4, "key": 3, "value": 0.9}
    asked: list[dict[str, Any]] = [
        {"ids": IDS[:3]},
        {"ids": IDS[:4]},
        {"ids": IDS},
        {"ids": IDS},
        {"ids": [*IDS[:5], 8, 8]},  # of which five tokens were read
        {"ids": IDS[:2]},
        *({"ids": IDS[:count]} | off for count in (5, 6)),
        {"ids": IDS[:6]},
        *({"ids": IDS[:count], "weights": [weight]} for count in (6, 7)),
        {"ids": long},
        {"ids": [*long, 5]},
    ]
    (answer,) = _ran(tmp_path, Case(live, [each | {"next": True} for each in asked]))
    plain = regard.Model(live.rounded)
    for each, run in zip(asked, answer["runs"], strict=True):
        edits: list[Any] = [Zero("head", layer=layer, head=head) for layer, head in each.get("off", [])]
        if "weights" in each:
            edits.append(Write("weights", _dragged(3, 0.9), layer=0, head=5, query=4))
        model = plain.edited(*edits) if edits else plain
        logits = model(torch.tensor([each["ids"]])).logits
        assert logits is not None
        wanted = logits[0, -1].detach()
        np.testing.assert_allclose(run["logits"], wanted, atol=CLOSE * float(wanted.abs().max()))
    # Over all heads, what the last token takes from each: its weight, times how long the taken vector is.
    trace = plain.trace(token_ids=[*long, 5])
    taken = sum(trace.norm_weighted(layer)[:, -1].sum(dim=0) for layer in range(2))
    np.testing.assert_allclose(answer["runs"][-1]["taken"], taken, rtol=1e-3)


def test_blocks_of_a_file_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"vocab_size": 31, "d_model": 64, "d_ff": 96, "head_dim": 32, "tie_word_embeddings": True}
    loaded = _loaded("llama", **sizes, rotary=Rotary(32, base=100.0))
    in_blocks(loaded)
    shapes, unpacked = set(), Packed.unpacked

    def noted(packed: Packed) -> Tensor:
        shapes.add(packed.shape)
        return unpacked(packed)

    with monkeypatch.context() as patch:
        patch.setattr(Packed, "unpacked", noted)
        live = live_model(loaded)
    # Unpacked, a model takes several times the memory of its file. Here W_O is, of one layer at a time.
    assert shapes == {(64, 192)}
    assert live.rounded is loaded
    held = {name: each["type"] for name, each in live.description["tensors"].items() if each["rows"]}
    assert held["embeddings.tokens.weight"] == "Q8_0"
    assert {of for name, of in held.items() if name.startswith("layers")} == {"Q4_1"}
    model = regard.Model(loaded)
    trace, logits = model.trace(token_ids=IDS), model(torch.tensor([IDS])).logits
    assert logits is not None
    asked = [{"ids": IDS, "predict": [6]}]
    for answer in _ran(tmp_path, *(Case(live, asked, wasm) for wasm in (True, False))):
        (run,) = answer["runs"]
        _check(run, trace)
        best = [each["id"] for each in run["predicted"][0]["best"]]
        assert best == logits[0, 6].topk(10).indices.tolist()


def test_a_pruned_model_runs(tmp_path: Path) -> None:
    loaded = _loaded("bert")
    loaded.network.layer("encoder", 1).attention.keep_heads([0, 2])  # type: ignore[union-attr, operator]
    live = live_model(loaded)
    (answer,) = _ran(tmp_path, Case(live, [{"ids": IDS}]))
    _check(answer["runs"][0], regard.Model(live.rounded).trace(token_ids=IDS))


_PLAIN = "{% for each in messages %}<{{ each.role }}>{{ each.content }}<end>{% endfor %}<assistant>"


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        (None, None),
        (_PLAIN, {"begin": "<user>", "answer": "<end><assistant>", "again": "<end><user>"}),
        # One that says a message twice, that counts, and that wants another role first.
        (_PLAIN.replace("{{ each.content }}", "{{ each.content }}{{ each.content }}"), None),
        (_PLAIN.replace("<end>", "{{ messages | length }}"), None),
        ("{{ raise_exception('no') }}", None),
    ],
)
def test_what_stands_around_the_messages_of_a_chat(
    template: str | None, wanted: dict[str, str] | None
) -> None:
    backend = Backend(models.WordLevel({"a": 0}, unk_token="a"))
    assert marks_of(Tokenizer.from_str(backend.to_str(), chat_template=template)) == wanted
