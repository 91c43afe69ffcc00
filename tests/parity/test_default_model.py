"""The default model as it is installed, against transformers' eager attention: every layer, every head."""

import dataclasses
import itertools
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import regard
from regard.core.errors import InputError
from regard.models import Loaded
from regard.tracing import Trace
from tolerances import FP32_OF_LARGEST, PARITY_FP32, WEIGHTS, assert_close_to_largest

LONG = "the quick brown fox jumps over a river bank while the banker fishes for unbelievable compliments "
# Prime, and so long that one head's matrix is larger than anything of size tokens x d_model.
NUM_TOKENS = 499
NUM_LAYERS, NUM_HEADS, HEAD_DIM, D_MODEL = 6, 12, 32, 384


def _of_length(model: regard.Model, count: int) -> str:
    """A text of exactly so many tokens with the special ones. (BERT's words are tokenized one by one.)"""
    pieces = {
        word: len(model.tokenizer.encode(word, add_special_tokens=False).tokens) for word in LONG.split()
    }
    text, left = [], count - 2
    for word in itertools.cycle(pieces):
        if left < max(pieces.values()):
            break
        text.append(word)
        left -= pieces[word]
    return " ".join([*text, *["fox"] * left])


TEXTS: dict[str, tuple[str, str | None]] = {
    "short": ("time flies like an arrow", None),
    "one-word": ("bank", None),
    "pair": ("time flies like an arrow", "fruit flies like a banana"),
    "cjk": ("我在河岸钓鱼。東京は日本の首都です。", None),
    "emoji": ("I ❤️ fishing 🎣 on the 👩‍👩‍👧 bank! naïve Café", None),
    "long": ("", None),  # made in the fixture: it takes the tokenizer
}


@dataclass(frozen=True, kw_only=True)
class Both:
    """One text through regard and through transformers."""

    trace: Trace
    theirs: Any
    contexts: list[Tensor]
    outputs: list[Tensor]


@pytest.fixture(scope="module")
def oracle(model: regard.Model) -> Iterator[Any]:
    transformers.utils.logging.disable_progress_bar()
    folder = model.loaded.source.folder
    yield transformers.BertModel.from_pretrained(folder, attn_implementation="eager").eval()
    transformers.utils.logging.enable_progress_bar()


@pytest.fixture(scope="module", params=list(TEXTS))
def both(request: pytest.FixtureRequest, model: regard.Model, oracle: Any) -> Both:
    text, pair = TEXTS[request.param]
    if request.param == "long":
        text = _of_length(model, NUM_TOKENS)
    trace = model.trace(text, pair)
    contexts: list[Tensor] = []
    outputs: list[Tensor] = []
    hooks = []
    for layer in oracle.encoder.layer:
        attention = layer.attention
        hooks.append(attention.self.register_forward_hook(lambda _, __, out: contexts.append(out[0])))
        hooks.append(attention.output.dense.register_forward_hook(lambda _, __, out: outputs.append(out)))
    with torch.no_grad():
        theirs = oracle(
            input_ids=torch.tensor([trace.token_ids]),
            token_type_ids=torch.tensor([[token.type_id for token in trace.encoding.tokens]]),
            output_attentions=True,
            output_hidden_states=True,
        )
    for hook in hooks:
        hook.remove()
    return Both(trace=trace, theirs=theirs, contexts=contexts, outputs=outputs)


def test_tokens(both: Both, model: regard.Model) -> None:
    backend = transformers.BertTokenizer.from_pretrained(model.loaded.source.folder)
    wanted = backend(*both.trace.encoding.texts, truncation=False)
    assert both.trace.token_ids == wanted["input_ids"]
    assert [token.type_id for token in both.trace.encoding.tokens] == wanted["token_type_ids"]
    assert both.trace.tokens == backend.convert_ids_to_tokens(wanted["input_ids"])


