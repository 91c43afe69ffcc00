"""Multi-head attention against loops over heads, queries and keys."""

import math

import pytest
import torch
from torch import Tensor

from regard.blocks import MultiHeadAttention, RMSNorm
from regard.core import AttentionInputs, Bias, Causal, DenseBias, Mask, Padding, Taps, Window
from regard.core.errors import InputError
from tolerances import FP32_OF_LARGEST, FP64, assert_close_to_largest
from unit.blocks.by_hand import project, read_and_written, rms_norm_by_hand
from unit.blocks.fakes import FakeRotation

BATCH, QUERIES, KEYS, D_MODEL, D_SOURCE = 2, 5, 7, 13, 11


def by_hand(
    block: MultiHeadAttention,
    x: Tensor,
    source: Tensor,
    allowed: Tensor | None = None,
    bias: Tensor | None = None,
    position_ids: Tensor | None = None,
) -> Tensor:
    """The block, every sum written out; `allowed` (batch, queries, keys), `bias` (heads, queries, keys).

    With `position_ids` (batch or 1, N), queries and keys are turned as `FakeRotation` does.
    """
    heads, groups = block.num_heads, block.num_heads // block.num_kv_heads
    d_k = block.q.out_features // heads
    d_v = block.v.out_features // block.num_kv_heads
    scale = 1 / math.sqrt(d_k) if block.scale is None else block.scale
    result = []
    for b in range(x.shape[0]):
        numbers = None if position_ids is None else position_ids[b % len(position_ids)].tolist()
        q = [
            _prepared(project(block.q, row), d_k, block.q_norm, numbers, i)
            for i, row in enumerate(x[b].tolist())
        ]
        k = [
            _prepared(project(block.k, row), d_k, block.k_norm, numbers, i)
            for i, row in enumerate(source[b].tolist())
        ]
        v = [project(block.v, row) for row in source[b].tolist()]
        rows = []
        for i in range(len(q)):
            joined: list[float] = []
            for h in range(heads):
                kv = h // groups
                mine = q[i][h * d_k : (h + 1) * d_k]
                seen = [j for j in range(len(k)) if allowed is None or allowed[b, i, j]]
                scores = []
                for j in seen:
                    key = k[j][kv * d_k : (kv + 1) * d_k]
                    score = scale * math.fsum(m * n for m, n in zip(mine, key, strict=True))
                    if block.softcap is not None:
                        score = block.softcap * math.tanh(score / block.softcap)
                    scores.append(score if bias is None else score + bias[h, i, j].item())
                top = max(scores, default=0.0)
                powers = [math.exp(score - top) for score in scores]
                for d in range(d_v):
                    weighted = (p * v[j][kv * d_v + d] for p, j in zip(powers, seen, strict=True))
                    joined.append(math.fsum(weighted) / math.fsum(powers) if seen else 0.0)
            rows.append(project(block.output, joined))
        result.append(rows)
    return torch.tensor(result, dtype=torch.float64)


def _prepared(
    row: list[float], d_k: int, norm: RMSNorm | None, numbers: list[int] | None, place: int
) -> list[float]:
    """Each head's part of a query or key, normed, then turned."""
    done: list[float] = []
    for start in range(0, len(row), d_k):
        part = row[start : start + d_k]
        if norm is not None:
            part = rms_norm_by_hand(part, norm.weight.tolist(), norm.offset, norm.eps)
        if numbers is not None:
            part = [part[0] * (numbers[place] + 2), *part[1:]]
        done += part
    return done


