"""A stack of layers: numbering, what the patterns share, the bias, the last norm, cross-attention."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.blocks import (
    CountFrom,
    CountTokens,
    DecoderLayer,
    Embeddings,
    FeedForward,
    MultiHeadAttention,
    Pattern,
    PostNorm,
    PreNorm,
    SelfAttentionLayer,
    Stack,
    _stack,
)
from regard.core import Causal, DenseBias, Mask, Padding, Taps, Window
from regard.core.errors import InputError
from regard.positions import LearnedPositions, RelativeBias
from tolerances import FP64, assert_close_to_largest
from unit.blocks.by_hand import normed, read_and_written, shaken
from unit.blocks.fakes import FakeRotary

IDS = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 0]])
REAL = torch.tensor([[True] * 5, [True, True, True, True, False]])
BATCH, LENGTH, ENCODED, D_MODEL, HEADS, VOCAB = 2, 5, 7, 6, 3, 13


def encoder_layer(kind: type = PostNorm) -> SelfAttentionLayer:
    return SelfAttentionLayer(
        MultiHeadAttention(D_MODEL, HEADS),
        FeedForward(D_MODEL, 11),
        attention_residual=kind(nn.LayerNorm(D_MODEL)),
        ffn_residual=kind(nn.LayerNorm(D_MODEL)),
    )


def decoder_layer() -> DecoderLayer:
    return DecoderLayer(
        MultiHeadAttention(D_MODEL, HEADS),
        MultiHeadAttention(D_MODEL, HEADS, d_source=D_MODEL),
        FeedForward(D_MODEL, 11),
        attention_residual=PostNorm(nn.LayerNorm(D_MODEL)),
        cross_attention_residual=PostNorm(nn.LayerNorm(D_MODEL)),
        ffn_residual=PostNorm(nn.LayerNorm(D_MODEL)),
    )


def stack(num_layers: int = 3, *, decoder: bool = False, **kwargs: Any) -> Stack:
    embeddings = Embeddings(VOCAB, D_MODEL, positions=LearnedPositions(11, D_MODEL), num_token_types=2)
    layers = [decoder_layer() if decoder else encoder_layer(PreNorm) for _ in range(num_layers)]
    made = Stack(embeddings, layers, **kwargs)
    shaken(made)
    return made


class Spy(nn.Module):
    """A layer that keeps what it is called with."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[dict[str, Any]] = []

    def tap_names(self) -> list[str]:
        return []

    def forward(self, x: Tensor, **surroundings: Any) -> Tensor:
        self.calls.append(surroundings)
        return x + 1.0


def spied(count: int, **kwargs: Any) -> tuple[Stack, list[dict[str, Any]]]:
    """A stack of spies, after one pass; `run` holds the arguments of the pass."""
    run = kwargs.pop("run", {})
    made = Stack(Embeddings(VOCAB, D_MODEL), [Spy() for _ in range(count)], **kwargs)  # type: ignore[misc]
    made(IDS, **run)
    return made, [layer.calls[0] for layer in made.layers]  # type: ignore[union-attr, index]


# --- numbering


def test_count_from() -> None:
    assert CountFrom()(IDS).tolist() == [[0, 1, 2, 3, 4]]
    assert CountFrom(2)(IDS).tolist() == [[2, 3, 4, 5, 6]]
    assert CountFrom(2)(IDS).dtype == torch.int64
    assert CountFrom(2).first == 2


@pytest.mark.parametrize("pad_id", [0, 1, 7])
def test_count_tokens_as_transformers_does(pad_id: int) -> None:
    from transformers.models.roberta.modeling_roberta import RobertaEmbeddings

    ids = torch.randint(0, 9, (5, 17))
    theirs = RobertaEmbeddings.create_position_ids_from_input_ids(ids, pad_id)
    numbers = CountTokens(pad_id)(ids)
    assert numbers.dtype == torch.int64
    assert torch.equal(numbers, theirs)
    assert CountTokens(pad_id).first == pad_id + 1


def test_count_tokens_by_hand() -> None:
    # Padding on the left, on the right and within: it has its own number, and tokens count on over it.
    ids = torch.tensor([[1, 1, 5, 6], [5, 6, 1, 1], [5, 1, 6, 7]])
    assert CountTokens(1)(ids).tolist() == [[1, 1, 2, 3], [2, 3, 1, 1], [2, 1, 3, 4]]


