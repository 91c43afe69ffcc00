"""Heads, each by hand or against the classifiers of `transformers`, and which vectors they read."""

import math
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from regard.blocks import Embeddings, RMSNorm
from regard.core import Causal, Mask, Padding
from regard.core.errors import InputError
from regard.models._heads import (
    Activation,
    Classifier,
    EndClassifier,
    Head,
    LanguageModelHead,
    LastState,
    MaskedLMHead,
    Reading,
    every_position,
    first_position,
    last_of,
    last_token,
    mean_of_tokens,
    output_layer,
    pooled,
    token_classifier,
)
from tolerances import FP32_OF_LARGEST, FP64, assert_close_to_largest
from unit.blocks.by_hand import norm_by_hand, project
from unit.models.folders import network

BATCH, LENGTH, D_MODEL, VOCAB, LABELS = 2, 5, 6, 13, 3
IDS = torch.zeros(BATCH, LENGTH, dtype=torch.int64)


@pytest.fixture
def state() -> Tensor:
    return torch.randn(BATCH, LENGTH, D_MODEL, dtype=torch.float64)


def run(head: Head, state: Tensor, pooled: Tensor | None = None, token_ids: Tensor = IDS) -> Tensor:
    output: Tensor = head(LastState(state=state, pooled=pooled, token_ids=token_ids))
    return output


def by_hand(rows: Tensor, linear: nn.Linear) -> Tensor:
    done = [project(linear, row) for row in rows.flatten(0, -2).tolist()]
    return torch.tensor(done, dtype=torch.float64).view(*rows.shape[:-1], -1)


# --- words


@pytest.mark.parametrize("use_bias", [True, False])
def test_a_language_model_head(state: Tensor, use_bias: bool) -> None:
    head = LanguageModelHead(nn.Linear(D_MODEL, VOCAB, bias=use_bias)).double()
    assert_close_to_largest(run(head, state), by_hand(state, head.output), FP64)
    assert not [name for name in head.state_dict() if name == "bias"]


def test_scale_softcap_and_the_constant_in_their_order(state: Tensor) -> None:
    constant = torch.randn(1, VOCAB)
    output = nn.Linear(D_MODEL, VOCAB, bias=False)
    head = LanguageModelHead(output, scale=0.25, softcap=0.7, bias=constant).double()
    wanted = by_hand(state * 0.25, head.output).apply_(lambda x: 0.7 * math.tanh(x / 0.7)) + constant.double()
    assert_close_to_largest(run(head, state), wanted, FP64)
    assert torch.equal(head.state_dict()["bias"], constant.double())
    assert "bias" not in dict(head.named_parameters())  # a constant of the checkpoint: nothing learns it


def test_a_masked_lm_head(state: Tensor) -> None:
    head = MaskedLMHead(nn.Linear(D_MODEL, 7), "relu", nn.LayerNorm(7, eps=1e-3), nn.Linear(7, VOCAB))
    with torch.no_grad():
        head.norm.weight.copy_(torch.randn(7))
        head.norm.bias.copy_(torch.randn(7))
    head.double()
    weight, bias = head.norm.weight.tolist(), head.norm.bias.tolist()
    rows = []
    for row in state.flatten(0, 1).tolist():
        hidden = [max(x, 0.0) for x in project(head.dense, row)]
        rows.append(project(head.output, norm_by_hand(hidden, weight, bias, 1e-3)))
    assert_close_to_largest(run(head, state).flatten(0, 1), rows, FP64)


def test_any_norm_can_be_handed_to_it(state: Tensor) -> None:
    head = MaskedLMHead(nn.Linear(D_MODEL, 7), "gelu", RMSNorm(7), nn.Linear(7, VOCAB)).double()
    hidden = nn.functional.gelu(head.dense(state))
    assert_close_to_largest(run(head, state), head.output(head.norm(hidden)), FP64)


# --- labels


@pytest.fixture
def labels() -> nn.Linear:
    return nn.Linear(D_MODEL, LABELS).double()


def test_a_classifier_of_the_first_position(state: Tensor, labels: nn.Linear) -> None:
    head = Classifier(first_position, labels=labels)
    assert_close_to_largest(run(head, state), by_hand(state[:, 0], labels), FP64)
    pooled = torch.randn(BATCH, D_MODEL, dtype=torch.float64)
    assert torch.equal(run(head, state, pooled), run(head, state))


@pytest.mark.parametrize(("activation", "function"), [("tanh", math.tanh), ("relu", lambda x: max(x, 0.0))])
def test_a_classifier_with_a_layer_between(state: Tensor, activation: str, function: object) -> None:
    first, last = nn.Linear(D_MODEL, 7).double(), nn.Linear(7, LABELS).double()
    head = Classifier(first_position, hidden=first, activation=Activation(activation), labels=last)
    hidden = by_hand(state[:, 0], first).apply_(function)
    assert_close_to_largest(run(head, state), by_hand(hidden, last), FP64)


