"""OpenVINO's graph against the networks that it stands for, at every layer."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import regard
from parity.conftest import Workshop
from parity.families import ENTRIES, UNDER_TEST
from regard.core.errors import InputError, MissingExtraError
from regard.embedding import Embedder, Request
from regard.embedding._engine import NetworkEngine
from regard.embedding._openvino import OpenVinoEngine
from regard.models import Transformer, load_checkpoint
from tolerances import PARITY_FP32, assert_close_to_largest
from unit.models.tiny import both, decoder

pytestmark = pytest.mark.usefixtures("quiet")

TAKEN = (
    "bert",
    "distilbert",
    "roberta",
    "xlm-roberta",
    "electra",
    "electra-one-size",
    "mpnet",
    "distilbert-sinusoidal",
)


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize("layers", ["all", "learned", "middle"])
def test_every_layer(workshop: Workshop, name: str, layers: str) -> None:
    network, batch = workshop.network(name), ENTRIES[name].inputs("base").all()["plain"]
    depth = network.depth("encoder")
    asked = {"all": range(depth + 1), "learned": [0], "middle": [depth - 1, 0]}[layers]
    shape, ids = [tuple(batch.token_ids.shape)], batch.token_ids.flatten()
    with torch.no_grad():
        theirs = NetworkEngine(network, asked).hidden(ids, shape)  # type: ignore[arg-type]
    ours = OpenVinoEngine(network, asked).hidden(ids, shape)  # type: ignore[arg-type]
    for one, other in zip(ours, theirs, strict=True):
        assert one.shape == other.shape
        assert_close_to_largest(one, other, PARITY_FP32)


@pytest.mark.parametrize("activation", ["gelu_new", "relu", "silu", "tanh", "mish"])
def test_each_activation(workshop: Workshop, activation: str) -> None:
    network = workshop.network("bert", hidden_act=activation)
    ids = torch.randint(5, network.config.vocab_size, (3 * 7,))
    depth = network.depth("encoder")
    with torch.no_grad():
        (theirs,) = NetworkEngine(network, [depth]).hidden(ids, [(3, 7)])
    (ours,) = OpenVinoEngine(network, [depth]).hidden(ids, [(3, 7)])
    assert_close_to_largest(ours, theirs, PARITY_FP32)


def test_a_scale_of_the_scores(workshop: Workshop) -> None:
    network = regard.load(workshop.saved("bert").folder).network
    assert isinstance(network, Transformer)
    network.stack("encoder").layers[0].attention.scale = 0.7  # type: ignore[union-attr]
    ids = torch.randint(5, network.config.vocab_size, (7,))
    with torch.no_grad():
        (theirs,) = NetworkEngine(network, [1]).hidden(ids, [(1, 7)])
    (ours,) = OpenVinoEngine(network, [1]).hidden(ids, [(1, 7)])
    assert_close_to_largest(ours, theirs, PARITY_FP32)


def test_others_are_refused_by_name(workshop: Workshop) -> None:
    refused = {}
    for name in UNDER_TEST:
        try:
            OpenVinoEngine(workshop.network(name), [1])
        except InputError as error:
            refused[name] = str(error)
    assert {name for name in UNDER_TEST if name not in refused} == set(TAKEN)
    assert "a decoder" in refused["llama"]
    assert "a norm after the last layer" in refused["modernbert"]
    for message in refused.values():
        assert "this model has a part of another: " in message
        assert message.endswith("Give engine='torch'.")


@pytest.mark.parametrize("make", [decoder, both])
def test_decoders_are_refused(make: type[Transformer]) -> None:
    with pytest.raises(InputError, match=r"runs encoders of BERT's kind"):
        OpenVinoEngine(make(), [1])


def test_many_calls_at_once_give_the_same_bits(workshop: Workshop) -> None:
    network = workshop.network("bert")
    engine = OpenVinoEngine(network, [1, 2], threads=2)
    shapes = [(1 + number % 3, 2 + number % 5) for number in range(37)]
    ids = [torch.randint(5, network.config.vocab_size, (rows * length,)) for rows, length in shapes]
    alone = [engine.hidden(each, [shape]) for each, shape in zip(ids, shapes, strict=True)]
    with ThreadPoolExecutor(5) as pool:
        together = list(pool.map(lambda each, shape: engine.hidden(each, [shape]), ids, shapes))
    for one, other in zip(alone, together, strict=True):
        for mine, theirs in zip(one, other, strict=True):
            assert torch.equal(mine, theirs)


def test_an_embedder_on_it() -> None:
    loaded = load_checkpoint()
    texts = [
        "time flies like an arrow",
        "a river bank",
        "a man fishing",
        "unbelievably long compliments " * 60,
    ]
    ours = Embedder(loaded, Request(engine="openvino", dtype=torch.float32, threads=2))
    theirs = Embedder(loaded, Request(dtype=torch.float32))
    assert_close_to_largest(ours.sentences(texts).vectors, theirs.sentences(texts).vectors, PARITY_FP32)
    assert ours.settled["engine"] == "openvino"
    assert ours.settled["kernel"].startswith("OpenVINO 20")
    words = Request(engine="openvino", dtype=torch.float32, level="word", layer=[0, 4])
    by_word, own = (
        Embedder(loaded, words),
        Embedder(loaded, Request(level="word", layer=[0, 4], dtype=torch.float32)),
    )
    found, wanted = by_word.spans(texts), own.spans(texts)
    assert found.texts == wanted.texts
    assert np.abs(found.vectors - wanted.vectors).max() <= PARITY_FP32 * np.abs(wanted.vectors).max()


def test_the_type_is_one_that_the_processor_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.embedding._settle._fastest", lambda *_: torch.bfloat16)
    monkeypatch.setattr(OpenVinoEngine, "has_arithmetic", staticmethod(lambda dtype: dtype == torch.float32))
    assert Embedder(load_checkpoint(), Request(engine="openvino", threads=1)).settled["dtype"] == "float32"


def test_bfloat16_where_the_processor_has_it(workshop: Workshop) -> None:
    import openvino

    network = workshop.network("bert")
    if "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        (state,) = OpenVinoEngine(network, [1], dtype=torch.bfloat16).hidden(
            torch.tensor([5, 6, 7]), [(1, 3)]
        )
        assert state.dtype == torch.float32
    else:
        with pytest.raises(InputError, match="this processor has no bfloat16"):
            OpenVinoEngine(network, [1], dtype=torch.bfloat16)
    with pytest.raises(InputError, match=r"float32 or bfloat16 with engine='openvino'; got torch.float64"):
        OpenVinoEngine(network, [1], dtype=torch.float64)


def test_without_the_extra(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(MissingExtraError, match=r"pip install openvino"):
        OpenVinoEngine(workshop.network("bert"), [1])