@pytest.mark.parametrize("numbering", [CountFrom(3), CountTokens(0)])
def test_the_numbering_is_what_the_embeddings_and_rotations_are_asked_for(
    numbering: CountFrom | CountTokens,
) -> None:
    made = stack(numbering=numbering)
    output = made(IDS)
    assert torch.equal(output, made(IDS, positions=numbering(IDS)))
    assert (output - made(IDS, positions=CountFrom(0)(IDS))).abs().max().item() > 1e-3
    seen: list[Tensor] = []
    made(IDS, taps=Taps({"embeddings.positions": seen.append}))
    assert torch.equal(seen[0], made.embeddings.positions.weight[numbering(IDS)])
    rotary = FakeRotary()
    spied(1, patterns=[Pattern(rotary=rotary)], numbering=numbering)
    assert torch.equal(rotary.asked[0][0], numbering(IDS))


def test_by_default_positions_count_from_0() -> None:
    made = stack()
    assert torch.equal(made(IDS), made(IDS, positions=torch.arange(LENGTH)[None]))


def test_positions_that_are_given_win() -> None:
    rotary, given = FakeRotary(), torch.tensor([[0, 1, 0, 1, 2]])
    spied(1, patterns=[Pattern(rotary=rotary)], run={"positions": given})
    assert rotary.asked[0][0] is given


# --- the pass


def test_a_stack_by_hand() -> None:
    made = stack(norm=nn.LayerNorm(D_MODEL, eps=1e-3))
    x = made.embeddings(IDS, positions=torch.arange(LENGTH)[None], token_types=IDS % 2)
    for layer in made.layers:
        x = layer(x, mask=Padding(REAL))
    output = made(IDS, mask=Padding(REAL), token_types=IDS % 2)
    assert_close_to_largest(output, normed(made.norm, x), FP64)


def test_without_a_last_norm_the_last_layer_s_output_is_the_stack_s() -> None:
    made = stack()
    seen: dict[str, Tensor] = {}
    listeners = {
        name: lambda value, name=name: seen.__setitem__(name, value) for name in ("layers.2.output", "output")
    }
    output = made(IDS, taps=Taps(listeners))
    assert torch.equal(output, seen["layers.2.output"])
    assert torch.equal(output, seen["output"])


def test_names_of_the_parameters() -> None:
    made = stack(1, norm=nn.LayerNorm(D_MODEL))
    names = set(made.state_dict())
    assert {"norm.weight", "norm.bias", "embeddings.tokens.weight", "layers.0.attention.q.weight"} <= names
    assert {name.partition(".")[0] for name in names} == {"embeddings", "layers", "norm"}


def test_dropout_is_after_the_last_norm_and_in_training() -> None:
    made = stack(1, norm=nn.LayerNorm(D_MODEL), dropout_p=0.5)
    torch.manual_seed(3)
    trained = made(IDS)
    whole = made.eval()(IDS)
    kept = trained != 0
    assert 0 < int(kept.sum()) < kept.numel()
    assert_close_to_largest(trained, torch.where(kept, 2 * whole, 0.0), FP64)
    assert torch.equal(made(IDS), whole)


# --- patterns


def test_without_patterns_everything_attends_to_everything() -> None:
    made, calls = spied(2)
    assert [call["mask"] for call in calls] == [None, None]
    assert [call["rotation"] for call in calls] == [None, None]
    assert len(made.patterns) == 2


def test_layers_of_one_pattern_share_its_mask_and_rotation() -> None:
    local, glob = FakeRotary("local"), FakeRotary("global")
    first, second = Pattern(mask=Window(1, 1), rotary=local), Pattern(mask=None, rotary=glob)
    _, calls = spied(5, patterns=[first, second, first, first, second], run={"mask": Padding(REAL)})
    assert (len(local.asked), len(glob.asked)) == (1, 1)
    assert calls[0]["mask"] is calls[2]["mask"] is calls[3]["mask"]
    assert calls[0]["rotation"] is calls[2]["rotation"] is calls[3]["rotation"]
    assert calls[1]["mask"] is calls[4]["mask"]
    assert calls[1]["rotation"] is calls[4]["rotation"]
    assert calls[0]["rotation"] is not calls[1]["rotation"]
    assert [type(part) for part in calls[0]["mask"].parts()] == [Window, Padding]
    assert calls[0]["mask"].parts()[0] is first.mask
    assert [type(part) for part in calls[1]["mask"].parts()] == [Padding]


