"""Linear attention and Performer against loops in float64: contexts, weights, gradients, states, refusals."""

import math

import pytest
import torch
from torch import Tensor

from regard.blocks import MultiHeadAttention
from regard.blocks.attentions import FeatureKernel, LinearAttention, Performer, SumsCache, random_rows
from regard.core import (
    AttentionInputs,
    Causal,
    Cosine,
    DenseBias,
    KeyValueCache,
    Mask,
    Padding,
    SeededDropout,
    Window,
    attention_errors,
    attention_weights,
)
from regard.core.errors import InputError
from tolerances import FP32_OF_LARGEST, FP64, assert_close_to_largest

BATCH, HEADS, KV_HEADS, N, DIM, V_DIM = 2, 6, 3, 17, 5, 7
KERNELS: list[FeatureKernel] = [LinearAttention(), Performer(features=11, seed=3)]


def record(mask: Mask | None, dtype: torch.dtype = torch.float64, queries: int = N) -> AttentionInputs:
    return AttentionInputs(
        q=torch.randn(BATCH, HEADS, queries, DIM, dtype=dtype),
        k=torch.randn(BATCH, KV_HEADS, N, DIM, dtype=dtype),
        v=torch.randn(BATCH, KV_HEADS, N, V_DIM, dtype=dtype),
        mask=mask,
    )


def log_similarity(kernel: FeatureKernel, q: list[float], k: list[float]) -> float:
    """The logarithm of phi(q) . phi(k), from the papers' formulas: long keys have no float64 without it."""
    if isinstance(kernel, LinearAttention):
        one, other = ([x + 1 if x > 0 else math.exp(x) for x in vector] for vector in (q, k))
        return math.log(math.fsum(a * b for a, b in zip(one, other, strict=True)))
    assert isinstance(kernel, Performer)
    assert kernel.features is not None
    root = DIM**-0.25
    q, k = [root * x for x in q], [root * x for x in k]
    shrink = math.fsum(x * x for x in q + k) / 2
    rows = random_rows(kernel.features, DIM, kernel.seed).tolist()
    both = [a + b for a, b in zip(q, k, strict=True)]
    logs = [math.fsum(w * x for w, x in zip(row, both, strict=True)) for row in rows]
    return max(logs) - shrink + math.log(math.fsum(math.exp(each - max(logs)) for each in logs))


