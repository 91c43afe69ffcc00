"""Ids as a tokenizer of transformers hands them out, against transformers' model on the same input."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers

import regard
from regard.core.errors import InputError
from tolerances import PARITY_FP32, assert_close_to_largest

TEXTS = ["the river bank", "a", "time flies like an arrow over the bank"]
PAIRS = ["it was flooded", "time flies", "fruit flies like a banana"]
PADDED = {"padding": "max_length", "max_length": 23}
TENSORS = {"return_tensors": "pt"}


@pytest.fixture(scope="module")
def tokenizer(model: regard.Model) -> Any:
    return transformers.AutoTokenizer.from_pretrained(model.loaded.source.folder)


@pytest.fixture
def theirs(model: regard.Model, quiet: None) -> Any:
    folder = model.loaded.source.folder
    return transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()


INPUTS: dict[str, Callable[[Any], Any]] = {
    "padding": lambda tokenizer: tokenizer(TEXTS[0], **PADDED, **TENSORS),
    "a pair": lambda tokenizer: tokenizer(TEXTS[0], PAIRS[0], **TENSORS),
    "a pair with padding": lambda tokenizer: tokenizer(TEXTS[0], PAIRS[0], **PADDED, **TENSORS),
    "a batch": lambda tokenizer: tokenizer(TEXTS, padding=True, **TENSORS),
    "a batch of pairs": lambda tokenizer: tokenizer(TEXTS, PAIRS, padding=True, **TENSORS),
}


@pytest.mark.parametrize("given", INPUTS)
def test_traces_and_passes_of_what_a_tokenizer_gives(
    given: str, model: regard.Model, tokenizer: Any, theirs: Any
) -> None:
    encoded = INPUTS[given](tokenizer)
    with torch.no_grad():
        wanted = theirs(**encoded, output_attentions=True)
        passes = [model(**encoded), model(encoded)]
    of_names, of_mapping = model.trace(**encoded), model.trace(encoded)
    traces = of_names if isinstance(of_names, list) else [of_names]
    assert len(traces) == len(encoded.input_ids)
    for row, trace in enumerate(traces):
        real = encoded.attention_mask[row].bool()
        assert trace.token_ids == encoded.input_ids[row][real].tolist()
        for layer, weights in enumerate(wanted.attentions):
            own = weights[row][:, real][:, :, real]
            assert_close_to_largest(trace.weights(layer), own, PARITY_FP32)
        hidden = wanted.last_hidden_state[row][real]
        assert_close_to_largest(trace.embeddings(), hidden, PARITY_FP32)
        for output in passes:
            assert_close_to_largest(output.last_hidden_state[row][real], hidden, PARITY_FP32)
    again = of_mapping if isinstance(of_mapping, list) else [of_mapping]
    assert [each.token_ids for each in again] == [each.token_ids for each in traces]


def test_padding_on_the_left_is_left_out(model: regard.Model, tokenizer: Any) -> None:
    alone = model.trace(TEXTS[0])
    encoded = tokenizer(TEXTS[0], padding_side="left", return_special_tokens_mask=True, **PADDED)
    trace = model.trace(**encoded)  # lists, as without return_tensors, and a name that says nothing
    assert torch.equal(trace.weights(3), alone.weights(3))


def test_rows_of_several_lengths(model: regard.Model, tokenizer: Any) -> None:
    traces = model.trace(token_ids=tokenizer(TEXTS).input_ids)
    assert [each.token_ids for each in traces] == [each.token_ids for each in model.trace(TEXTS)]
    assert_close_to_largest(traces[1].embeddings(), model.trace(TEXTS[1]).embeddings(), PARITY_FP32)


def test_heads_take_what_a_tokenizer_gives(model: regard.Model, tokenizer: Any) -> None:
    text = "The cat sat on the mat, and the dog lay on the rug."
    of_ids = model.heads([tokenizer(text, **PADDED)], layer=0)
    of_text = model.heads(text, layer=0)
    assert str(of_ids) == str(of_text)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("padding", r"end in 18 times '\[PAD\]', the padding.*attention_mask"),
        ("a pair", r"go on after '\[SEP\]', which ends a text.*token_type_ids"),
        ("a batch", r"end in .* times '\[PAD\]', the padding"),
    ],
)
def test_ids_that_cannot_be_read_alone(given: str, message: str, model: regard.Model, tokenizer: Any) -> None:
    ids = INPUTS[given](tokenizer).input_ids
    lens = regard.lens(transformers.BertModel(_tiny()).eval(), tokenizer)
    entrances: list[Callable[[], object]] = [
        lambda: model.trace(token_ids=ids),
        lambda: model.trace({"input_ids": ids}),
        lambda: model(ids),
        lambda: model(input_ids=ids),
        lambda: model.heads(list(ids)),
        lambda: model.patch(ids, ids, lambda output: output.last_hidden_state.sum()),
        lambda: model.head_importance([ids], lambda output, number: output.last_hidden_state.sum()),
        lambda: model.gradients(ids, of=lambda output: output.last_hidden_state.sum(), at="layers.0.input"),
        lambda: lens.trace(token_ids=ids),
        lambda: lens(ids),
    ]
    for enter in entrances:
        with pytest.raises(InputError, match=message):
            enter()


def _tiny() -> transformers.BertConfig:
    return transformers.BertConfig(
        hidden_size=6, num_hidden_layers=1, num_attention_heads=3, intermediate_size=7, vocab_size=30522
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"attention_mask": [1]}, r"mask must have the shape of token_ids; got rows of \[1\] for \[3\]"),
        ({"attention_mask": [1, 0, 1]}, "mask must be 0 for padding alone, at the ends"),
        ({"attention_mask": [0, 0, 0]}, "a row is all padding"),
        ({"attention_mask": [0, 2, 1]}, "mask must be 1 for a token and 0 for padding; got 2"),
        ({"attention_mask": [0.5, 1.0, 1.0]}, "mask must be whole numbers"),
        ({"attention_mask": [1, 1, 1], "mask": [1, 1, 1]}, "mask must be given once; it came as mask too"),
        ({"token_type_ids": [0, 7, 0]}, "token_types must be from 0 to 1, .*; got 7"),
        ({"position_ids": [0, 1, 2]}, "position_ids is not read here"),
        ({"target_ids": [1]}, "target_ids must be None: this model has no decoder"),
    ],
)
def test_what_does_not_belong_together(given: Any, message: str, model: regard.Model) -> None:
    with pytest.raises(InputError, match=message):
        model.trace(token_ids=[101, 2924, 102], **given)


def test_a_token_that_ends_texts_and_fills_batches() -> None:
    words = {"the": 0, "river": 1, "bank": 2, "<|end|>": 3}
    backend = transformers.PreTrainedTokenizerFast(
        tokenizer_object=_words(words), eos_token="<|end|>", pad_token="<|end|>"
    )
    config = transformers.GPT2Config(vocab_size=4, n_embd=6, n_layer=1, n_head=3, n_positions=17)
    model = regard.lens(transformers.GPT2Model(config).eval(), backend)
    assert model.trace(token_ids=[0, 1, 2, 3]).token_ids == [0, 1, 2, 3]
    with pytest.raises(InputError, match=r"end in 2 times '<\|end\|>', the padding"):
        model.trace(token_ids=[0, 1, 3, 3])
    assert model.trace(token_ids=[0, 1, 3, 3], attention_mask=[1, 1, 1, 1]).token_ids == [0, 1, 3, 3]
    assert model.trace(token_ids=[0, 1, 3, 3], attention_mask=[1, 1, 1, 0]).token_ids == [0, 1, 3]


def _words(vocabulary: dict[str, int]) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="the"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return backend


@pytest.mark.usefixtures("quiet")
def test_a_target_with_padding(workshop: Any) -> None:
    folder = workshop.saved("t5").folder
    model = regard.load(folder)
    start = model.network.start_id
    given = {
        "input_ids": torch.tensor([[5, 6, 7, 0, 0], [5, 6, 7, 8, 9]]),
        "attention_mask": torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]),
        "decoder_input_ids": torch.tensor([[start, 4, 0], [start, 4, 6]]),
        "decoder_attention_mask": torch.tensor([[1, 1, 0], [1, 1, 1]]),
    }
    short, long = model.trace(**given)
    alone = model.trace(token_ids=[5, 6, 7], target_ids=[start, 4])
    assert_close_to_largest(short.embeddings(kind="decoder"), alone.embeddings(kind="decoder"), PARITY_FP32)
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    with torch.no_grad():
        wanted = theirs(**given, output_hidden_states=True).decoder_hidden_states[-1]
    assert_close_to_largest(long.embeddings(kind="decoder"), wanted[1], PARITY_FP32)
    assert_close_to_largest(short.embeddings(kind="decoder"), wanted[0][:2], PARITY_FP32)
    with pytest.raises(InputError, match="target_ids must have a row for each of token_ids, 2; got 1"):
        model.trace(token_ids=given["input_ids"][1:].repeat(2, 1), target_ids=[[start]])