class _Counted(nn.Module):
    """A bias that counts how often it is asked for the rows of more than one query."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.asked = RelativeBias(HEADS, 8, 5), 0

    def forward(self) -> "_Counted":
        return self

    def block(self, queries: Tensor, keys: Tensor) -> Tensor:
        self.asked += len(queries) > 1
        return self.inner().block(queries, keys)

    def learned(self) -> tuple[Tensor, ...]:
        return self.inner().learned()


@pytest.mark.parametrize(
    ("how", "times"), [("no gradient", 1), ("a gradient", 3), ("a listener", 3), ("no room", 3)]
)
def test_the_bias_is_written_out_once_where_only_the_output_counts(
    how: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bias = _Counted()
    made = stack(bias=bias, patterns=[Pattern(mask=Causal())] * 3)
    expected = made(IDS, mask=Padding(REAL))
    bias.asked, records = 0, []
    if how == "no room":
        monkeypatch.setattr(_stack, "_MOST_ENTRIES", HEADS * LENGTH**2 - 1)
    taps = Taps({"*.inputs": records.append}) if how == "a listener" else None
    with torch.set_grad_enabled(how == "a gradient"):
        output = made(IDS, mask=Padding(REAL), taps=taps)
    assert bias.asked == times
    assert all(record.bias is bias for record in records)
    torch.testing.assert_close(output, expected)


def test_patterns_are_told_apart_by_identity_and_rotaries_by_value() -> None:
    one, other = FakeRotary("global"), FakeRotary("global")
    patterns = [Pattern(mask=Causal(), rotary=one), Pattern(mask=Causal(), rotary=other)]
    assert patterns[0] != patterns[1]
    _, calls = spied(2, patterns=patterns, run={"mask": Padding(REAL)})
    assert (len(one.asked), len(other.asked)) == (1, 0)
    assert calls[0]["rotation"] is calls[1]["rotation"]
    assert calls[0]["mask"] is not calls[1]["mask"]


@pytest.mark.parametrize(
    ("of_pattern", "of_call"),
    [
        (None, None),
        (Causal(), None),
        (None, Padding(REAL)),
        (Causal(), Padding(REAL)),
        (Causal(), Window(1, 1)),
    ],
)
def test_the_call_s_mask_is_conjoined_with_the_pattern_s(
    of_pattern: Mask | None, of_call: Mask | None
) -> None:
    _, [call] = spied(1, patterns=[Pattern(mask=of_pattern)], run={"mask": of_call})
    wanted = torch.ones(BATCH, 1, LENGTH, LENGTH, dtype=torch.bool)
    for mask in (of_pattern, of_call):
        wanted = wanted if mask is None else wanted & mask.dense(LENGTH, LENGTH)
    if of_pattern is None and of_call is None:
        assert call["mask"] is None
    else:
        assert torch.equal(call["mask"].dense(LENGTH, LENGTH).expand_as(wanted), wanted)


def test_a_rotation_is_asked_for_in_the_stream_s_type() -> None:
    rotary = FakeRotary()
    made = Stack(Embeddings(VOCAB, D_MODEL), [Spy()], patterns=[Pattern(rotary=rotary)])  # type: ignore[list-item]
    made.to(torch.bfloat16)(IDS)
    assert rotary.asked[0][1:] == (torch.bfloat16, torch.device("cpu"))


def test_a_rotation_is_not_kept_between_passes() -> None:
    rotary = FakeRotary()
    made, _ = spied(2, patterns=[Pattern(rotary=rotary)] * 2)
    made(IDS[:, :3])
    assert [tuple(positions.shape) for positions, _, _ in rotary.asked] == [(1, 5), (1, 3)]


def test_each_layer_attends_by_its_own_pattern() -> None:
    local, glob = Pattern(mask=Window(1, 0), rotary=FakeRotary()), Pattern(mask=Causal())  # type: ignore[arg-type]
    made = stack(patterns=[local, glob, local])
    x = made.embeddings(IDS, positions=torch.arange(LENGTH)[None])
    rotation = FakeRotary().rotation(torch.arange(LENGTH)[None], dtype=x.dtype, device=x.device)
    x = made.layers[0](x, mask=Window(1, 0), rotation=rotation)
    x = made.layers[1](x, mask=Causal())
    x = made.layers[2](x, mask=Window(1, 0), rotation=rotation)
    assert_close_to_largest(made(IDS), x, FP64)
    assert (stack()(IDS) - x).abs().max().item() > 1e-3


def test_one_pattern_for_each_layer() -> None:
    with pytest.raises(ValueError, match="zip"):
        stack(patterns=[Pattern()] * 2)(IDS)


# --- bias


class CountedBias(nn.Module):
    """Gives the same bias each time, and counts."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(3, 2)
        self.values = torch.randn(1, HEADS, LENGTH, LENGTH, dtype=torch.float64)
        self.calls = 0

    def forward(self) -> DenseBias:
        self.calls += 1
        return DenseBias(self.values)


def test_the_bias_is_asked_for_once_a_pass_and_reaches_every_layer() -> None:
    bias = CountedBias()
    made = stack(bias=bias)
    output = made(IDS)
    assert bias.calls == 1
    x = made.embeddings(IDS, positions=torch.arange(LENGTH)[None])
    for layer in made.layers:
        x = layer(x, bias=DenseBias(bias.values))
    assert_close_to_largest(output, x, FP64)
    made(IDS)
    assert bias.calls == 2
    assert "bias.table.weight" in made.state_dict()