def test_weights_of_every_layer_and_head(both: Both) -> None:
    trace, count = both.trace, len(both.trace.tokens)
    assert (
        (trace.num_layers, trace.num_heads)
        == (NUM_LAYERS, NUM_HEADS)
        == (len(both.theirs.attentions), both.theirs.attentions[0].shape[1])
    )
    for layer, theirs in enumerate(both.theirs.attentions):
        ours = trace.weights(layer)
        assert ours.shape == (NUM_HEADS, count, count)
        assert ours.dtype == torch.float32
        # Absolute, and weights are at most 1: no looser than relative to the largest.
        assert (ours - theirs[0]).abs().max().item() <= PARITY_FP32
        for head in (0, 5, -1):
            assert torch.equal(trace.weights(layer, head), ours[head])


def test_weights_are_the_softmax_of_q_and_k(both: Both) -> None:
    for layer, inputs in enumerate(each.inputs for each in both.trace.attention()):
        assert inputs.q.shape == inputs.k.shape == (1, NUM_HEADS, len(both.trace.tokens), HEAD_DIM)
        scores = inputs.q[0].double() @ inputs.k[0].double().mT / HEAD_DIM**0.5
        weights = torch.softmax(scores, dim=-1)
        ours = both.trace.weights(layer)
        # Scores reach 80 here: computed in float32 they would already be 4e-6 off.
        assert (ours.double() - weights).abs().max().item() <= WEIGHTS
        assert (ours.double().sum(dim=-1) - 1).abs().max().item() <= WEIGHTS
        assert_close_to_largest(both.trace.scores(layer), scores, FP32_OF_LARGEST)


def test_hidden_states(both: Both) -> None:
    trace = both.trace
    assert_close_to_largest(trace.embeddings("input"), both.theirs.hidden_states[0][0], PARITY_FP32)
    for layer in range(1, NUM_LAYERS + 1):
        assert_close_to_largest(trace.embeddings(layer), both.theirs.hidden_states[layer][0], PARITY_FP32)
    assert torch.equal(trace.embeddings(), trace.embeddings(NUM_LAYERS))


def test_contexts(both: Both) -> None:
    assert len(both.contexts) == NUM_LAYERS
    for layer, theirs in enumerate(both.contexts):
        joined = both.trace.context(layer).transpose(0, 1).flatten(1)
        assert_close_to_largest(joined, theirs[0], PARITY_FP32)
        weighted = both.trace.weights(layer) @ both.trace.attention()[layer].inputs.v[0]
        assert_close_to_largest(both.trace.context(layer), weighted, FP32_OF_LARGEST)


def test_outputs(both: Both) -> None:
    assert len(both.outputs) == NUM_LAYERS
    for layer, theirs in enumerate(both.outputs):
        assert_close_to_largest(both.trace.attention()[layer].output, theirs[0], PARITY_FP32)


def test_the_learned_embedding_is_the_row_of_the_table(both: Both, oracle: Any) -> None:
    embeddings = oracle.embeddings
    ids = torch.tensor(both.trace.token_ids)
    count = len(ids)
    assert torch.equal(both.trace.embeddings(0), embeddings.word_embeddings.weight[ids])
    assert torch.equal(both.trace.source.positions, embeddings.position_embeddings.weight[:count])
    types = torch.tensor([token.type_id for token in both.trace.encoding.tokens])
    assert both.trace.source.token_types is not None
    assert torch.equal(both.trace.source.token_types, embeddings.token_type_embeddings.weight[types])


def test_words_and_their_pieces(model: regard.Model) -> None:
    trace = model.trace("An unbelievable bank, an EMBANKED fishery")
    assert trace.words == ["An", "unbelievable", "bank", ",", "an", "EMBANKED", "fishery"]
    pieces = trace.encoding.find("EMBANKED")
    assert [trace.tokens[i] for i in pieces] == ["em", "##bank", "##ed"]
    for layer in range(NUM_LAYERS + 1):
        rows = trace.embeddings(layer)[list(pieces)]
        assert_close_to_largest(trace.embedding("EMBANKED", layer), rows.mean(dim=0), FP32_OF_LARGEST)
    whole = trace.weights(2, 7)
    assert torch.equal(trace.weights(2, 7, query="EMBANKED"), whole[list(pieces)])
    (bank,) = trace.encoding.find("bank")
    assert torch.equal(trace.weights(2, 7, query="EMBANKED", key="bank"), whole[list(pieces), bank, None])


