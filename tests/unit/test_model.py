"""`regard.Model`: where all capabilities meet, on the default model."""

import json

import pytest
import torch

import regard
from regard.core.errors import InputError
from tolerances import PARITY_FP32, assert_close_to_largest

FISHING = "Write a poem about a man fishing on a river bank."
MONEY = "Write a poem about a man withdrawing money from a bank."


@pytest.fixture(scope="module")
def model() -> regard.Model:
    return regard.load()


def test_describes_itself(model: regard.Model) -> None:
    facts = model.describe()
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    wanted = {
        "name": "sentence-transformers/all-MiniLM-L6-v2",
        "family": "bert",
        "num_layers": 6,
        "num_heads": 12,
        "d_model": 384,
        "vocab_size": 30522,
        "max_seq_len": 512,
        "parameters": 22713216,
        "dtype": "float32",
        "found_in": "package",
        "use_pooler": True,
        "left_out": [],
    }
    assert {key: facts[key] for key in wanted} == wanted
    assert repr(model).startswith("Model('sentence-transformers/all-MiniLM-L6-v2', bert, 6 layers x 12 heads")


def test_calling_it_calls_the_network(model: regard.Model) -> None:
    ids = torch.tensor([[101, 2924, 102], [101, 102, 0]])
    mask = torch.tensor([[True, True, True], [True, True, False]])
    with torch.no_grad():
        both = model(ids, mask=mask).last_hidden_state
        alone = model(ids[1:, :2]).last_hidden_state
    assert_close_to_largest(both[1, :2], alone[0], PARITY_FP32)


def test_a_list_of_texts_gives_a_list_of_traces(model: regard.Model) -> None:
    traces = model.trace([FISHING, MONEY])
    assert [trace.encoding.texts for trace in traces] == [(FISHING,), (MONEY,)]
    assert torch.equal(traces[1].embedding("bank"), model.trace(MONEY).embedding("bank"))
    assert model.trace(()) == []
    with pytest.raises(InputError, match="pair must be None with a list of texts"):
        model.trace([FISHING], MONEY)  # type: ignore[call-overload]


def test_a_pair(model: regard.Model) -> None:
    trace = model.trace("a bank", "a river")
    assert trace.tokens == ["[CLS]", "a", "bank", "[SEP]", "a", "river", "[SEP]"]


def test_the_documents_ids(model: regard.Model) -> None:
    assert model.trace("time flies like an arrow").token_ids[1:-1] == [2051, 10029, 2066, 2019, 8612]


def test_compares_a_word_between_texts(model: regard.Model) -> None:
    comparison = model.compare([FISHING, MONEY], "bank")
    assert comparison.similarity[:, 0, 1].round(3).tolist() == pytest.approx(
        [1.0, 0.896, 0.897, 0.896, 0.903, 0.913, 0.847], abs=0.0011
    )
    assert comparison.similarity[0, 0, 1] == pytest.approx(1.0, abs=1e-12)