def test_the_layers_have_their_names_in_the_state(labels: nn.Linear) -> None:
    hidden = nn.Linear(D_MODEL, D_MODEL)
    head = Classifier(first_position, hidden=hidden, activation=Activation("tanh"), score=labels)
    assert list(head.state_dict()) == ["hidden.weight", "hidden.bias", "score.weight", "score.bias"]
    assert head.get_parameter("score.weight") is labels.weight


def test_which_heads_say_one_thing_of_a_text(labels: nn.Linear) -> None:
    assert Classifier(first_position, labels=labels).of_text
    assert end_classifier().of_text
    assert not token_classifier(D_MODEL, LABELS, dropout_p=0.0).of_text
    assert not LanguageModelHead(nn.Linear(D_MODEL, VOCAB)).of_text


def test_a_classifier_of_the_pooler(state: Tensor, labels: nn.Linear) -> None:
    head = Classifier(pooled, labels=labels)
    vectors = torch.randn(BATCH, D_MODEL, dtype=torch.float64)
    assert_close_to_largest(run(head, state, vectors), by_hand(vectors, labels), FP64)
    with pytest.raises(AssertionError, match="a head that reads the pooler is built with one"):
        run(head, state)


def test_a_classifier_of_tokens(state: Tensor) -> None:
    head = token_classifier(D_MODEL, LABELS, dropout_p=0.5).double()
    labels = head.get_submodule("labels")
    assert isinstance(labels, nn.Linear)
    assert_close_to_largest(run(head.eval(), state), by_hand(state, labels), FP64)


# --- the last token, as decoders' classifiers read it

PADDED = {
    "none": [[5, 6, 7, 8, 9], [9, 8, 7, 6, 5]],
    "right": [[5, 6, 7, 1, 1], [5, 1, 1, 1, 1]],
    "left": [[1, 1, 5, 6, 7], [1, 1, 1, 1, 5]],
    "both": [[1, 5, 6, 1, 1], [1, 1, 5, 6, 1]],
}


@pytest.mark.parametrize(
    ("kind", "places"), [("none", [4, 4]), ("right", [2, 0]), ("left", [4, 4]), ("both", [2, 3])]
)
def test_the_last_token_by_hand(state: Tensor, labels: nn.Linear, kind: str, places: list[int]) -> None:
    head = Classifier(partial(last_token, pad_id=1), score=labels)
    wanted = [project(labels, state[b, place].tolist()) for b, place in enumerate(places)]
    assert_close_to_largest(run(head, state, token_ids=torch.tensor(PADDED[kind])), wanted, FP64)


def test_a_text_s_label_does_not_depend_on_the_padding_beside_it() -> None:
    # No id says what is padding, which transformers refuses; the mask does.
    net = network("llama", head="sequence", pad_token_id=None)
    short, mask = torch.tensor([[5, 6, 7]]), torch.tensor([[True] * 3 + [False] * 2, [True] * 5])
    padded = torch.tensor([[5, 6, 7, 0, 0], [1, 2, 3, 4, 5]])
    with torch.no_grad():
        alone, together = net(short).logits, net(padded, mask=mask).logits
    assert alone is not None
    assert together is not None
    assert_close_to_largest(together[:1], alone, FP32_OF_LARGEST)


# --- the end of the text, as BART reads it

END, PAD, START = 2, 1, 4
ENDED = torch.tensor([[0, 5, 2, 6, 2], [0, 7, 2, 1, 1]])


def end_classifier(**kwargs: int | float | None) -> EndClassifier:
    given = {"end_id": END, "start_id": START, "pad_id": PAD} | kwargs
    head = EndClassifier(D_MODEL, LABELS, **given)  # type: ignore[arg-type]
    return head.double()


def test_the_last_of_several_ends_by_hand(state: Tensor) -> None:
    head = end_classifier()
    wanted = []
    for b, place in enumerate([4, 2]):
        hidden = [math.tanh(x) for x in project(head.hidden, state[b, place].tolist())]
        wanted.append(project(head.score, hidden))
    assert_close_to_largest(run(head, state, token_ids=ENDED), wanted, FP64)


def test_what_the_decoder_reads_is_transformers_s() -> None:
    from transformers.models.bart.modeling_bart import shift_tokens_right as of_bart
    from transformers.models.mbart.modeling_mbart import shift_tokens_right as of_mbart

    assert torch.equal(end_classifier().target_of(ENDED), of_bart(ENDED, PAD, START))
    assert end_classifier().target_of(ENDED).tolist() == [[4, 0, 5, 2, 6], [4, 0, 7, 2, 1]]
    assert torch.equal(end_classifier(start_id=None).target_of(ENDED), of_mbart(ENDED, PAD))
    assert end_classifier(start_id=None).target_of(ENDED).tolist() == [[2, 0, 5, 2, 6], [2, 0, 7, 2, 1]]
    whole = end_classifier(start_id=None, pad_id=None).target_of(ENDED)
    assert whole.tolist() == [[2, 0, 5, 2, 6], [1, 0, 7, 2, 1]]


def test_other_heads_leave_it_to_the_caller(state: Tensor) -> None:
    assert LanguageModelHead(nn.Linear(D_MODEL, VOCAB)).target_of(ENDED) is None