def made(num_heads: int = 3, **kwargs: object) -> MultiHeadAttention:
    kwargs = {"head_dim": 5} | kwargs
    return MultiHeadAttention(D_MODEL, num_heads, **kwargs).double()


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(lambda: made(), id="self"),
        pytest.param(lambda: MultiHeadAttention(12, 3).double(), id="default-head-dim"),
        pytest.param(lambda: made(v_dim=7), id="wider-values"),
        pytest.param(lambda: made(v_dim=2), id="narrower-values"),
        pytest.param(lambda: made(6, num_kv_heads=2, v_dim=3), id="grouped"),
        pytest.param(lambda: made(6, num_kv_heads=1), id="one-kv-head"),
        pytest.param(lambda: made(use_bias=False), id="no-bias"),
        pytest.param(lambda: made(use_bias=True, output_bias=False), id="no-bias-of-the-output"),
        pytest.param(lambda: made(use_bias=False, output_bias=True), id="bias-of-the-output-alone"),
        pytest.param(lambda: made(scale=1.7), id="scale"),
        pytest.param(lambda: made(softcap=0.5), id="softcap"),
        pytest.param(lambda: made(1, head_dim=1, v_dim=1), id="smallest"),
    ],
)
@pytest.mark.parametrize("mask", [None, Causal(), Window(left=1, right=2)], ids=["none", "causal", "window"])
def test_self_attention(block: object, mask: Mask | None) -> None:
    attention: MultiHeadAttention = block()  # type: ignore[operator]
    x = torch.randn(BATCH, KEYS, attention.q.in_features, dtype=torch.float64)
    allowed = None if mask is None else mask.dense(KEYS, KEYS)[:, 0].expand(BATCH, -1, -1)
    wanted = by_hand(attention, x, x, allowed)
    assert_close_to_largest(attention(x, mask=mask), wanted, FP64)
    # The reference form, taken where somebody wants the weights.
    listened = attention(x, mask=mask, taps=Taps({"weights": lambda value: None}))
    assert_close_to_largest(listened, wanted, FP64)
    single = attention.float()(x.float(), mask=mask)
    assert_close_to_largest(single, wanted, FP32_OF_LARGEST)


@pytest.mark.parametrize("kwargs", [{}, {"v_dim": 7}, {"num_kv_heads": 1}], ids=["plain", "v_dim", "grouped"])
def test_cross_attention(kwargs: dict[str, int]) -> None:
    attention = made(d_source=D_SOURCE, **kwargs)
    x = torch.randn(BATCH, QUERIES, D_MODEL, dtype=torch.float64)
    source = torch.randn(BATCH, KEYS, D_SOURCE, dtype=torch.float64)
    real = torch.tensor([[True] * KEYS, [True] * 3 + [False] * 4])
    allowed = real[:, None, :].expand(-1, QUERIES, -1)
    wanted = by_hand(attention, x, source, allowed)
    assert wanted.shape == (BATCH, QUERIES, D_MODEL)
    assert_close_to_largest(attention(x, source, mask=Padding(real)), wanted, FP64)
    source[1, 3:] = torch.nan  # what is masked does not matter, whatever it is
    assert_close_to_largest(attention(x, source, mask=Padding(real)), wanted, FP64)


def test_a_bias_on_the_scores() -> None:
    attention = made()
    x = torch.randn(BATCH, KEYS, D_MODEL, dtype=torch.float64)
    bias = torch.randn(3, KEYS, KEYS, dtype=torch.float64)
    wanted = by_hand(attention, x, x, bias=bias)
    assert_close_to_largest(attention(x, bias=bias[None]), wanted, FP64)


# --- norms and rotation of queries and keys


def normed_attention(which: str = "qk", **kwargs: object) -> MultiHeadAttention:
    norms = {f"{name}_norm": RMSNorm(5, eps=1e-3, offset=1.0) for name in which}
    attention = made(6, num_kv_heads=2, v_dim=3, **norms, **kwargs)
    with torch.no_grad():
        for name in norms:
            getattr(attention, name).weight.copy_(torch.randn(5))
    return attention


@pytest.mark.parametrize("which", ["q", "k", "qk"])
def test_norms_over_every_head_s_queries_and_keys(which: str) -> None:
    attention = normed_attention(which)
    x = torch.randn(BATCH, KEYS, D_MODEL, dtype=torch.float64)
    wanted = by_hand(attention, x, x)
    assert_close_to_largest(attention(x), wanted, FP64)
    assert_close_to_largest(attention(x, taps=Taps({"weights": lambda value: None})), wanted, FP64)
    attention.q_norm = attention.k_norm = None
    assert (attention(x) - wanted).abs().max().item() > 1e-3


