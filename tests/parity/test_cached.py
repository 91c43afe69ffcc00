"""Every decoder run token by token, in pieces and in batches, against one pass over the whole."""

from typing import Any

import pytest
import torch
from torch import Tensor

from parity.conftest import Workshop
from parity.families import ENTRIES, UNDER_TEST
from regard.core import Padding, Segments, Taps, Window
from regard.core.errors import InputError
from tolerances import FP64, assert_close_to_largest

pytestmark = pytest.mark.usefixtures("quiet")

LENGTH, SOURCE = 13, 11
PIECES = {"one by one": [1] * LENGTH, "in chunks": [5, 1, 7], "at once": [LENGTH]}
BY_LENGTH = ("llama-dynamic", "llama-longrope", "phi3-longrope")
CACHED = [name for name in UNDER_TEST if ENTRIES[name].shape != "encoder" and name not in BY_LENGTH]


def network_of(workshop: Workshop, name: str, **fields: Any) -> Any:
    return workshop.network(name, "language-model", dtype=torch.float64, **fields)


def begun(network: Any, source: Tensor, mask: Tensor | None = None) -> Any:
    if network.encoder is None:
        return network.begin()
    return network.begin(network.encode(source, mask=mask))


def whole(network: Any, ids: Tensor, source: Tensor, mask: Tensor | None = None) -> Tensor:
    logits: Tensor
    if network.encoder is None:
        logits = network(ids).logits
    else:
        logits = network(source, mask=mask, decoder_token_ids=ids).logits
    return logits


@torch.no_grad()
@pytest.mark.parametrize("name", CACHED)
def test_pieces_give_what_the_whole_gives(workshop: Workshop, name: str) -> None:
    network = network_of(workshop, name)
    ids, source = torch.randint(8, 53, (3, LENGTH)), torch.randint(8, 53, (3, SOURCE))
    expected = whole(network, ids, source)
    for sizes in PIECES.values():
        state = begun(network, source)
        got = [network.decode(piece, state).logits for piece in ids.split(sizes, dim=1)]
        assert_close_to_largest(torch.cat(got, dim=1), expected, FP64)
        assert state.length == LENGTH


@torch.no_grad()
@pytest.mark.parametrize("name", CACHED)
def test_padding_changes_nothing(workshop: Workshop, name: str) -> None:
    """Texts and sources of unequal lengths side by side, and each alone."""
    network = network_of(workshop, name)
    lengths, sources = torch.tensor([7, 1, 4]), torch.tensor([11, 5, 1])
    ids, source = torch.randint(0, 53, (3, LENGTH)), torch.randint(0, 53, (3, SOURCE))
    mask = torch.arange(7) >= 7 - lengths[:, None]
    source_mask = torch.arange(SOURCE) < sources[:, None]
    state = begun(network, source, source_mask)
    prompt = network.decode(ids[:, :7], state, mask=mask, last=True).logits
    rest = [network.decode(piece, state).logits for piece in ids[:, 7:].split([1, 3, 2], dim=1)]
    got = torch.cat([prompt, *rest], dim=1)
    for row, (length, until) in enumerate(zip(lengths.tolist(), sources.tolist(), strict=True)):
        alone = whole(network, ids[row : row + 1, 7 - length :], source[row : row + 1, :until])
        assert_close_to_largest(got[row : row + 1], alone[:, length - 1 :], FP64)


@torch.no_grad()
@pytest.mark.parametrize("name", CACHED)
def test_rows_change_places(workshop: Workshop, name: str) -> None:
    network = network_of(workshop, name)
    ids, source = torch.randint(8, 53, (3, LENGTH)), torch.randint(8, 53, (3, SOURCE))
    rows = torch.tensor([2, 0, 2, 1])
    state = begun(network, source)
    network.decode(ids[:, :5], state)
    state.pick(rows)
    network.decode(ids[rows, 6:8], state)
    state.cut(5)
    got = network.decode(ids[rows, 5:], state).logits
    assert_close_to_largest(got, whole(network, ids, source)[rows, 5:], FP64)
    if network.encoder is not None:  # beams of one text: only what the decoder read moves
        state = begun(network, source, torch.arange(SOURCE) < torch.tensor([11, 5, 1])[:, None])
        network.decode(ids[:, :5], state)
        state.pick(torch.tensor([0, 0, 1, 1, 2, 2]), sources=torch.arange(3))
        kept = state.layers[0].cross_attention.since(0)[0]
        assert len(kept) == 3
        rows, own = torch.tensor([1, 0, 4, 4]), torch.tensor([0, 0, 2, 2])
        network.decode(torch.randint(8, 53, (6, 1)), state)
        state.cut(5)
        state.pick(rows, sources=torch.tensor([0, 2]))
        assert len(state.layers[0].cross_attention.since(0)[0]) == 2
        following = torch.randint(8, 53, (4, 4))
        got = network.decode(following, state).logits
        read = torch.cat((ids[own, :5], following), dim=1)
        for row, until in enumerate((11, 11, 1, 1)):
            alone = whole(network, read[row : row + 1], source[own[row : row + 1], :until])
            assert_close_to_largest(got[row : row + 1], alone[:, 5:], FP64)