# --- a trace keeps nothing of size tokens x tokens


def tensors_of(record: object, seen: set[int] | None = None) -> Iterator[Tensor]:
    """Every tensor that can be reached from a record, through fields, attributes and containers.

    Not those of the model itself, which a trace points to.
    """
    seen = set() if seen is None else seen
    if id(record) in seen or isinstance(record, Loaded):
        return
    seen.add(id(record))
    if isinstance(record, Tensor):
        yield record
        inner: list[object] = [record.grad_fn, record.grad]
    elif isinstance(record, dict):
        inner = [*record.keys(), *record.values()]
    elif isinstance(record, (list, tuple, set, frozenset)):
        inner = list(record)
    else:
        inner = [*getattr(record, "__dict__", {}).values()]
        inner += [getattr(record, name, None) for name in getattr(type(record), "__slots__", ())]
    for value in inner:
        yield from tensors_of(value, seen)


def _largest(trace: Trace) -> tuple[int, int]:
    """The most entries of a tensor, and the most bytes of a storage."""
    tensors = list(tensors_of(trace))
    assert len(tensors) >= 5 * NUM_LAYERS  # q, k, v, hidden, output: the walk did find them
    return max(t.numel() for t in tensors), max(t.untyped_storage().nbytes() for t in tensors)


def test_a_trace_is_small(model: regard.Model) -> None:
    trace = model.trace(_of_length(model, NUM_TOKENS))
    count = len(trace.tokens)
    assert count == NUM_TOKENS
    bound = count * D_MODEL
    assert bound < count * count
    entries, storage = _largest(trace)
    assert entries <= bound
    assert storage <= 4 * bound
    trace.weights(0)
    trace.explain(3, 2, 1)
    assert _largest(trace) == (entries, storage)  # looking leaves nothing behind


def test_the_walk_finds_a_matrix_that_is_hidden(model: regard.Model) -> None:
    trace = model.trace("time flies like an arrow")
    count = 7
    matrix = torch.zeros(NUM_HEADS * 3, count, D_MODEL)
    layers = trace.attention()
    inputs = dataclasses.replace(layers[4].inputs, bias=matrix[None, :NUM_HEADS, :, :count])
    biased = dataclasses.replace(layers[4], inputs=inputs)
    passage = dataclasses.replace(trace.source, attention=(*layers[:4], biased, layers[5]))
    hidden = dataclasses.replace(trace, encoder=passage)
    entries, storage = _largest(trace)
    assert _largest(hidden) == (entries, 4 * matrix.numel())
    assert storage < 4 * matrix.numel()


