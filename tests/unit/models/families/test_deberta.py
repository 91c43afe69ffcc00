"""DeBERTa's own parts: buckets, the bias of content with distance, and what its config may not say.

That the whole network is transformers' is tested in tests/parity.
"""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

import regard
from regard.core import (
    AttentionInputs,
    DenseBias,
    Segments,
    Taps,
    attention_weights,
    fused_attention,
    reference_attention,
)
from regard.core.errors import CheckpointError, InputError
from regard.models.families._deberta_layers import (
    DisentangledAttention,
    DisentangledBias,
    RelativePositions,
    log_buckets,
    table_rows,
)
from regard.models.families.deberta import Convolution
from tolerances import FP32_OF_LARGEST, FP64, PARITY_FP32, WEIGHTS, assert_close_to_largest
from unit.models.folders import network, write

HEADS, HEAD_DIM, LENGTH = 3, 5, 13
D_MODEL = HEADS * HEAD_DIM
TERMS = [("c2p", "p2c"), ("c2p",), ("p2c",)]


# --- buckets


@pytest.mark.parametrize("num_buckets", [2, 3, 5, 8, 11, 32, 256])
@pytest.mark.parametrize("beyond", [2, 7, 300])
def test_buckets_are_those_of_transformers(num_buckets: int, beyond: int) -> None:
    max_distance = num_buckets // 2 + beyond
    distances = torch.arange(-701, 702)
    expected = make_log_bucket_position(distances, num_buckets, max_distance).long()
    assert torch.equal(log_buckets(distances, num_buckets=num_buckets, max_distance=max_distance), expected)


def test_rows_end_with_the_table() -> None:
    rows = table_rows(50, span=4, num_buckets=4, max_distance=7)
    assert (int(rows[0]), int(rows[49]), int(rows[98])) == (0, 4, 7)
    assert bool((rows.diff() >= 0).all())


# --- the bias


def made(terms: tuple[str, ...], batch: int) -> tuple[DisentangledAttention, Any]:
    torch.manual_seed(3)
    attention = DisentangledAttention(D_MODEL, HEADS, terms=terms).double()
    positions = RelativePositions(D_MODEL, span=7, max_distance=9, num_buckets=6).double()
    q, k, v = (torch.randn(batch, HEADS, LENGTH, HEAD_DIM, dtype=torch.float64) for _ in range(3))
    return attention, AttentionInputs(
        q=q, k=k, v=v, bias=attention.bias_of(q, k, positions()), scale=attention.scale
    )


def by_hand(
    attention: DisentangledAttention, inputs: AttentionInputs, positions: RelativePositions
) -> Tensor:
    """Equation 4, pair by pair."""
    table = positions.table.weight
    pos_k = (attention.pos_k or attention.k)(table).view(-1, HEADS, HEAD_DIM)
    pos_q = (attention.pos_q or attention.q)(table).view(-1, HEADS, HEAD_DIM)
    result = torch.zeros(len(inputs.q), HEADS, LENGTH, LENGTH, dtype=torch.float64)
    for i in range(LENGTH):
        for j in range(LENGTH):
            bucket = int(make_log_bucket_position(torch.tensor([i - j]), 6, 9))
            row = min(max(bucket + 7, 0), 13)
            if "c2p" in attention.terms:
                result[:, :, i, j] += (inputs.q[:, :, i] * pos_k[row]).sum(-1)
            if "p2c" in attention.terms:
                result[:, :, i, j] += (inputs.k[:, :, j] * pos_q[row]).sum(-1)
    return result / (HEAD_DIM * (1 + len(attention.terms))) ** 0.5


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("shares", [True, False])
def test_any_block_is_the_formula(terms: tuple[str, ...], batch: int, grad: bool, shares: bool) -> None:
    torch.manual_seed(3)
    attention = DisentangledAttention(D_MODEL, HEADS, terms=terms, shares_projections=shares).double()
    positions = RelativePositions(D_MODEL, span=7, max_distance=9, num_buckets=6).double()
    q, k = (torch.randn(batch, HEADS, LENGTH, HEAD_DIM, dtype=torch.float64) for _ in range(2))
    bias = attention.bias_of(q, k, positions())
    assert isinstance(bias, DisentangledBias)
    whole = by_hand(attention, AttentionInputs(q=q, k=k, v=k), positions).detach()
    every = torch.arange(LENGTH)
    picked = [every, every[4:5], every[2:9], every[11:], torch.tensor([7, 0, 12, 3, 3])]
    with torch.set_grad_enabled(grad):
        for rows in picked:
            for columns in picked:
                block = bias.block(rows, columns)
                assert block.shape == (batch, HEADS, len(rows), len(columns))
                assert_close_to_largest(block, whole[:, :, rows][..., columns], FP64)