def weights_by_hand(kernel: FeatureKernel, inputs: AttentionInputs) -> Tensor:
    allowed = torch.ones(BATCH, 1, inputs.q_len, N, dtype=torch.bool)
    if inputs.mask is not None:
        allowed = allowed & inputs.mask.dense(inputs.q_len, N)
    weights = torch.zeros(BATCH, HEADS, inputs.q_len, N, dtype=torch.float64)
    q, k = inputs.q.double().tolist(), inputs.k.double().tolist()
    for b in range(BATCH):
        for h in range(HEADS):
            for i in range(inputs.q_len):
                seen = [j for j in range(N) if allowed[b, 0, i, j]]
                logs = [log_similarity(kernel, q[b][h][i], k[b][h // 2][j]) for j in seen]
                raw = [math.exp(each - max(logs)) for each in logs]
                for j, each in zip(seen, raw, strict=True):
                    weights[b, h, i, j] = each / math.fsum(raw)
    return weights


def padding() -> Padding:
    real = torch.ones(BATCH, N, dtype=torch.bool)
    real[1, :4] = False  # on the left: the first queries of that text see nothing
    return Padding(real)


MASKS = [None, padding(), Causal(), Causal() & padding()]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("mask", MASKS, ids=["all", "padding", "causal", "both"])
def test_contexts_and_weights_are_those_of_a_loop(
    kernel: FeatureKernel, mask: Mask | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.blocks.attentions._features._CHUNK", 5)
    inputs = record(mask).changed(kernel=kernel)
    if (mask is not None and mask.parts()[-1] is not mask.parts()[0]) or isinstance(mask, Padding):
        inputs.k[1, :, 0] = math.nan  # padding may hold anything
        inputs.v[1, :, 1] = math.inf
    wanted = weights_by_hand(kernel, inputs.changed(k=inputs.k.nan_to_num()))
    values = torch.where(torch.isfinite(inputs.v), inputs.v, 0.0).repeat_interleave(2, dim=1)
    context = kernel(inputs)
    assert_close_to_largest(context, wanted @ values, FP64)
    assert_close_to_largest(kernel.weights(inputs, torch.arange(N)), wanted, FP64)
    assert_close_to_largest(attention_weights(inputs, torch.tensor([11, 6])), wanted[:, :, [11, 6]], FP64)
    errors = attention_errors(inputs, context)
    assert errors.context is not None
    assert errors.context < FP64
    single = inputs.changed(q=inputs.q.float(), k=inputs.k.float(), v=inputs.v.float())
    assert kernel(single).dtype == torch.float32
    assert_close_to_largest(kernel(single), wanted @ values, FP32_OF_LARGEST)


@pytest.mark.parametrize("length", [41, 65, 300])
@pytest.mark.parametrize("is_causal", [False, True], ids=["all", "causal"])
def test_of_long_keys_only_those_that_are_seen_count(
    length: int, is_causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Padding, of feature 1, and a short key that comes later are larger than every long key's features."""
    monkeypatch.setattr("regard.blocks.attentions._features._CHUNK", 5)
    inputs = record(Causal() & padding() if is_causal else padding()).changed(kernel=KERNELS[1])
    inputs.k.mul_(length / inputs.k.norm(dim=3, keepdim=True))
    if is_causal:
        inputs.k[:, :, 13] /= 100.0
    context = KERNELS[1](inputs)
    wanted = weights_by_hand(KERNELS[1], inputs)
    assert_close_to_largest(context, wanted @ inputs.v.repeat_interleave(2, dim=1), FP64)
    assert_close_to_largest(KERNELS[1].weights(inputs, torch.arange(N)), wanted, FP64)
    mask = Causal() if is_causal else None
    single = inputs.changed(q=inputs.q.float(), k=inputs.k.float(), v=inputs.v.float())
    for each in (inputs, single):
        whole = KERNELS[1](each)
        alone = each.changed(q=each.q[1:, :, 4:], k=each.k[1:, :, 4:], v=each.v[1:, :, 4:], mask=mask)
        assert_close_to_largest(KERNELS[1](alone), whole[1:, :, 4:], FP32_OF_LARGEST)
        if is_causal:
            begun = each.changed(q=each.q[:1, :, :12], k=each.k[:1, :, :12], v=each.v[:1, :, :12], mask=mask)
            assert_close_to_largest(KERNELS[1](begun), whole[:1, :, :12], FP32_OF_LARGEST)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_gradients_are_those_of_differences(kernel: FeatureKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.blocks.attentions._features._CHUNK", 3)
    q, k, v = (torch.randn(1, 1, 5, size, dtype=torch.float64, requires_grad=True) for size in (3, 3, 2))
    for mask in (None, Causal(), Padding(torch.tensor([[True, True, False, True, True]]))):
        assert torch.autograd.gradcheck(
            lambda q, k, v, mask=mask: kernel(AttentionInputs(q=q, k=k, v=v, mask=mask)), (q, k, v)
        )


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("back", [0, 3])
@pytest.mark.parametrize("longer", [1.0, 100.0])
def test_the_recurrent_form_is_the_parallel_one(kernel: FeatureKernel, back: int, longer: float) -> None:
    attention = MultiHeadAttention(12, HEADS, num_kv_heads=KV_HEADS, kernel=kernel).double().eval()
    if isinstance(kernel, Performer):
        attention.k.weight.data *= longer
    x = torch.randn(BATCH, N, 12, dtype=torch.float64)
    x[:, 9:] *= 3.0  # later keys have larger features: Performer's factors change on the way
    with torch.no_grad():
        whole = attention(x, mask=Causal() & padding())
        cache = attention.new_cache(back=back)
        assert isinstance(cache, SumsCache)
        found = []
        for start, stop in ((0, 6), (6, 7), (7, 8), (8, 13), (13, 14), (14, N)):
            mask = (Causal() & padding()).since(cache.length, cache.first)
            real = mask.parts()[1]
            assert isinstance(real, Padding)
            mask = mask.parts()[0] & Padding(real.real[:, : stop - cache.first])
            found.append(attention(x[:, start:stop], mask=mask, cache=cache))
            if back and stop == 8:  # two tokens are taken back, and read again
                cache.cut(6)
                cache.pick(torch.tensor([0, 1]))
                mask = (Causal() & padding()).since(6, cache.first)
                real = mask.parts()[1]
                assert isinstance(real, Padding)
                mask = mask.parts()[0] & Padding(real.real[:, : 8 - cache.first])
                found[-2:] = [attention(x[:, 6:8], mask=mask, cache=cache)]
        assert_close_to_largest(torch.cat(found, dim=1), whole, FP64)
        # What is kept does not grow with what was read.
        assert cache.first == N - back
        assert cache.sums is not None
        assert cache.since(cache.first)[0].shape[2] == back
        plain = KeyValueCache()
        late = [attention(x[:, :9], mask=Causal(), cache=plain)]
        late.append(attention(x[:, 9:], mask=Causal(offset=9), cache=plain))
        assert_close_to_largest(torch.cat(late, dim=1), attention(x, mask=Causal()), FP64)
        with pytest.raises(InputError, match="length must be from"):
            cache.cut(N - back - 1)


def test_performer_is_unbiased() -> None:
    """The mean over seeds of the estimate of exp(q . k / sqrt(d)), within four of its standard errors."""
    q, k = 0.4 * torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)
    wanted = math.exp(float((q * k).sum()) / math.sqrt(8))
    found = []
    for seed in range(600):
        performer = Performer(features=12, seed=seed)
        features = performer.of_keys(torch.cat((q, k), dim=2), 8**-0.5)
        both = features.values[0, 0] * features.log_factor.exp()[0, 0]
        found.append(float(both[0] @ both[1]) / 12)
    mean, error = torch.tensor(found).mean(), torch.tensor(found).std() / math.sqrt(len(found))
    assert error < 0.05 * wanted
    assert abs(float(mean) - wanted) < 4 * error


def test_more_features_are_closer_to_the_softmax() -> None:
    inputs = record(None)
    inputs = inputs.changed(q=inputs.q / 2, k=inputs.k / 2)  # the error is that of heavy tails beyond
    exact = attention_weights(inputs)
    errors = [
        float((Performer(features=m).weights(inputs, torch.arange(N)) - exact).abs().mean())
        for m in (10, 160, 2560)
    ]
    assert errors[1] < errors[0] / 2
    assert errors[2] < errors[1] / 2


def test_rows_are_orthogonal_and_as_long_as_normal_ones() -> None:
    rows = random_rows(700, 7, seed=1).view(100, 7, 7)
    products = rows @ rows.mT
    diagonal = torch.diag_embed(products.diagonal(dim1=1, dim2=2))
    assert_close_to_largest(products, diagonal, FP64)
    assert abs(float(products.diagonal(dim1=1, dim2=2).mean()) - 7) < 0.5
    assert not torch.equal(random_rows(7, 7, seed=1), random_rows(7, 7, seed=2))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bias": DenseBias(torch.zeros(1, 1, N, N))}, "bias must be None for linear attention"),
        ({"softcap": 3.0}, "softcap must be None"),
        ({"scorer": Cosine()}, "scorer must be ScaledDot for linear attention; got Cosine"),
        ({"dropout": SeededDropout(0.5, seed=1)}, "dropout must be None"),
        ({"sinks": torch.zeros(HEADS)}, "sinks must be None"),
        ({"mask": Window(left=2)}, "mask must be Causal, Padding or both for linear attention; got Window"),
        ({"mask": Causal(offset=-2)}, "offset 0; got -2"),
    ],
)
def test_what_belongs_to_a_softmax_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        LinearAttention()(record(None).changed(**changes))


def test_what_else_is_refused() -> None:
    kernel = LinearAttention()
    with pytest.raises(InputError, match="is linear attention with a state"):
        attention_weights(record(Causal()).changed(kernel=kernel.after(kernel.new_cache())))
    with pytest.raises(InputError, match="features must be a whole number, at least 1"):
        Performer(features=0)
    with pytest.raises(InputError, match="scale must be above 0 for Performer"):
        Performer()(record(None).changed(scale=-1.0))
    with pytest.raises(InputError, match="a window cannot be kept"):
        Performer().new_cache(window=3)
