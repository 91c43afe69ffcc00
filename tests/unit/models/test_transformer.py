"""The network that regard builds: its three forms, what it takes and refuses, the points that it offers."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, get_type_hints

import pytest
import torch
from torch import Tensor, nn

from regard.blocks import CountFrom, CountTokens, Embeddings, Stack
from regard.core import Causal, Padding, Predicate, Segments, Taps, Window
from regard.core.arguments import limit_of
from regard.core.errors import InputError
from regard.models import FAMILIES, Network, Transformer, family_of
from regard.models._heads import (
    Classifier,
    EndClassifier,
    LanguageModelHead,
    first_position,
    pooled,
    token_classifier,
)
from regard.positions import LearnedPositions, SinusoidalPositions
from tolerances import FP64, assert_close_to_largest
from unit.models.folders import assert_points_are_written, assert_points_in_order
from unit.models.tiny import (
    D_MODEL,
    DECODER_DEPTH,
    ENCODER_DEPTH,
    IDS,
    MAX_SEQ_LEN,
    REAL,
    TARGET,
    TARGET_VOCAB,
    VOCAB,
    TinyConfig,
    both,
    decoder,
    encoder,
    encoder_stack,
    run,
)

FORMS: dict[str, Callable[..., Transformer]] = {"encoder": encoder, "decoder": decoder, "both": both}


def numbers(count: int) -> Tensor:
    return torch.arange(count)[None]


@pytest.fixture(params=FORMS)
def net(request: pytest.FixtureRequest) -> Transformer:
    vocab = TARGET_VOCAB if request.param == "both" else VOCAB
    return FORMS[request.param](head=LanguageModelHead(nn.Linear(D_MODEL, vocab)))


# --- the three forms


def test_an_encoder_alone() -> None:
    net = encoder()
    assert dict(net.prefixes) == {"encoder": ""}
    assert net.depth("encoder") == ENCODER_DEPTH
    assert net.limit("encoder") == MAX_SEQ_LEN
    assert net.start_id is None
    stack = net.stack("encoder")
    x = stack.embeddings(IDS, positions=numbers(7), token_types=IDS % 2)
    for layer in stack.layers:
        x = layer(x, mask=Padding(REAL))
    output = net(IDS, mask=REAL, token_types=IDS % 2)
    assert_close_to_largest(output.last_hidden_state, x, FP64)
    assert output.encoder_state is output.last_hidden_state
    assert (output.decoder_state, output.logits, output.pooled) == (None, None, None)
    with pytest.raises(InputError, match="kind must be encoder, what this model has; got 'decoder'"):
        net.depth("decoder")


def test_a_decoder_alone() -> None:
    net = decoder()
    assert dict(net.prefixes) == {"decoder": ""}
    assert net.depth("decoder") == DECODER_DEPTH
    assert net.limit("decoder") is None
    stack = net.stack("decoder")
    x = stack.embeddings(IDS, positions=numbers(7))
    rotary = stack.patterns[0].rotary
    assert rotary is not None
    rotation = rotary.rotation(numbers(7), dtype=torch.float64)
    for layer in stack.layers:
        x = layer(x, mask=Causal() & Padding(REAL), rotation=rotation)
    output = net(IDS, mask=REAL)
    assert_close_to_largest(output.last_hidden_state, stack.norm(x), FP64)
    assert output.decoder_state is output.last_hidden_state
    assert output.encoder_state is None
    with pytest.raises(InputError, match="kind must be decoder, what this model has; got 'encoder'"):
        net.limit("encoder")


def test_a_decoder_sees_nothing_that_follows() -> None:
    net = decoder()
    whole = run(net)
    for length in (1, 3, 6):
        part = net(IDS[:, :length]).last_hidden_state
        assert_close_to_largest(part, whole[:, :length], FP64)


def test_an_encoder_and_a_decoder_of_another_length_and_depth() -> None:
    net = both()
    assert dict(net.prefixes) == {"encoder": "encoder.", "decoder": "decoder."}
    assert (net.depth("encoder"), net.depth("decoder")) == (ENCODER_DEPTH, DECODER_DEPTH)
    assert (net.limit("encoder"), net.limit("decoder")) == (None, MAX_SEQ_LEN)
    first, second = net.stack("encoder"), net.stack("decoder")
    x = first.embeddings(IDS, positions=numbers(7))
    for layer in first.layers:
        x = layer(x, mask=Padding(REAL), bias=first.bias())
    encoded = first.norm(x)
    real = torch.arange(5) < torch.tensor([[5], [3]])
    y = second.embeddings(TARGET, positions=numbers(5))
    for layer in second.layers:
        y = layer(y, encoded, mask=Causal() & Padding(real), encoded_mask=Padding(REAL), bias=second.bias())
    output = net(IDS, mask=REAL, decoder_token_ids=TARGET, decoder_mask=real)
    assert_close_to_largest(output.encoder_state, encoded, FP64)
    assert_close_to_largest(output.decoder_state, second.norm(y), FP64)
    assert output.last_hidden_state is output.decoder_state
    assert output.last_hidden_state.shape == (2, 5, D_MODEL)


def test_the_decoder_does_not_read_the_encoder_s_padding() -> None:
    net = both()
    changed = torch.where(REAL, IDS, 17)
    assert torch.equal(run(net, mask=REAL), net(changed, mask=REAL, decoder_token_ids=TARGET).decoder_state)
    short = net(IDS[1:, :4], decoder_token_ids=TARGET[1:]).decoder_state
    assert_close_to_largest(run(net, mask=REAL)[1:], short, FP64)
    assert (run(net) - run(net, mask=REAL))[1].abs().max().item() > 1e-3


def test_it_is_a_network(net: Transformer) -> None:
    assert isinstance(net, Network)


def test_names_of_the_parameters() -> None:
    net = both(pooler=nn.Linear(3, 3), head=LanguageModelHead(nn.Linear(D_MODEL, TARGET_VOCAB)))
    names = set(net.state_dict())
    assert {
        "encoder.embeddings.tokens.weight",
        "encoder.layers.1.attention.q.weight",
        "encoder.norm.weight",
        "encoder.bias.table.weight",
        "decoder.layers.2.cross_attention.k.weight",
        "decoder.layers.2.cross_attention_residual.norm.weight",
        "head.output.weight",
    } <= names
    assert {name.partition(".")[0] for name in names} == {"encoder", "decoder", "pooler", "head"}


# --- limits


@pytest.mark.parametrize(
    ("positions", "numbering", "limit"),
    [
        (LearnedPositions(11, 6), None, 11),
        (LearnedPositions(11, 6), CountFrom(2), 9),
        (LearnedPositions(11, 6), CountTokens(1), 9),
        (SinusoidalPositions(11, 6), CountFrom(1), 10),
        (None, CountFrom(2), None),
    ],
)
def test_the_limit_is_the_table_s(
    positions: nn.Module | None, numbering: CountFrom | CountTokens | None, limit: int | None
) -> None:
    stack = Stack(Embeddings(VOCAB, 6, positions=positions), [], numbering=numbering)
    net = Transformer(TinyConfig(d_model=6), encoder=stack)
    assert net.limit("encoder") == limit
    longest = torch.full((1, limit or 97), 3)
    assert net(longest).last_hidden_state.shape == (1, limit or 97, 6)
    if limit is not None:
        with pytest.raises(
            InputError, match=f"from 1 to {limit} positions, the model's limit; got {limit + 1}"
        ):
            net(torch.full((1, limit + 1), 3))


# --- what is refused, before anything is computed


def refuse(net: Transformer, message: str, token_ids: Any = IDS, **arguments: Any) -> None:
    seen: list[object] = []
    with pytest.raises(InputError, match=message):
        net(token_ids, taps=Taps({"*": seen.append}), **arguments)
    assert seen == []


TOO_LONG = torch.zeros(2, MAX_SEQ_LEN + 1, dtype=torch.int64)
BAD_IDS = [
    ([[3, 1]], r"{} must be a tensor; got list\. Make one: torch\.tensor"),
    ("a bank", r"{} must be a tensor; got str\. .* where model\.trace\(text\)\.token_ids are the ids"),
    (None, r"{} must be a tensor; got NoneType"),
    (torch.arange(2), r"{} must be int64 of shape \(batch, positions\), with at least one row; .*\(2,\)"),
    (torch.tensor([[[3]]]), r"{} must .*shape \(1, 1, 1\)"),
    (torch.tensor([[3.0]]), "{} must be int64 .*; got torch.float32"),
    (torch.tensor([[True]]), "{} must be int64 .*; got torch.bool"),
    (torch.zeros(0, 5, dtype=torch.int64), r"{} must .* with at least one row; got .*\(0, 5\)"),
    (torch.tensor([[3, -1], [0, 0]]), r"{} must be from 0 to \d+; got -1"),
]


@pytest.mark.parametrize(("token_ids", "message"), BAD_IDS)
def test_token_ids(net: Transformer, token_ids: Any, message: str) -> None:
    target = {"decoder_token_ids": TARGET} if len(net.prefixes) == 2 else {}
    refuse(net, message.format("^token_ids"), token_ids, **target)


def test_token_ids_beyond_the_ends(net: Transformer) -> None:
    target = {"decoder_token_ids": TARGET[:1]} if len(net.prefixes) == 2 else {}
    refuse(
        net, f"^token_ids must be from 0 to {VOCAB - 1}; got {VOCAB}", torch.tensor([[3, VOCAB]]), **target
    )
    assert net(torch.tensor([[0, VOCAB - 1]]), **target).last_hidden_state.isfinite().all()
    limit = next(iter(net.prefixes)) == "encoder" and len(net.prefixes) == 1
    wanted = f"from 1 to {MAX_SEQ_LEN} positions, the model's limit" if limit else "at least 1 position"
    refuse(net, f"token_ids must hold {wanted}; got 0", torch.zeros(1, 0, dtype=torch.int64), **target)


@pytest.mark.parametrize(("token_ids", "message"), BAD_IDS)
def test_decoder_token_ids(token_ids: Any, message: str) -> None:
    if token_ids is None:
        message = "decoder_token_ids must be given: this model has an encoder and a decoder"
    refuse(both(), message.format("decoder_token_ids"), decoder_token_ids=token_ids)


def test_decoder_token_ids_beyond_the_ends() -> None:
    top = torch.full((2, 1), TARGET_VOCAB)
    message = f"decoder_token_ids must be from 0 to {TARGET_VOCAB - 1}; got {TARGET_VOCAB}"
    refuse(both(), message, decoder_token_ids=top)
    refuse(both(), f"decoder_token_ids must hold from 1 to {MAX_SEQ_LEN}", decoder_token_ids=TOO_LONG)
    assert both()(IDS, decoder_token_ids=top - 1).logits is None
    message = "decoder_token_ids must have the batch of token_ids, 2; got 1"
    refuse(both(), message, decoder_token_ids=TARGET[:1])


@pytest.mark.parametrize("form", ["encoder", "decoder"])
@pytest.mark.parametrize("name", ["decoder_token_ids", "decoder_mask", "decoder_positions"])
def test_a_single_stack_has_no_target(form: str, name: str) -> None:
    message = "decoder_token_ids, decoder_mask and decoder_positions must be None: this model has one stack"
    refuse(FORMS[form](), message, **{name: torch.ones_like(IDS)})


def test_int32_is_as_good(net: Transformer) -> None:
    arguments = {"decoder_token_ids": TARGET.int()} if len(net.prefixes) == 2 else {}
    output = net(IDS.int(), positions=numbers(7).int(), **arguments)
    assert torch.equal(output.last_hidden_state, run(net))


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ([0], "token_types must be a tensor; got list"),
        (torch.zeros(2, 4, dtype=torch.int64), r"must have the shape of token_ids, \(2, 7\); got \(2, 4\)"),
        (torch.zeros(1, 7, dtype=torch.int64), r"must have the shape of token_ids, \(2, 7\); got \(1, 7\)"),
        (torch.zeros(2, 7), "token_types must be int64; got torch.float32"),
        (torch.full((2, 7), 2), "token_types must be from 0 to 1; got 2"),
        (torch.full((2, 7), -1), "token_types must be from 0 to 1; got -1"),
    ],
)
def test_token_types(types: Any, message: str) -> None:
    refuse(encoder(), message, token_types=types)


def test_token_types_where_there_are_none() -> None:
    refuse(decoder(), "token_types must be None: this model has no token types", token_types=IDS)


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        ([0], "positions must be a tensor; got list"),
        (torch.arange(7), r"positions must have the shape of token_ids, \(2, 7\); got \(7,"),
        (torch.zeros(1, 6, dtype=torch.int64), r"must have the shape of token_ids, \(2, 7\); got \(1, 6\)"),
        (torch.zeros(2, 7), "positions must be int64; got torch.float32"),
        (torch.full((1, 7), MAX_SEQ_LEN), "positions must be from 0 to 10; got 11"),
        (torch.full((1, 7), -1), "positions must be from 0 to 10; got -1"),
    ],
)
def test_positions(positions: Any, message: str) -> None:
    refuse(encoder(), message, positions=positions)


def test_positions_without_a_table_have_no_end() -> None:
    refuse(decoder(), "positions must be at least 0; got -1", positions=torch.full((1, 7), -1))
    far = run(decoder(), positions=numbers(7) + 1000)
    assert far.isfinite().all()


def test_texts_packed_into_one_row(net: Transformer) -> None:
    """Longer than the table of positions, of which no text passes the end."""
    texts = [IDS[0] % TARGET_VOCAB, IDS[1, :6] % TARGET_VOCAB]
    segments = torch.tensor([[7] * 7 + [3] * 6])
    positions = torch.cat([torch.arange(len(text)) for text in texts])[None]

    def states(texts: list[Tensor], **packed: Any) -> Tensor:
        names = [""] if len(net.prefixes) == 1 else ["", "decoder_"]
        arguments = {f"{name}{what}": each for name in names for what, each in packed.items()}
        found = []
        for text in texts:
            target = {"decoder_token_ids": text[None]} if len(names) == 2 else {}
            found.append(net(text[None], **target, **arguments).last_hidden_state)
        return torch.cat(found, dim=1)

    def told(state: Tensor) -> list[Tensor]:
        net.zero_grad()
        (state * torch.linspace(-1, 1, state.numel()).view_as(state)).sum().backward()
        gradients = [p.grad.flatten() for p in net.parameters() if p.grad is not None]
        return [state, torch.cat(gradients)]

    packed = told(states([torch.cat(texts)], mask=Segments(segments), positions=positions))
    for one, other in zip(packed, told(states(texts)), strict=True):
        assert_close_to_largest(one, other, FP64)


BAD_MASKS = [
    (torch.ones(2, 7), r"^{} must be bool of the shape of .*; got torch.float32 .*Convert 0/1 with \.bool"),
    (torch.full((2, 7), 2), "^{} must be from 0 to 1; got 2"),
    (torch.ones(2, 4, dtype=torch.bool), r"^{} must be bool .* of shape \(2, 4\)"),
    (torch.ones(1, 1, dtype=torch.bool), r"^{} must be bool .* of shape \(1, 1\)"),
    ([[True] * 7] * 2, "^{} must be bool .*; got list"),
]


@pytest.mark.parametrize(("mask", "message"), BAD_MASKS)
def test_masks_that_do_not_fit(mask: Any, message: str) -> None:
    refuse(encoder(), message.format("mask"), mask=mask)
    refuse(both(), message.format("decoder_mask"), decoder_mask=mask, decoder_token_ids=TARGET)


def test_masks_of_tokens_and_of_a_target() -> None:
    mask = torch.ones(2, 4, dtype=torch.bool)
    wanted = r"of the shape of {}, \({}\), True for a token, or a regard.core.Mask"
    refuse(encoder(), wanted.format("token_ids", "2, 7"), mask=mask)
    target = {"decoder_mask": mask, "decoder_token_ids": TARGET}
    refuse(both(), wanted.format("decoder_token_ids", "2, 5"), **target)


def test_a_mask_of_0_and_1() -> None:
    real = torch.tensor([[1, 1, 1, 1, 1, 0, 0], [1] * 7])
    net = encoder()
    for mask in (real, real.int()):
        one, other = (net(IDS, mask=each).last_hidden_state for each in (mask, real.bool()))
        assert torch.equal(one, other)


def test_of_the_encoder_s_mask_only_padding_reaches_the_decoder() -> None:
    net = both()
    records: list[Any] = []
    point = "decoder.layers.0.cross_attention.inputs"

    def crossed(mask: Any) -> Any:
        run(net, mask=mask, taps=Taps({point: records.append}))
        return records.pop().mask

    assert crossed(None) is None
    # About pairs of the encoder's positions, and the decoder's are none of them.
    assert crossed(Causal() & Window(1, 1) & Predicate(lambda query, key: query == key)) is None
    other = REAL.flip(0)
    for mask in (Padding(REAL), Causal() & Padding(REAL), Padding(REAL) & Window(1, 1) & Padding(other)):
        wanted = Padding(REAL & other if len(mask.parts()) == 3 else REAL)
        assert torch.equal(crossed(mask).dense(5, 7), wanted.dense(5, 7))
    causal = net(IDS, mask=Causal(), decoder_token_ids=TARGET)
    assert_close_to_largest(
        causal.encoder_state[:, :3],
        net(IDS[:, :3], mask=Causal(), decoder_token_ids=TARGET).encoder_state,
        FP64,
    )
    segments = Segments(torch.zeros(2, 7, dtype=torch.int64))
    message = "mask and decoder_mask must both hold Segments, or neither.* got 1 in mask and 0"
    refuse(net, message, mask=Padding(REAL) & segments, decoder_token_ids=TARGET)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 0}, "vocab_size must be at least 1 and below 2.31; got 0"),
        ({"d_model": -1}, "d_model must be at least 1 and below 2.31; got -1"),
        ({"num_layers": 2**31}, "num_layers must be at least 1 and below 2.31; got 2147483648"),
        ({"num_heads": 0}, "num_heads must be at least 1 and below 2.31; got 0"),
        ({"max_seq_len": 0}, "max_seq_len must be at least 1 and below 2.31; got 0"),
        ({"num_token_types": -1}, "num_token_types must be at least 0 and below 2.31; got -1"),
        ({"attention_dropout_p": 1.0}, "attention_dropout_p must be a probability below 1; got 1.0"),
    ],
)
def test_sizes(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Transformer(replace(TinyConfig(), **changes), encoder=encoder_stack())
    with pytest.raises(InputError, match="encoder or decoder must be given; got neither"):
        Transformer(TinyConfig())


# --- pooler and head


class FirstAndLast(nn.Module):
    def forward(self, state: Tensor) -> Tensor:
        return state[:, 0] + state[:, -1]


@pytest.mark.parametrize("form", FORMS)
def test_the_pooler_reads_the_last_hidden_state(form: str) -> None:
    net = FORMS[form](pooler=FirstAndLast())
    arguments = {"decoder_token_ids": TARGET} if form == "both" else {}
    output = net(IDS, **arguments)
    assert torch.equal(output.pooled, output.last_hidden_state[:, 0] + output.last_hidden_state[:, -1])


def test_the_head_reads_the_last_hidden_state(net: Transformer) -> None:
    arguments = {"decoder_token_ids": TARGET} if len(net.prefixes) == 2 else {}
    output = net(IDS, **arguments)
    assert net.head is not None
    wanted = output.last_hidden_state @ net.head.output.weight.T + net.head.output.bias
    assert_close_to_largest(output.logits, wanted, FP64)
    seen: list[Tensor] = []
    bare = net(IDS, logits=False, taps=Taps({"logits": seen.append}), **arguments)
    assert bare.logits is None
    assert seen == []
    assert torch.equal(bare.last_hidden_state, output.last_hidden_state)


def test_a_head_may_read_the_pooler() -> None:
    labels = nn.Linear(D_MODEL, 3)
    net = encoder(pooler=FirstAndLast(), head=Classifier(pooled, labels=labels))
    output = net(IDS)
    assert output.pooled is not None
    assert_close_to_largest(output.logits, labels(output.pooled), FP64)


def test_a_label_for_the_row_is_refused_where_it_holds_several_texts() -> None:
    segments = Segments(torch.tensor([[0, 0, 0, 1, 1, 1, 1]] * 2))
    net = encoder(head=Classifier(first_position, labels=nn.Linear(D_MODEL, 3)))
    for mask in (segments, Padding(torch.ones(2, 7, dtype=torch.bool)) & segments):
        refuse(net, "mask must not hold Segments: this model's head gives a row one label", mask=mask)
        assert net(IDS, mask=mask, logits=False).last_hidden_state.shape == (2, 7, D_MODEL)
    of_tokens = encoder(head=token_classifier(D_MODEL, 3, dropout_p=0.0))
    assert of_tokens(IDS, mask=segments).logits.shape == (2, 7, 3)


def test_a_head_may_say_what_the_decoder_reads() -> None:
    head = EndClassifier(D_MODEL, 3, end_id=5, start_id=4, pad_id=None)
    net = both(head=head)
    ids = IDS.clamp(max=TARGET_VOCAB - 1)
    shifted = torch.cat((torch.full((2, 1), 4), ids[:, :-1]), dim=1)
    output, said = net(ids), net(ids, decoder_token_ids=shifted)
    assert torch.equal(output.logits, said.logits)
    assert output.last_hidden_state.shape == (2, 7, D_MODEL)


# --- taps


def test_the_names_are_the_points_in_their_order(net: Transformer) -> None:
    assert_points_in_order(net, lambda taps: run(net, taps=taps))


def test_the_prefixes_are_there_where_there_are_two_stacks() -> None:
    names = {form: make().tap_names() for form, make in FORMS.items()}
    assert names["encoder"][0] == names["decoder"][0] == "embeddings.tokens"
    assert names["encoder"][-1] == names["decoder"][-1] == "output"
    assert not any("cross" in name for name in names["encoder"] + names["decoder"])
    assert {name.partition(".")[0] for name in names["both"]} == {"encoder", "decoder"}
    crossed = [name for name in names["both"] if ".cross_attention." in name]
    assert len(crossed) == 8 * DECODER_DEPTH
    assert all(name.startswith("decoder.layers.") for name in crossed)
    last = names["both"].index("encoder.output")
    assert all(name.startswith("encoder.") for name in names["both"][: last + 1])
    assert all(name.startswith("decoder.") for name in names["both"][last + 1 :])


@torch.no_grad()
def test_every_point_is_written_to_at_its_place(net: Transformer) -> None:
    arguments = {"decoder_token_ids": TARGET} if len(net.prefixes) == 2 else {}
    # Far above rounding: what comes early is damped by every norm after it.
    assert_points_are_written(net, lambda taps: net(IDS, taps=taps, **arguments).logits, least=1e-6)


def test_a_tap_that_is_not_there() -> None:
    with pytest.raises(InputError, match=r"no tap is called 'layers.0.output'; .*encoder.layers.i.output"):
        run(both(), taps=Taps({"layers.0.output": lambda value: None}))
    with pytest.raises(InputError, match=r"no tap is called 'logits'"):
        run(encoder(), taps=Taps({"logits": lambda value: None}))


SIZES = {
    *("vocab_size", "decoder_vocab_size", "d_model", "d_embedding", "d_ff", "d_decoder_ff", "max_seq_len"),
    *("num_layers", "num_decoder_layers", "num_heads", "num_decoder_heads", "num_kv_heads", "head_dim"),
    "num_labels",
}
"""Fields that make a network too large to be built, or none."""


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_states_its_limits(family: str) -> None:
    """By name, so that a new family's fields are held too."""
    config = family_of(family).config
    kinds = get_type_hints(config, include_extras=True)
    for name in (each.name for each in fields(config)):
        words = getattr(limit_of(kinds[name]), "words", None)
        if name in SIZES:
            assert words == "at least 1 and below 2^31", name
        elif name == "num_token_types":
            assert words == "at least 0 and below 2^31"
        elif name in ("norm_eps", "initializer_range"):
            assert words == "at least 0", name
        elif name.endswith("dropout_p"):
            assert words == "a probability below 1", name