@pytest.mark.parametrize("rows", [1, BATCH])
@pytest.mark.parametrize("which", ["", "qk"])
def test_the_rotation_comes_after_the_norms(which: str, rows: int) -> None:
    # Turned before its norm, a query would lose what the rotation multiplied it by.
    attention = normed_attention(which)
    x = torch.randn(BATCH, KEYS, D_MODEL, dtype=torch.float64)
    numbers = torch.randint(0, 5, (rows, KEYS))
    wanted = by_hand(attention, x, x, position_ids=numbers)
    output = attention(x, rotation=FakeRotation(numbers))
    assert_close_to_largest(output, wanted, FP64)
    assert (attention(x) - wanted).abs().max().item() > 1e-3


def test_the_points_show_what_enters_the_softmax() -> None:
    attention = normed_attention()
    x = torch.randn(1, KEYS, D_MODEL, dtype=torch.float64)
    rotation = FakeRotation(torch.arange(KEYS)[None])
    seen: dict[str, Tensor] = {}
    records: list[AttentionInputs] = []

    def keep(name: str) -> object:
        return lambda value: seen.__setitem__(name, value)

    attention(x, rotation=rotation, taps=Taps({**{n: keep(n) for n in "qkv"}, "inputs": records.append}))
    assert attention.q_norm is not None
    heads = attention.q(x).view(1, KEYS, 6, 5).transpose(1, 2)
    assert_close_to_largest(seen["q"], rotation.apply(attention.q_norm(heads)), FP64)
    assert_close_to_largest(seen["v"], attention.v(x).view(1, KEYS, 2, 3).transpose(1, 2), FP64)
    for name in "qkv":
        assert getattr(records[0], name) is seen[name]


# --- a bias of the architecture's own


def test_a_subclass_may_add_to_the_scores_what_depends_on_queries_and_keys() -> None:
    class OwnBias(MultiHeadAttention):
        def bias_of(self, q: Tensor, k: Tensor, bias: Bias | Tensor | None) -> Bias | Tensor | None:
            asked.append((q, k, bias))
            return given

    asked: list[tuple[Tensor, Tensor, object]] = []
    given = torch.randn(1, 3, KEYS, KEYS, dtype=torch.float64)
    attention = OwnBias(D_MODEL, 3, head_dim=5).double()
    x = torch.randn(1, KEYS, D_MODEL, dtype=torch.float64)
    rotation = FakeRotation(torch.arange(KEYS)[None])
    handed = DenseBias(torch.zeros(1, 1, 1, 1, dtype=torch.float64))
    points: list[Tensor] = []
    output = attention(
        x, bias=handed, rotation=rotation, taps=Taps({"q": points.append, "k": lambda value: value + 1})
    )
    [(q, k, bias)] = asked
    assert q is points[0]
    assert bias is handed
    plain = MultiHeadAttention(D_MODEL, 3, head_dim=5).double()
    plain.load_state_dict(attention.state_dict())
    written = Taps({"k": lambda value: value + 1})
    assert_close_to_largest(output, plain(x, bias=given, rotation=rotation, taps=written), FP64)
    unwritten = plain.k(x).view(1, KEYS, 3, 5).transpose(1, 2)
    assert_close_to_largest(k, rotation.apply(unwritten) + 1, FP64)


# --- nothing to see


def test_a_query_that_sees_nothing_gets_the_output_s_bias() -> None:
    attention = made()
    x = torch.randn(BATCH, KEYS, D_MODEL, dtype=torch.float64, requires_grad=True)
    real = torch.tensor([[True] * KEYS, [False] * KEYS])
    output = attention(x, mask=Padding(real))
    assert torch.equal(output[1], attention.output.bias.expand(KEYS, -1))
    output.sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert not x.grad[1].any()
    assert x.grad[0].any()