def test_what_the_decoder_read_does_not_fit(state: Tensor) -> None:
    with pytest.raises(InputError, match="token_ids must hold the end of text, id 2, in every row"):
        run(end_classifier(), state, token_ids=torch.tensor([[0, 5, 2, 6, 2], [0, 7, 7, 1, 1]]))
    with pytest.raises(InputError, match=r"decoder_token_ids must have the shape .*\(2, 4\); got \(2, 5\)"):
        run(end_classifier(), state, token_ids=ENDED[:, :4])


# --- the output layer


def test_a_tied_output_layer_is_the_table_itself() -> None:
    tokens = nn.Embedding(VOCAB, D_MODEL)
    output = output_layer(tokens, is_tied=True, use_bias=True)
    assert output.weight is tokens.weight
    assert (output.in_features, output.out_features) == (D_MODEL, VOCAB)
    assert output.bias is not None
    assert output.bias.shape == (VOCAB,)
    both = nn.ModuleList([tokens, output]).to(torch.bfloat16)
    assert sum(parameter.numel() for parameter in both.parameters()) == VOCAB * D_MODEL + VOCAB
    assert output.weight is tokens.weight
    with torch.no_grad():
        tokens.weight[3] = 7.0
    state = torch.ones(1, D_MODEL, dtype=torch.bfloat16)
    assert output(state)[0, 3].item() == pytest.approx(7.0 * D_MODEL + output.bias[3].item(), rel=0.01)


def test_an_untied_output_layer_is_another() -> None:
    tokens = Embeddings(VOCAB, D_MODEL).tokens
    output = output_layer(tokens, is_tied=False)
    assert output.weight is not tokens.weight
    assert output.weight.shape == tokens.weight.shape
    assert output.bias is None


def test_it_is_made_where_the_table_is() -> None:
    assert output_layer(nn.Embedding(VOCAB, D_MODEL, device="meta"), is_tied=False).weight.is_meta


# --- what is read

ROWS = torch.tensor([[5, 6, 7, 8, 9], [1, 6, 7, 1, 1], [1, 1, 1, 1, 1]])
REAL = torch.tensor([[True] * 5, [False, True, True, False, False], [False] * 5])


@pytest.fixture
def states() -> Tensor:
    return torch.randn(3, 5, 7, dtype=torch.float64)


def read(reading: Reading, states: Tensor, *, token_ids: Tensor = ROWS, mask: Mask | None = None) -> Tensor:
    return reading(LastState(state=states, token_ids=token_ids, mask=mask))


def rows(states: Tensor, *places: int) -> Tensor:
    return torch.stack([states[row, place] for row, place in enumerate(places)])


def test_the_first_and_every_one(states: Tensor) -> None:
    assert torch.equal(read(first_position, states, mask=Padding(REAL)), rows(states, 0, 0, 0))
    assert torch.equal(read(every_position, states, mask=Padding(REAL)), states)


def test_the_last_by_its_id_whatever_the_mask_says(states: Tensor) -> None:
    for mask in (None, Padding(~REAL), Causal()):
        assert torch.equal(read(partial(last_token, pad_id=1), states, mask=mask), rows(states, 4, 2, 0))


def test_the_last_by_the_mask_where_there_is_no_id(states: Tensor) -> None:
    reading = partial(last_token, pad_id=None)
    assert torch.equal(read(reading, states), rows(states, 4, 4, 4))
    assert torch.equal(read(reading, states, mask=Causal()), rows(states, 4, 4, 4))
    assert torch.equal(read(reading, states, mask=Padding(REAL)), rows(states, 4, 2, 0))
    narrower = Causal() & Padding(REAL) & Padding(torch.tensor([[True, True, False, True, False]]))
    assert torch.equal(read(reading, states, mask=narrower), rows(states, 3, 1, 0))


def test_one_row_of_a_mask_is_for_all(states: Tensor) -> None:
    mask = Padding(torch.tensor([[True, True, True, False, False]]))
    assert torch.equal(read(partial(last_token, pad_id=None), states, mask=mask), rows(states, 2, 2, 2))
    assert_close_to_largest(read(mean_of_tokens, states, mask=mask), states[:, :3].sum(1) / 3, FP64)


def test_where_the_last_stands() -> None:
    assert last_of(REAL).tolist() == [4, 2, 0]


def test_the_mean_is_of_tokens(states: Tensor) -> None:
    states[1, 3] = torch.nan
    expected = torch.stack([states[0].sum(0) / 5, (states[1, 1] + states[1, 2]) / 2, torch.zeros(7)])
    assert_close_to_largest(read(mean_of_tokens, states, mask=Padding(REAL)), expected, FP64)
    narrower = Padding(REAL) & Padding(torch.tensor([[True, True, False, True, True]]))
    assert_close_to_largest(read(mean_of_tokens, states, mask=narrower)[1], states[1, 1], FP64)
    assert_close_to_largest(read(mean_of_tokens, states[:1]), expected[:1], FP64)