def test_blocks_of_several_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    _, inputs = made(("c2p", "p2c"), 2)
    every = torch.arange(LENGTH)
    whole = inputs.bias.block(every, every)
    monkeypatch.setattr("regard.models.families._deberta_layers._TILE", 5)
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            assert_close_to_largest(inputs.bias.block(every, every), whole, FP64)
            assert_close_to_largest(inputs.bias.block(every[3:], every), whole[:, :, 3:], FP64)


@pytest.mark.parametrize("terms", TERMS)
def test_gradients_reach_everything(terms: tuple[str, ...]) -> None:
    """The kernel computes the gradients of what `learned` names: here those of a bias that is there whole."""
    torch.manual_seed(3)
    attention = DisentangledAttention(D_MODEL, HEADS, terms=terms, shares_projections=False).double()
    positions = RelativePositions(D_MODEL, span=7, max_distance=9, num_buckets=6).double()
    q, k, v = (
        torch.randn(2, HEADS, LENGTH, HEAD_DIM, dtype=torch.float64, requires_grad=True) for _ in range(3)
    )
    wanted = [q, k, v, positions.table.weight]
    wanted += [
        p for part in (attention.pos_k, attention.pos_q) if part is not None for p in part.parameters()
    ]
    upstream = torch.randn(2, HEADS, LENGTH, HEAD_DIM, dtype=torch.float64)
    every = torch.arange(LENGTH)

    def gradients(bias: Any, compute: Any) -> tuple[Tensor, ...]:
        inputs = AttentionInputs(q=q, k=k, v=v, bias=bias, scale=attention.scale)
        return torch.autograd.grad((compute(inputs) * upstream).sum(), wanted)

    fused = gradients(attention.bias_of(q, k, positions()), fused_attention)
    bias = attention.bias_of(q, k, positions())
    assert isinstance(bias, DisentangledBias)
    dense = gradients(DenseBias(bias.block(every, every)), lambda inputs: reference_attention(inputs).context)
    for ours, expected in zip(fused, dense, strict=True):
        assert bool(expected.any())
        assert_close_to_largest(ours, expected, FP64)


def test_one_head_alone() -> None:
    _, inputs = made(("c2p", "p2c"), 2)
    with torch.no_grad():
        whole = attention_weights(inputs)
        for head in range(HEADS):
            assert_close_to_largest(attention_weights(inputs.head(head))[:, 0], whole[:, head], FP64)


def test_what_is_kept_grows_with_the_length_and_no_faster() -> None:
    attention = DisentangledAttention(D_MODEL, HEADS)
    positions = RelativePositions(D_MODEL, span=7, max_distance=9, num_buckets=6)

    def kept(length: int) -> int:
        q, k = (torch.randn(1, HEADS, length, HEAD_DIM) for _ in range(2))
        bias = attention.bias_of(q, k, positions())
        assert isinstance(bias, DisentangledBias)
        assert bias.c2p is not None
        assert bias.c2p.vectors.data_ptr() == q.data_ptr()  # one text's, no copy
        terms = (bias.c2p, bias.p2c)
        return sum(
            value.numel()
            for term in terms
            for each in fields(term)  # type: ignore[arg-type]
            if isinstance(value := getattr(term, each.name), Tensor)
        )

    assert kept(400) - kept(200) == 2 * (kept(200) - kept(100))


def test_padding_that_is_not_finite_reaches_nothing() -> None:
    net = network("deberta-v2").double()
    ids = torch.tensor([[3, 1, 4, 1, 5, 9, 2]])
    mask = torch.tensor([[True] * 4 + [False] * 3])
    expected = net(ids, mask=mask).last_hidden_state[:, :4]

    def damage(k: Tensor) -> Tensor:
        return torch.where(mask[:, None, :, None], k, torch.nan)

    taps = Taps({"layers.1.attention.k": damage})
    with torch.no_grad():
        assert_close_to_largest(net(ids, mask=mask, taps=taps).last_hidden_state[:, :4], expected, FP64)


# --- taps and traces