class Sizes(TorchDispatchMode):
    """Notes the largest tensor that any operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for value in made if isinstance(made, (tuple, list)) else [made]:
            if isinstance(value, Tensor) and not any(value is given for given in args):
                self.largest = max(self.largest, value.numel())
        return made


def test_the_forward_pass_makes_no_matrix(model: regard.Model) -> None:
    text = _of_length(model, NUM_TOKENS)
    d_ff = model.network.encoder.layers[0].ffn.hidden.out_features
    assert d_ff < NUM_HEADS * NUM_TOKENS
    with Sizes() as sizes:
        trace = model.trace(text)
    # The weights themselves pass by transposed, by a view; the largest of them has d_ff x d_model entries.
    assert NUM_TOKENS * d_ff <= sizes.largest < NUM_HEADS * NUM_TOKENS**2
    assert sizes.largest == NUM_TOKENS * d_ff
    with Sizes() as sizes:
        trace.weights(0)
    assert sizes.largest == NUM_HEADS * NUM_TOKENS**2


# --- one record, several ways to it


def test_a_trace_has_the_numbers_of_the_call(both: Both, model: regard.Model) -> None:
    types = torch.tensor([[token.type_id for token in both.trace.encoding.tokens]])
    with torch.no_grad():
        output = model(torch.tensor([both.trace.token_ids]), token_types=types)
    assert output.last_hidden_state.shape[0] == 1
    assert torch.equal(output.last_hidden_state[0], both.trace.embeddings())
    assert output.pooled is not None
    assert_close_to_largest(output.pooled, both.theirs.pooler_output, PARITY_FP32)


def test_a_padded_batch_has_the_numbers_of_each_alone(model: regard.Model) -> None:
    traces = model.trace(["bank", "time flies like an arrow", "I went to the bank to deposit money."])
    longest = max(len(trace.tokens) for trace in traces)
    ids = torch.full((3, longest), 29999)
    mask = torch.zeros(3, longest, dtype=torch.bool)
    for row, trace in enumerate(traces):
        ids[row, : len(trace.tokens)] = torch.tensor(trace.token_ids)
        mask[row, : len(trace.tokens)] = True
    with torch.no_grad():
        output = model(ids, mask=mask).last_hidden_state
        unmasked = model.network(ids).last_hidden_state
    for row, trace in enumerate(traces):
        assert_close_to_largest(output[row, : len(trace.tokens)], trace.embeddings(), PARITY_FP32)
    with pytest.raises(AssertionError, match="apart"):
        assert_close_to_largest(unmasked[0, :3], traces[0].embeddings(), PARITY_FP32)


def test_threads(model: regard.Model) -> None:
    texts = [
        "time flies like an arrow",
        "Write a poem about a man fishing on a river bank.",
        LONG * 3,
        "fruit flies like a banana " * 7,
    ]
    alone = [model.trace(text) for text in texts]
    start = threading.Barrier(len(texts))
    together: dict[int, list[Trace]] = {index: [] for index in range(len(texts))}

    def work(index: int) -> None:
        start.wait()
        for _ in range(3):
            together[index].append(model.trace(texts[index]))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, wanted in enumerate(alone):
        assert len(together[index]) == 3
        for trace in together[index]:
            assert trace.tokens == wanted.tokens
            for layer in range(NUM_LAYERS):
                assert_close_to_largest(
                    trace.source.hidden[layer + 1], wanted.source.hidden[layer + 1], PARITY_FP32
                )
                assert (trace.weights(layer) - wanted.weights(layer)).abs().max().item() <= PARITY_FP32


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_near(model: regard.Model, dtype: torch.dtype) -> None:
    # Weights of the real model in 8 or 11 bits of mantissa; what the trace gives is float32 all the same.
    trace = regard.load(dtype=dtype).trace("time flies like an arrow")
    wanted = model.trace("time flies like an arrow")
    assert trace.attention()[0].inputs.q.dtype == dtype
    tolerance = {torch.float16: 0.01, torch.bfloat16: 0.06}[dtype]
    for layer in range(NUM_LAYERS):
        weights = trace.weights(layer)
        assert weights.dtype == torch.float32
        assert (weights.sum(dim=-1) - 1).abs().max().item() <= WEIGHTS
        assert (weights - wanted.weights(layer)).abs().max().item() <= tolerance
    assert_close_to_largest(trace.embeddings(), wanted.embeddings(), tolerance)


def test_the_longest_text_and_one_more(model: regard.Model) -> None:
    assert len(model.trace(_of_length(model, 512)).tokens) == 512
    with pytest.raises(InputError, match=r"513 tokens with the special ones, but .* takes at most 512"):
        model.trace(_of_length(model, 513))


def test_nothing_is_trained_by_looking(model: regard.Model) -> None:
    assert not model.network.training
    before = {name: parameter.clone() for name, parameter in model.network.named_parameters()}
    trace = model.trace("time flies like an arrow")
    assert all(not tensor.requires_grad for tensor in tensors_of(trace))
    trace.weights(0).zero_()
    trace.embedding("flies", 0).zero_()
    trace.embeddings(0).zero_()
    after = dict(model.network.named_parameters())
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert isinstance(model.network, nn.Module)