@torch.no_grad()
@pytest.mark.parametrize("name", ["gemma2", "t5"])
def test_listeners_see_and_change_the_new_positions(workshop: Workshop, name: str) -> None:
    network = network_of(workshop, name)
    ids, source = torch.randint(8, 53, (2, 9)), torch.randint(8, 53, (2, SOURCE))
    prefix = network.prefixes["decoder"]
    seen: list[Tensor] = []
    point = f"{prefix}layers.1.attention.weights"
    halved = f"{prefix}layers.0.attention.v"

    def heard(value: Tensor) -> None:
        seen.append(value[..., -1, :])

    taps = Taps({point: heard, halved: lambda value: value / 2})
    state = begun(network, source)
    got = [network.decode(piece, state, taps=taps).logits for piece in ids.split([4, 1, 4], dim=1)]
    pieces, seen[:] = list(seen), []
    if network.encoder is None:
        expected = network(ids, taps=taps).logits
    else:
        expected = network(source, decoder_token_ids=ids, taps=taps).logits
    assert_close_to_largest(torch.cat(got, dim=1), expected, FP64)
    window = pieces[-1].shape[-1]
    assert_close_to_largest(pieces[-1], seen[0][..., -window:], FP64)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("llama-dynamic", "in llama DynamicNTKScaling turns all keys anew"),
        ("llama-longrope", "in llama LongRoPEScaling turns all keys anew"),
        ("bert", "bert has none here"),
    ],
)
def test_what_cannot_be_cached_is_refused_by_name(workshop: Workshop, name: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        workshop.network(name).begin()


def test_a_decoder_that_sees_what_follows_is_refused(workshop: Workshop) -> None:
    network = workshop.network("gemma3_text", use_bidirectional_attention=True)
    with pytest.raises(InputError, match="gemma3_text a token's vectors depend on what follows"):
        network.begin()


@torch.no_grad()
def test_the_limit_counts_tokens_not_padding(workshop: Workshop) -> None:
    network = network_of(workshop, "gpt2")
    ids = torch.randint(8, 53, (1, 23))
    state = network.begin()
    network.decode(ids, state)
    with pytest.raises(InputError, match="at most 23 positions, the model's limit; got 24"):
        network.decode(ids[:, :1], state)
    padded, mask = torch.cat((ids[:, :5], ids), dim=1), torch.arange(28)[None] >= 5
    state = network.begin()
    got = network.decode(padded, state, mask=mask).logits
    assert_close_to_largest(got[:, 5:], network(ids).logits, FP64)


@torch.no_grad()
def test_a_decoder_begins_with_what_the_encoder_gave(workshop: Workshop) -> None:
    bart, gpt2, source = (
        network_of(workshop, "bart"),
        network_of(workshop, "gpt2"),
        torch.tensor([[8, 9, 10]]),
    )
    with pytest.raises(InputError, match=r"encoded must be given, from encode\(...\); got NoneType"):
        bart.begin()
    with pytest.raises(InputError, match=r"encoded must be given, from encode\(...\); got Tensor"):
        bart.begin(bart.encode(source).state)
    with pytest.raises(InputError, match="encoded must be None: this model has no encoder; got Encoded"):
        gpt2.begin(bart.encode(source))
    with pytest.raises(InputError, match="must both hold Segments, or neither"):
        bart.begin(bart.encode(source, mask=Segments(torch.tensor([[0, 0, 1]]))))
    one = Padding(torch.tensor([[True, True, False]]))  # for all rows of the batch
    state = bart.begin(bart.encode(source.repeat(2, 1), mask=one & Window(left=5, right=5)))
    assert state.encoded_mask.tolist() == [[True, True, False]] * 2


def test_gradients_are_refused(workshop: Workshop) -> None:
    network = network_of(workshop, "gpt2")
    with pytest.raises(InputError, match=r"Call under torch\.no_grad"):
        network.decode(torch.tensor([[8, 9]]), network.begin())
