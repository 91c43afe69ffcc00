"""Scorers against plain Python loops over floats, forward and gradient, in every form of attention."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from regard.core import (
    Additive,
    AttentionInputs,
    Bilinear,
    Causal,
    Cosine,
    Dot,
    Padding,
    ScaledDot,
    Scorer,
    attention_errors,
    attention_scores,
    attention_weights,
    fused_attention,
    reference_attention,
    row_statistics,
)
from regard.core.errors import InputError
from tolerances import FP32_OF_LARGEST, FP64, WEIGHTS, assert_close_to_largest

BATCH, HEADS, KV_HEADS, QUERIES, KEYS, DIM, V_DIM = 2, 4, 2, 5, 7, 3, 2

# What each of them says about one query and one key, and the factor of its scores.
Rule = Callable[[list[float], list[float], list], float]


def _dot(q: list[float], k: list[float], _: list) -> float:
    return math.fsum(a * b for a, b in zip(q, k, strict=True))


def _bilinear(q: list[float], k: list[float], w: list) -> float:
    return math.fsum(q[i] * w[i][j] * k[j] for i in range(DIM) for j in range(DIM))


def _cosine(q: list[float], k: list[float], _: list) -> float:
    lengths = math.sqrt(_dot(q, q, _) * _dot(k, k, _))
    return _dot(q, k, _) / lengths if lengths else 0.0


def _additive(q: list[float], k: list[float], v: list) -> float:
    return math.fsum(v[i] * math.tanh(q[i] + k[i]) for i in range(DIM))


CASES: dict[str, tuple[Callable[[Tensor], Scorer], Rule, tuple[int, ...], float]] = {
    "scaled dot": (lambda _: ScaledDot(), _dot, (HEADS, 1), DIM**-0.5),
    "dot": (lambda _: Dot(), _dot, (HEADS, 1), 1.0),
    "bilinear": (Bilinear, _bilinear, (HEADS, DIM, DIM), 1.0),
    "cosine": (lambda _: Cosine(temperature=0.25), _cosine, (HEADS, 1), 4.0),
    "additive": (Additive, _additive, (HEADS, DIM), 1.0),
}
CAP = 1.5


def _tensors(shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """q, k, v and what the scorer learns, each wanting a gradient."""
    shapes = [
        (BATCH, HEADS, QUERIES, DIM),
        (BATCH, KV_HEADS, KEYS, DIM),
        (BATCH, KV_HEADS, KEYS, V_DIM),
        shape,
    ]
    return [torch.randn(each, dtype=dtype).requires_grad_() for each in shapes]


def _inputs(name: str, given: list[Tensor], softcap: float | None, mask: Causal | Padding) -> AttentionInputs:
    q, k, v, learned = given
    return AttentionInputs(q=q, k=k, v=v, mask=mask, scorer=CASES[name][0](learned), softcap=softcap)


def _loops(name: str, given: list[Tensor], softcap: float | None, allowed: list) -> tuple[list, list]:
    """Scores and contexts, nested lists; `allowed` is [batch][query][key]."""
    (q, k, v, learned), (_, rule, _, factor) = [each.tolist() for each in given], CASES[name]
    scores: list = []
    contexts: list = []
    for b in range(BATCH):
        scores.append([])
        contexts.append([])
        for h in range(HEADS):
            keys, values = k[b][h // 2], v[b][h // 2]
            raw = [[rule(q[b][h][i], keys[j], learned[h]) for j in range(KEYS)] for i in range(QUERIES)]
            scores[b].append(raw)
            contexts[b].append([])
            for i in range(QUERIES):
                scaled = [factor * each for each in raw[i]]
                capped = [softcap * math.tanh(x / softcap) if softcap else x for x in scaled]
                powers = [math.exp(x) if see else 0.0 for x, see in zip(capped, allowed[b][i], strict=True)]
                total = math.fsum(powers)
                row = [
                    math.fsum(p * value[d] for p, value in zip(powers, values, strict=True))
                    for d in range(V_DIM)
                ]
                contexts[b][h].append([each / total for each in row])
    return scores, contexts


def _loss(contexts: list | Tensor, upstream: Tensor) -> Tensor:
    return (torch.as_tensor(contexts, dtype=torch.float64) * upstream).sum()


@pytest.mark.parametrize("softcap", [None, CAP])
@pytest.mark.parametrize("name", CASES)
def test_every_form_against_loops(name: str, softcap: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    given = _tensors(CASES[name][2])
    mask = Padding(torch.tensor([[True] * KEYS, [True] * 4 + [False] * 3]))
    allowed = [[real] * QUERIES for real in mask.real.tolist()]
    with torch.no_grad():
        given[1][1, :, 5] = math.nan  # padding may hold anything
    clean = [each.detach().nan_to_num(0.0) for each in given]
    upstream = torch.randn(BATCH, HEADS, QUERIES, V_DIM, dtype=torch.float64)
    scores, contexts = _loops(name, clean, softcap, allowed)
    inputs = _inputs(name, given, softcap, mask)
    worked = reference_attention(inputs)
    assert_close_to_largest(worked.scores[0].detach(), scores[0], FP64)

    # What a step along a direction changes, from the loops alone.
    steps = [torch.randn_like(each) for each in clean]
    steps[1][1, :, 5] = 0.0
    epsilon, wanted = 1e-5, []
    for place, step in enumerate(steps):
        ends = []
        for sign in (1, -1):
            moved = [x + sign * epsilon * step if at == place else x for at, x in enumerate(clean)]
            ends.append(_loss(_loops(name, moved, softcap, allowed)[1], upstream))
        wanted.append(float(ends[0] - ends[1]) / (2 * epsilon))

    def check(context: Tensor) -> None:
        assert_close_to_largest(context.detach(), contexts, FP64)
        grads = torch.autograd.grad(_loss(context, upstream), given, allow_unused=True)
        for gradient, step, expected in zip(grads, steps, wanted, strict=True):
            found = 0.0 if gradient is None else float((gradient * step).sum())
            assert found == pytest.approx(expected, rel=1e-6, abs=1e-8)

    check(worked.context)
    check(fused_attention(inputs))
    monkeypatch.setattr("regard.core._fused._KEPT_ENTRIES", 0)
    monkeypatch.setattr("regard.core._fused._WRITTEN_ENTRIES", 3 * KEYS * DIM * BATCH * HEADS)
    check(fused_attention(inputs))
    with torch.no_grad():
        assert_close_to_largest(fused_attention(inputs), contexts, FP64)


@pytest.mark.parametrize("softcap", [None, CAP])
@pytest.mark.parametrize("name", CASES)
def test_what_is_told_of_rows(name: str, softcap: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    given = [each.detach() for each in _tensors(CASES[name][2], torch.float32)]
    monkeypatch.setattr("regard.core._scorers._BLOCK_ENTRIES", BATCH * HEADS * KEYS * DIM * 2)
    inputs = _inputs(name, given, softcap, Causal(offset=2))
    worked = reference_attention(_inputs(name, [each.double() for each in given], softcap, Causal(offset=2)))
    rows = torch.tensor([4, 0, 2])
    scores, weights = attention_scores(inputs, rows), attention_weights(inputs, rows)
    assert_close_to_largest(scores, worked.masked_scores[:, :, rows].float(), WEIGHTS)
    assert torch.allclose(weights.double(), worked.weights[:, :, rows], atol=WEIGHTS)
    monkeypatch.setattr("regard.core.rows._statistics._AT_ONCE", QUERIES * KEYS)  # a group of heads at once
    told = row_statistics(inputs, top_k=2)
    assert torch.allclose(told.received.double(), worked.weights.sum(dim=2), atol=10 * WEIGHTS)
    assert torch.equal(told.top_keys, worked.weights.topk(2).indices)
    assert attention_errors(inputs, fused_attention(inputs)).context < FP32_OF_LARGEST
    one = inputs.head(3)
    assert torch.allclose(attention_weights(one)[:, 0], worked.weights[:, 3].float(), atol=WEIGHTS)
    half = [each.bfloat16() for each in given]
    context = fused_attention(_inputs(name, half, softcap, Causal(offset=2)))
    exact = reference_attention(_inputs(name, [x.double() for x in half], softcap, Causal(offset=2))).context
    assert context.dtype == torch.bfloat16
    assert_close_to_largest(context.double(), exact, 2**-7)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Additive(torch.zeros(3, DIM)), r"v of the scorer .* \(heads, head_dim\) = \(4, 3\)"),
        (lambda: Bilinear(torch.zeros(HEADS, DIM, DIM + 1)), r"weight of the scorer .* \(4, 3, 3\)"),
        (lambda: Additive(torch.zeros(HEADS, DIM, dtype=torch.int64)), "got torch.int64"),
        (lambda: Cosine(temperature=0.0), "temperature must be finite and greater than 0; got 0.0"),
        (lambda: Cosine(temperature=math.nan), "temperature must be finite"),
    ],
)
def test_scorers_that_do_not_fit(make: Callable[[], Scorer], said: str) -> None:
    q = torch.zeros(1, HEADS, QUERIES, DIM)
    with pytest.raises(InputError, match=said):
        AttentionInputs(q=q, k=q, v=q, scorer=make())


def test_a_vector_of_zeros_has_no_direction() -> None:
    q = torch.zeros(1, 1, 1, DIM, requires_grad=True)
    k = torch.randn(1, 1, KEYS, DIM)
    context = fused_attention(AttentionInputs(q=q, k=k, v=k, scorer=Cosine()))
    assert torch.allclose(context, k.mean(dim=2, keepdim=True), atol=WEIGHTS)
    (gradient,) = torch.autograd.grad(context.sum(), q)
    assert bool(gradient.isfinite().all())


def test_the_record_says_its_scorer() -> None:
    q = torch.zeros(1, 1, 2, DIM)
    assert "scorer Cosine" in repr(AttentionInputs(q=q, k=q, v=q, scorer=Cosine()))
    assert "scorer" not in repr(AttentionInputs(q=q, k=q, v=q))


class Mean:
    """A kernel that asks nobody."""

    name = "the mean"

    def __call__(self, inputs: AttentionInputs, /) -> Tensor:
        return inputs.v.mean(dim=2, keepdim=True).expand(-1, -1, inputs.q_len, -1)

    def weights(self, inputs: AttentionInputs, queries: Tensor, /) -> Tensor:
        return torch.full((1, 1, len(queries), inputs.k_len), 1 / inputs.k_len)


def test_a_kernel_beside_a_scorer_is_refused() -> None:
    q = torch.zeros(1, 1, 2, DIM)
    assert AttentionInputs(q=q, k=q, v=q, kernel=Mean()).kernel is not None
    with pytest.raises(InputError, match=r"left out beside a kernel: the mean .* does not ask Cosine"):
        AttentionInputs(q=q, k=q, v=q, scorer=Cosine(), kernel=Mean())