def test_parameters_and_their_sizes() -> None:
    attention = MultiHeadAttention(13, 6, num_kv_heads=2, head_dim=5, v_dim=7, d_source=11)
    assert {name: tuple(value.shape) for name, value in attention.state_dict().items()} == {
        "q.weight": (30, 13),
        "q.bias": (30,),
        "k.weight": (10, 11),
        "k.bias": (10,),
        "v.weight": (14, 11),
        "v.bias": (14,),
        "output.weight": (13, 42),
        "output.bias": (13,),
    }


@pytest.mark.parametrize(
    ("kwargs", "with_bias"),
    [
        ({}, ["q", "k", "v", "output"]),
        ({"use_bias": False}, []),
        ({"output_bias": False}, ["q", "k", "v"]),
        ({"use_bias": False, "output_bias": True}, ["output"]),
        ({"use_bias": True, "output_bias": True}, ["q", "k", "v", "output"]),
        ({"use_bias": False, "output_bias": False}, []),
    ],
)
def test_which_projections_have_a_bias(kwargs: dict[str, bool], with_bias: list[str]) -> None:
    names = MultiHeadAttention(6, 2, **kwargs).state_dict()
    assert [name.removesuffix(".bias") for name in names if name.endswith(".bias")] == with_bias


def test_the_norms_of_queries_and_keys_are_parameters() -> None:
    attention = MultiHeadAttention(12, 6, num_kv_heads=2, q_norm=RMSNorm(2), k_norm=RMSNorm(2))
    norms = {name: tuple(value.shape) for name, value in attention.state_dict().items() if "norm" in name}
    assert norms == {"q_norm.weight": (2,), "k_norm.weight": (2,)}