def test_the_bias_may_be_a_plain_function() -> None:
    bias = DenseBias(torch.randn(1, HEADS, LENGTH, LENGTH, dtype=torch.float64))
    made = stack(1, bias=lambda: bias)
    x = made.embeddings(IDS, positions=torch.arange(LENGTH)[None])
    assert_close_to_largest(made(IDS), made.layers[0](x, bias=bias), FP64)


# --- cross-attention


@pytest.fixture
def encoded() -> Tensor:
    return torch.randn(BATCH, ENCODED, D_MODEL, dtype=torch.float64)


def test_decoder_layers_read_the_encoder(encoded: Tensor) -> None:
    made = stack(2, decoder=True, patterns=[Pattern(mask=Causal())] * 2)
    real = torch.arange(ENCODED) < torch.tensor([[7], [4]])
    x = made.embeddings(IDS, positions=torch.arange(LENGTH)[None])
    for layer in made.layers:
        x = layer(x, encoded, mask=Causal() & Padding(REAL), encoded_mask=Padding(real))
    output = made(IDS, mask=Padding(REAL), encoded=encoded, encoded_mask=Padding(real))
    assert_close_to_largest(output, x, FP64)
    changed = torch.where(real[..., None], encoded, 1e6)
    assert torch.equal(made(IDS, mask=Padding(REAL), encoded=changed, encoded_mask=Padding(real)), output)
    assert not torch.equal(made(IDS, mask=Padding(REAL), encoded=encoded + 1), output)


def test_encoder_layers_are_not_told_of_an_encoder() -> None:
    _, [call] = spied(1)
    assert set(call) == {"mask", "bias", "rotation", "taps"}


# --- taps


def everywhere(made: Stack, **kwargs: Any) -> list[str]:
    seen: list[str] = []

    def listen(name: str) -> Any:
        return lambda value: seen.append(name)

    made(IDS, taps=Taps({name: listen(name) for name in made.tap_names()}), **kwargs)
    everything: list[object] = []
    made(IDS, taps=Taps({"*": everything.append}), **kwargs)
    assert len(everything) == len(seen)
    return seen


def test_the_names_are_the_points_in_their_order(encoded: Tensor) -> None:
    made = stack(2, norm=nn.LayerNorm(D_MODEL))
    names = made.tap_names()
    assert everywhere(made) == names
    assert names[:5] == [
        *("embeddings.tokens", "embeddings.positions", "embeddings.token_types", "embeddings.output"),
        "layers.0.input",
    ]
    assert names[-2:] == ["layers.1.output", "output"]
    crossed = stack(2, decoder=True)
    assert everywhere(crossed, encoded=encoded) == crossed.tap_names()
    assert "layers.1.cross_attention.weights" in crossed.tap_names()


@pytest.mark.parametrize("decoder", [False, True])
@torch.no_grad()
def test_every_point_is_written_to_at_its_place(decoder: bool, encoded: Tensor) -> None:
    made = stack(2, decoder=decoder, norm=nn.LayerNorm(D_MODEL))
    arguments = {"encoded": encoded} if decoder else {}
    for name in made.tap_names():
        if not name.endswith(".inputs"):
            # Far above rounding: what comes early is damped by every norm after it.
            read_and_written(name, lambda taps: made(IDS, taps=taps, **arguments), moves=1e-6)


def test_the_output_point_is_after_the_last_norm() -> None:
    made = stack(1, norm=nn.LayerNorm(D_MODEL))
    given = torch.randn(BATCH, LENGTH, D_MODEL, dtype=torch.float64)
    assert torch.equal(made(IDS, taps=Taps({"output": lambda value: given})), given)
    through = made(IDS, taps=Taps({"layers.0.output": lambda value: given}))
    assert torch.equal(through, made.norm(given))


@torch.no_grad()
@pytest.mark.parametrize("bias", [None, RelativeBias(HEADS, 4, 5, bidirectional=False)])
def test_states_with_a_window_and_a_bias(bias: Any) -> None:
    made = stack(patterns=[Pattern(mask=Causal() & Window(left=2))] * 3, bias=bias)
    ids, states = torch.randint(0, VOCAB, (2, 11)), made.new_states()
    got = [made(piece, states=states) for piece in ids.split([4, 1, 1, 5], dim=1)]
    assert_close_to_largest(torch.cat(got, dim=1), made(ids), FP64)


@pytest.mark.parametrize("mask", [None, Window(left=2)])
def test_states_of_a_stack_that_sees_what_follows_are_refused(mask: Mask | None) -> None:
    with pytest.raises(InputError, match="depend on what follows"):
        stack(patterns=[Pattern(mask=mask)] * 3).new_states()