def test_a_written_query_changes_its_bias() -> None:
    net = network("deberta-v2").double()
    ids, seen = torch.tensor([[3, 1, 4, 1, 5]]), []
    taps = Taps({"layers.0.attention.q": torch.zeros_like, "layers.0.attention.inputs": seen.append})
    with torch.no_grad():
        net(ids, taps=taps)
    bias = seen[0].bias
    every = torch.arange(5)
    assert not bool(torch.cat(list(bias.c2p.tiles(every, every))).any())
    assert bool(bias.block(every, every).any())


@pytest.mark.parametrize("config", [{}, {"convolution": Convolution(kernel_size=3)}])
def test_weights_read_off_the_record_are_the_models(config: dict[str, Any]) -> None:
    net = network("deberta-v2", **config)
    seen: dict[str, Any] = {}
    taps = Taps(
        {
            f"layers.1.attention.{name}": lambda x, name=name: seen.update({name: x})
            for name in ("inputs", "weights", "context")
        }
    )
    with torch.no_grad():
        net(torch.tensor([[3, 1, 4, 1, 5, 9, 2]]), taps=taps)
        weights = attention_weights(seen["inputs"])
    assert (weights - seen["weights"]).abs().max() < WEIGHTS
    assert_close_to_largest(weights @ seen["inputs"].v, seen["context"], FP32_OF_LARGEST)


def test_a_trace_agrees_with_itself(tmp_path: Path) -> None:
    model = regard.load(write(tmp_path, "deberta-v2"))
    trace = model.trace(token_ids=[3, 1, 4, 1, 5, 9, 2])
    assert trace.weights(1).shape == (3, 7, 7)
    assert abs(float(trace.weights(0, 2, query=4).sum()) - 1.0) < WEIGHTS


# --- the convolution


def test_what_the_network_refuses() -> None:
    for num_buckets, max_distance in ((1, 23), (8, 5), (8, 4)):
        with pytest.raises(InputError, match="must be"):
            log_buckets(torch.arange(3), num_buckets=num_buckets, max_distance=max_distance)
    attention, inputs = made(("c2p",), 1)
    with pytest.raises(InputError, match="RelativePositions"):
        attention.bias_of(inputs.q, inputs.k, inputs.bias)
    net = network("deberta-v2", convolution=Convolution())
    mask = Segments(torch.tensor([[0, 0, 1, 1, 1]]))
    with pytest.raises(InputError, match="convolution"):
        net(torch.tensor([[3, 1, 4, 1, 5]]), mask=mask)


def test_padding_is_zero_to_a_convolution() -> None:
    net = network("deberta-v2", convolution=Convolution())
    ids, mask = torch.tensor([[3, 1, 4, 1, 5]]), torch.tensor([[True, True, True, False, False]])
    short = net(ids[:, :3]).last_hidden_state
    assert_close_to_largest(net(ids, mask=mask).last_hidden_state[:, :3], short, FP32_OF_LARGEST)


# --- config.json


@pytest.mark.parametrize(
    "fields_",
    [
        {"relative_attention": False},
        # transformers stores the norm of a table that it does not have.
        {"relative_attention": False, "norm_rel_ebd": "layer_norm"},
        {"pos_att_type": None},
        {"pos_att_type": []},
    ],
)
def test_without_terms_of_distance(tmp_path: Path, fields_: dict[str, Any]) -> None:
    config = transformers.DebertaV2Config(
        vocab_size=31,
        hidden_size=15,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=19,
        max_position_embeddings=11,
        **({"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "share_att_key": True} | fields_),
    )
    torch.manual_seed(5)
    theirs = transformers.DebertaV2Model(config).eval()
    theirs.save_pretrained(tmp_path)
    ids = torch.tensor([[3, 1, 4, 1, 5, 9, 2]])
    with torch.no_grad():
        expected = theirs(ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        ours = regard.load(tmp_path).network(ids).last_hidden_state
    assert_close_to_largest(ours, expected, PARITY_FP32)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pos_att_type": "c2p|p2p"}, "pos_att_type"),
        ({"pos_att_type": ["c2p", "c2p"]}, "pos_att_type"),
        ({"norm_rel_ebd": "rms_norm"}, "norm_rel_ebd"),
        ({"conv_kernel_size": 4}, "odd"),
        ({"attention_head_size": 7}, "attention_head_size"),
        ({"position_buckets": 1}, "num_buckets"),
        ({"position_buckets": 14}, "max_distance"),
        ({"use_rms_norm": True}, "use_rms_norm"),
    ],
)
def test_fields_that_it_does_not_have(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(CheckpointError, match=said):
        regard.load(write(tmp_path, "deberta-v2", fields=changes))