@pytest.mark.parametrize(
    ("arguments", "kwargs", "message"),
    [
        ((13, 3), {}, "num_heads must divide d_model; got 3 and 13. Otherwise give head_dim"),
        ((12, -3), {}, "num_kv_heads must divide num_heads; got -3 and -3"),
        ((12, 6), {"num_kv_heads": 4}, "num_kv_heads must divide num_heads; got 4 and 6"),
        ((12, 6), {"num_kv_heads": 0}, "num_kv_heads must divide num_heads; got 0 and 6"),
        ((12, 6), {"dropout_p": 1.0}, "dropout_p must be a probability .*; got 1.0"),
    ],
)
def test_what_is_refused(arguments: tuple[int, int], kwargs: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        MultiHeadAttention(*arguments, **kwargs)  # type: ignore[arg-type]


# --- taps

POINTS = ["q", "k", "v", "scores", "weights", "context", "output"]
SHAPES = {
    "q": (2, 6, 7, 5),
    "k": (2, 2, 7, 5),
    "v": (2, 2, 7, 3),
    "scores": (2, 6, 7, 7),
    "weights": (2, 6, 7, 7),
    "context": (2, 6, 7, 3),
    "output": (2, 7, 13),
}


@pytest.fixture
def tapped() -> MultiHeadAttention:
    return made(6, num_kv_heads=2, v_dim=3)


@pytest.fixture
def x() -> Tensor:
    return torch.randn(BATCH, KEYS, D_MODEL, dtype=torch.float64)


def test_every_point_is_offered_once_in_order(tapped: MultiHeadAttention, x: Tensor) -> None:
    seen: list[tuple[str, tuple[int, ...]]] = []

    def listen(name: str) -> object:
        return lambda value: seen.append((name, tuple(value.shape)))

    tapped(x, taps=Taps({name: listen(name) for name in POINTS}))
    assert seen == [(name, SHAPES[name]) for name in POINTS]
    everything: list[object] = []
    tapped(x, taps=Taps({"*": everything.append}))
    assert len(everything) == len(POINTS) + 1  # and `inputs`
    assert list(MultiHeadAttention.TAPS) == [*POINTS[:3], "inputs", *POINTS[3:]]


@pytest.mark.parametrize("point", POINTS)
def test_a_write_changes_the_output_and_a_copy_does_not(
    tapped: MultiHeadAttention, x: Tensor, point: str
) -> None:
    seen = read_and_written(point, lambda taps: tapped(x, taps=taps), moves=1e-3)
    assert seen.shape == SHAPES[point]


def test_what_is_written_is_what_is_used(tapped: MultiHeadAttention, x: Tensor) -> None:
    # Attention turned off by hand: every query attends to itself alone, so the context is its own value.
    values: list[Tensor] = []
    contexts: list[Tensor] = []

    def itself(weights: Tensor) -> Tensor:
        return torch.eye(KEYS, dtype=weights.dtype).expand_as(weights).clone()

    tapped(x, taps=Taps({"weights": itself, "v": values.append, "context": contexts.append}))
    assert_close_to_largest(contexts[0], values[0].repeat_interleave(3, dim=1), FP64)


def test_one_head_can_be_removed(tapped: MultiHeadAttention, x: Tensor) -> None:
    def without(context: Tensor) -> Tensor:
        context = context.clone()
        context[:, 4] = 0.0
        return context

    contexts: list[Tensor] = []
    whole = tapped(x, taps=Taps({"context": contexts.append}))
    ablated = tapped(x, taps=Taps({"context": without}))
    share = contexts[0][:, 4] @ tapped.output.weight[:, 12:15].T
    assert_close_to_largest(whole - ablated, share, FP64)


def test_a_write_is_differentiable(tapped: MultiHeadAttention, x: Tensor) -> None:
    factor = torch.ones((), dtype=torch.float64, requires_grad=True)
    tapped(x, taps=Taps({"scores": lambda value: value * factor})).sum().backward()
    assert factor.grad is not None
    assert factor.grad.item() != 0.0


def test_inputs_can_be_read_but_not_written(tapped: MultiHeadAttention, x: Tensor) -> None:
    with pytest.raises(InputError, match="listener at 'inputs' must return None"):
        tapped(x, taps=Taps({"inputs": lambda record: record.q}))


def test_inputs_hold_what_was_written_to_q(tapped: MultiHeadAttention, x: Tensor) -> None:
    records: list[object] = []
    tapped(x, taps=Taps({"q": torch.zeros_like, "inputs": records.append}))
    assert not records[0].q.any()  # type: ignore[attr-defined]


# --- dropout


def test_dropout_is_off_in_evaluation(x: Tensor) -> None:
    attention = made(dropout_p=0.5)
    plain = made()
    plain.load_state_dict(attention.state_dict())
    assert not torch.equal(attention(x), plain(x))  # a module is made in training mode
    attention.eval()
    assert torch.equal(attention(x), plain(x))
    assert torch.equal(plain.train()(x), plain.eval()(x))


def test_dropout_can_be_repeated(x: Tensor) -> None:
    attention = made(dropout_p=0.5)
    torch.manual_seed(3)
    first, second = attention(x), attention(x)
    torch.manual_seed(3)
    assert torch.equal(attention(x), first)
    assert torch.equal(attention(x), second)
    assert not torch.equal(first, second)
    torch.manual_seed(3)
    assert_close_to_largest(attention(x, taps=Taps({"weights": lambda value: None})), first, FP64)


def test_dropout_acts_on_weights_and_on_nothing_else() -> None:
    # Values that are unit vectors: the context is the matrix of weights itself, after dropout.
    count, p = 67, 0.25
    attention = MultiHeadAttention(count, 1, use_bias=False, dropout_p=p).double()
    with torch.no_grad():
        attention.v.weight.copy_(torch.eye(count))
    weights: list[Tensor] = []
    contexts: list[Tensor] = []
    attention(
        torch.eye(count, dtype=torch.float64)[None],
        taps=Taps({"weights": weights.append, "context": contexts.append}),
    )
    before, after = weights[0][0, 0], contexts[0][0, 0]
    assert_close_to_largest(before.sum(dim=1), torch.ones(count), FP64)
    dropped = after == 0.0
    assert_close_to_largest(after, torch.where(dropped, 0.0, before / (1 - p)), FP64)
    # 4489 draws: five standard deviations are 0.032
    assert dropped.double().mean().item() == pytest.approx(p, abs=0.033)
