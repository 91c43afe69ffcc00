"""The recurrent encoder-decoder: read in pieces, written to disk, decoded, and its alignment traced."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import regard
from regard.core import Additive
from regard.decoding import Rules, beam_search, greedy
from regard.models import load_checkpoint, new_network, write_checkpoint
from regard.models.families.bahdanau import BahdanauConfig
from regard.tracing import Trace, page_record
from tolerances import FP64, WEIGHTS, assert_close_to_largest
from unit.models import folders

SOURCE, TARGET = [3, 1, 4, 1, 5], [4, 7, 1, 28, 2, 9]


@pytest.fixture
def network() -> Any:
    """One with weights that tell something."""
    made = folders.network("bahdanau").double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(std=0.5)
    return made


def _ids(*rows: list[int]) -> Tensor:
    return torch.tensor(rows)


@torch.no_grad()
def test_pieces_give_what_the_whole_gives(network: Any) -> None:
    source, target = _ids(SOURCE, [9, 2, 6, 5, 30]), _ids(TARGET, TARGET[::-1])
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    whole = network(source, mask=mask, decoder_token_ids=target).logits
    alone = network(source[1:, :3], decoder_token_ids=target[1:]).logits
    assert_close_to_largest(whole[1:], alone, FP64)
    state = network.begin(network.encode(source, mask=mask), back=2)
    found = [network.decode(piece, state).logits for piece in target[:, :5].split([1, 3, 1], dim=1)]
    assert_close_to_largest(torch.cat(found, dim=1), whole[:, :5], FP64)
    network.decode(torch.tensor([[11], [12]]), state)  # two wrong guesses, taken back
    state.cut(4)
    assert_close_to_largest(network.decode(target[:, 4:], state).logits, whole[:, 4:], FP64)
    state.cut(5)
    state.pick(torch.tensor([1, 0, 1]))
    assert_close_to_largest(network.decode(target[[1, 0, 1], 5:], state).logits, whole[[1, 0, 1], 5:], FP64)


def test_it_is_written_and_read(tmp_path: Path) -> None:
    made = folders.network("bahdanau")
    found = load_checkpoint(write_checkpoint(made, tmp_path / "model")).network
    assert found.config == made.config
    ours, theirs = made.state_dict(), found.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())


def test_begins_as_the_paper_says() -> None:
    sizes = {"vocab_size": 31, "decoder_vocab_size": 31, "d_model": 50, "d_alignment": 40}
    network = new_network(BahdanauConfig(**sizes, starts_xavier=False))
    layer = network.decoder.layers[0]
    attention, unit = layer.cross_attention, layer.unit
    assert float(attention.scorer_v.detach().abs().max()) == 0.0
    assert float(attention.q.weight.detach().std()) == pytest.approx(0.001, rel=0.1)
    assert float(layer.of_context.weight.detach().std()) == pytest.approx(0.01, rel=0.1)
    for matrix in (*unit.gates.weight.split(50), unit.proposal.weight):
        assert_close_to_largest((matrix @ matrix.T).detach(), torch.eye(50), 1e-5)
    assert float(new_network(BahdanauConfig(**sizes)).decoder.layers[0].of_word.weight.detach().std()) > 0.05


def _traced(tmp_path: Path) -> Trace:
    model = regard.load(folders.write(tmp_path, "bahdanau"))
    return model.trace(token_ids=SOURCE, target_ids=TARGET)


def test_its_alignment_is_a_trace_of_cross_attention_alone(tmp_path: Path) -> None:
    trace = _traced(tmp_path)
    assert (trace.kinds, trace.num_layers, trace.num_heads) == (("cross",), 0, 0)
    assert repr(trace).endswith("5 tokens + 6 tokens, 0 layers + 1 layers)")
    inputs = trace.attention()[0].inputs
    assert isinstance(inputs.scorer, Additive)
    hidden = torch.tanh(inputs.q[0, 0, :, None] + inputs.k[0, 0])
    wanted = (hidden @ inputs.scorer.v[0].detach()).softmax(dim=1)
    assert torch.allclose(trace.weights(0, 0), wanted, atol=WEIGHTS)
    assert trace.parity().largest < 2e-5
    again = Trace.open(trace.save(tmp_path / "trace"))
    assert torch.equal(again.weights(layer=0), trace.weights(layer=0))
    e = trace.explain(3, 0, 0)
    assert (e.num_layers, e.made_from, e.formula) == (1, "the state before x is read", "v_a . tanh(q + k)")
    assert np.abs(e.weights - wanted[3].numpy()).max() < WEIGHTS


def test_its_page_has_cross_attention_alone(tmp_path: Path) -> None:
    record = page_record(_traced(tmp_path))
    assert record.kinds == ("cross",)
    assert record.layers["cross"][0].scorer is not None


@torch.no_grad()
def test_greedy_and_beams_with_states_kept_and_read_again(network: Any) -> None:
    rules = Rules(start_ids=(4,), max_length=6)
    texts = [[3, 5, 7], [9]]

    def most_likely(*given: Any, **more: Any) -> list[list[Any]]:
        return [[way] for way in greedy(*given, **more)]

    for write in (most_likely, partial(beam_search, beams=3)):
        kept, again = (write(network, texts, rules=rules, cached=cached) for cached in (True, False))
        assert [[way.token_ids for way in ways] for ways in kept] == [
            [way.token_ids for way in ways] for ways in again
        ]
        assert any(len(way.token_ids) > 1 for ways in kept for way in ways)
