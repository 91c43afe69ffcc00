"""What each head is worth, against loops; and how alike a changed model's embeddings are."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.core import Taps
from regard.core.errors import InputError
from regard.models import Loaded, Output, load_checkpoint
from regard.pruning import prune
from regard.tracing import Likeness, Trace
from regard.tracing.edits import unseen, unseen_word
from tolerances import FP32_OF_LARGEST, FP64, assert_close_to_largest
from unit.models.folders import write, write_tokenizer
from unit.tracing.stacks import make

TEXTS, TARGETS = ("the river bank by money", "money", "the fishing bank"), ("by river", "the", "fish bank by")
SHAPES = [
    ("encoder", "encoder", 2, 3, "layers.{}.attention"),
    ("decoder", "decoder", 3, 5, "layers.{}.attention"),
    ("both", "encoder", 2, 3, "encoder.layers.{}.attention"),
    ("both", "decoder", 3, 5, "decoder.layers.{}.attention"),
    ("both", "cross", 3, 5, "decoder.layers.{}.cross_attention"),
]


def examples(model: regard.Model) -> list[regard.Trace]:
    if len(model.network.prefixes) == 1:
        return [model.trace(text) for text in TEXTS]
    return [model.trace(text, target=target) for text, target in zip(TEXTS, TARGETS, strict=True)]


def loss(output: Output, index: int) -> Tensor:
    """Another one for each example."""
    return (output.last_hidden_state[0, -1, 3 + index] * 0.3).tanh() + output.last_hidden_state[0, 0, 1]


def losses(model: regard.Model, taps: Taps | None = None) -> list[float]:
    both = len(model.network.prefixes) == 2
    found = []
    for index, text in enumerate(TEXTS):
        ids = [torch.tensor([model.tokenizer.encode(text).token_ids])]
        if both:
            ids.append(torch.tensor([model.tokenizer.encode_target(TARGETS[index], 2).token_ids]))
        with torch.no_grad():
            output = model(ids[0], decoder_token_ids=ids[1] if len(ids) > 1 else None, taps=taps)
            found.append(float(loss(output, index)))
    return found


def scaled(point: str, head: int, factor: float) -> Taps:
    def listen(context: Tensor) -> Tensor:
        mask = torch.ones(context.shape[1], dtype=context.dtype)
        mask[head] = factor
        return context * mask[:, None, None]

    return Taps({point: listen})


@pytest.mark.parametrize(("shape", "kind", "layers", "heads", "at"), SHAPES)
def test_the_gradient_is_that_of_a_head_mask(
    models: Any, shape: str, kind: Any, layers: int, heads: int, at: str
) -> None:
    model, step = models[shape], 1e-5
    table = model.head_importance(examples(model), loss, kind=kind)
    assert (table.shape, table.dtype) == ((layers, heads), torch.float64)
    for layer, head in ((0, heads - 1), (layers - 1, 0), (layers - 1, 1)):
        point = f"{at.format(layer)}.context"
        more, less = (losses(model, scaled(point, head, 1.0 + sign * step)) for sign in (1, -1))
        slopes = [abs(a - b) / (2 * step) for a, b in zip(more, less, strict=True)]
        assert float(table[layer, head]) == pytest.approx(sum(slopes) / len(slopes), rel=1e-5, abs=1e-9)
    assert (table > 1e-5).any()


@pytest.mark.parametrize(("shape", "kind", "layers", "heads", "at"), SHAPES)
def test_ablation_is_the_change_without_the_head(
    models: Any, shape: str, kind: Any, layers: int, heads: int, at: str
) -> None:
    model = models[shape]
    before = losses(model)
    zero = model.head_importance(examples(model), loss, kind=kind, method="zero")
    mean = model.head_importance(examples(model), loss, kind=kind, method="mean")
    layer, head = layers - 1, heads - 1
    point = f"{at.format(layer)}.context"
    after = losses(model, scaled(point, head, 0.0))
    wanted = sum(a - b for a, b in zip(after, before, strict=True)) / len(before)
    assert float(zero[layer, head]) == pytest.approx(wanted, rel=1e-9, abs=1e-12)
    contexts = [trace.attention_of(layer, kind).context[head] for trace in examples(model)]
    center = torch.cat(contexts).mean(dim=0)

    def to_the_mean(context: Tensor) -> Tensor:
        changed = context.clone()
        changed[:, head] = center
        return changed

    after = losses(model, Taps({point: to_the_mean}))
    wanted = sum(a - b for a, b in zip(after, before, strict=True)) / len(before)
    assert float(mean[layer, head]) == pytest.approx(wanted, rel=1e-9, abs=1e-12)
    assert zero.shape == mean.shape == (layers, heads)
    assert not torch.equal(zero, mean)


def test_a_head_that_nothing_reads_is_worth_nothing() -> None:
    model = make("encoder")
    with torch.no_grad():
        model.network.encoder.layers[1].attention.output.weight[:, 10:20] = 0.0  # of head 1
    for method in ("gradient", "zero", "mean"):
        table = model.head_importance(TEXTS, loss, method=method)  # type: ignore[arg-type]
        assert float(table[1, 1]) == pytest.approx(0.0, abs=1e-12)
        assert float(table[1, [0, 2]].abs().min()) > 1e-6


def test_progress(models: Any) -> None:
    for method, total in (("gradient", 3), ("zero", 3 * 6)):
        seen: list[tuple[int, int]] = []
        models["encoder"].head_importance(
            TEXTS, loss, method=method, progress=lambda *done, seen=seen: seen.append(done)
        )
        assert seen == [(done, total) for done in range(1, total + 1)]


def test_through_the_lens() -> None:
    from lens_models import FAMILIES

    for name, kind in (("bert", "encoder"), ("t5", "cross"), ("gpt_oss", "decoder")):
        model = regard.lens(FAMILIES[name]())
        both = len(model.network.prefixes) == 2
        trace = model.trace(token_ids=[11, 12, 13, 14], **({"target_ids": [0, 15]} if both else {}))
        table = model.head_importance([trace], lambda output, _: output.logits[0, -1, 3], kind=kind)  # type: ignore[arg-type,index,return-value]
        assert table.shape == (len(trace.attention(kind)), 4)  # type: ignore[arg-type]
        assert not math.isnan(float(table.sum()))
        assert (table > 0).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"examples": []}, "examples must be at least one text"),
        ({"method": "random"}, 'method must be "gradient", "zero" or "mean"; got \'random\''),
        ({"kind": "cross"}, "kind must be \"encoder\", .*; got 'cross'"),
        ({"metric": lambda output, _: 1.0}, "metric must give a number that the model computed"),
        ({"metric": lambda output, _: output.last_hidden_state}, "metric must give one number"),
        ({"metric": lambda output, _: math.inf, "method": "zero"}, "metric must give a finite .*; got inf"),
    ],
)
def test_what_is_refused(models: Any, arguments: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"examples": TEXTS, "metric": loss} | arguments
    with pytest.raises(InputError, match=message):
        models["encoder"].head_importance(**given)


def test_one_text_is_no_list_of_texts(models: Any) -> None:
    """It would be read letter by letter."""
    model = models["encoder"]
    for example in ("a river bank", model.trace("the river bank")):
        with pytest.raises(InputError, match=r"examples must be a list of texts or traces; got (str|Trace)"):
            model.head_importance(example, loss)


SHORT = ["w1 w2 w3 w4 w5", "w7 w9 w2"]


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    folder = tmp_path_factory.mktemp("full")
    write(folder, "bert")
    write_tokenizer(folder, 31)
    return load_checkpoint(folder, dtype=torch.float64)


def state(loaded: Loaded, text: str) -> Any:
    token_ids = torch.tensor([loaded.require_tokenizer().encode(text).token_ids])
    with torch.no_grad():
        return loaded.network(token_ids).last_hidden_state[0].tolist()


def cosine(a: list[float], b: list[float]) -> float:
    def product(x: list[float], y: list[float]) -> float:
        return sum(one * other for one, other in zip(x, y, strict=True))

    return product(a, b) / (product(a, a) * product(b, b)) ** 0.5


def test_against_a_loop(full: Loaded) -> None:
    likeness = Likeness(full, SHORT)
    assert likeness(full) == pytest.approx(1, abs=FP64)
    smaller = prune(full, {0: [1], 1: [0, 2]})
    means = []
    for text in SHORT:
        pairs = list(zip(state(full, text), state(smaller, text), strict=True))
        means.append(sum(cosine(*pair) for pair in pairs) / len(pairs))
    assert likeness(smaller) == pytest.approx(sum(means) / len(means), abs=FP64)
    assert likeness(smaller) < 0.999


def test_the_loss_of_each_text(full: Loaded) -> None:
    likeness = Likeness(full, SHORT)
    smaller = prune(full, {0: [1]})
    losses = []
    for index, trace in enumerate(likeness.traces):
        with torch.no_grad():
            output = smaller.network(torch.tensor([trace.token_ids]))
        losses.append(float(likeness.loss(output, index)))
    assert 1 - sum(losses) / len(losses) == pytest.approx(likeness(smaller), abs=FP64)
    assert losses[0] != pytest.approx(losses[1])


def test_what_likeness_refuses(full: Loaded, tmp_path: Path) -> None:
    for texts in ([], "w1 w2"):
        with pytest.raises(InputError, match="texts must be a list of at least one text"):
            Likeness(full, texts)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"has an encoder and a decoder.*a metric of your own"):
        Likeness(load_checkpoint(write(tmp_path, "t5")), SHORT)


TEXT = "w3 w5 w7 w1 w9"


def _model(family: str, tmp_path: object) -> regard.Model:
    folder = write(tmp_path, family)  # type: ignore[arg-type]
    write_tokenizer(folder, 31)
    return regard.load(str(folder))


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama"])
def test_it_moves_what_an_edit_moves(family: str, tmp_path: object) -> None:
    model = _model(family, tmp_path)
    for parameter in model.network.parameters():
        if parameter.ndim == 1:
            parameter.data.uniform_(
                0.5, 2
            )  # a norm that gives every token the same length would hide whose it is
    trace = model.trace(TEXT)
    ids = torch.tensor([trace.token_ids])
    with torch.no_grad():
        before = model(ids)
        edited = model.edited(regard.Zero("context", layer=-1, head=1))
        after = edited(ids)
    found = trace.ablation(-1, 1)
    assert (found.layer, found.head, len(found.tokens)) == (trace.num_layers - 1, 1, 5)
    h, other = before.last_hidden_state[0], after.last_hidden_state[0]
    assert_close_to_largest(found.moved, (other - h).norm(dim=1) / h.norm(dim=1), 10 * FP32_OF_LARGEST)
    assert_close_to_largest(found.cosine, torch.cosine_similarity(h, other), 10 * FP32_OF_LARGEST)
    # Printed, it is a table: a row a token, the longest bar where most has moved.
    shown = str(found).splitlines()[-5:]
    assert [line.split()[:2] for line in shown] == [
        [row["token"], f"{row['moved']:.3f}"] for row in found.to_rows()
    ]
    assert max(shown, key=lambda line: line.count("█")) == shown[int(found.moved.argmax())]
    if before.logits is None:
        assert found.before is found.after is None
        return
    assert found.to_rows()[0].keys() == {"token", "moved", "cosine", "before", "after"}
    for tops, output in ((found.before, before), (found.after, after)):
        assert tops is not None
        probability, number = output.logits[0].softmax(dim=1).max(dim=1)
        assert [each.token for each in tops] == [f"w{each}" for each in number.tolist()]
        torch.testing.assert_close(torch.tensor([each.probability for each in tops]), probability)


def test_of_two_stacks_the_decoders_output_moves(tmp_path: object) -> None:
    model = _model("bart", tmp_path)
    trace = model.trace(TEXT, target="w8 w3")
    assert isinstance(trace, Trace)
    assert trace.decoder is not None
    for kind in ("encoder", "decoder", "cross"):
        found = trace.ablation(0, 2, kind=kind)  # type: ignore[arg-type]
        assert len(found.tokens) == len(trace.decoder.encoding.tokens) != len(trace.tokens)
        assert float(found.moved.max()) > 0
    with pytest.raises(InputError, match="kind"):
        trace.ablation(0, 2)


def test_a_dead_head_moves_nothing(tmp_path: object) -> None:
    model = _model("bert", tmp_path)
    rows = slice(0, model.network.stack("encoder").layers[0].attention.v.out_features // 3)  # type: ignore[union-attr,operator]
    for parameter in model.network.stack("encoder").layers[0].attention.v.parameters():  # type: ignore[union-attr,operator]
        parameter.data[rows] = 0.0
    found = model.trace(TEXT).ablation(0, 0)
    assert not found.moved.any()


def test_short_states_have_the_cosines_of_long_ones(tmp_path: object) -> None:
    """All 1e-12 times as long: below the 1e-8 at which torch stops to divide by the lengths."""
    model = _model("bert", tmp_path)
    norm = model.network.stack("encoder").layers[-1].ffn_residual.norm  # type: ignore[union-attr]
    for parameter in norm.parameters():
        parameter.data.uniform_(0.5, 2)
    before = model.trace(TEXT).ablation(0, 1)
    for parameter in norm.parameters():
        parameter.data *= 1e-12
    after = model.trace(TEXT).ablation(0, 1)
    assert_close_to_largest(after.cosine, before.cosine, FP32_OF_LARGEST)
    assert_close_to_largest(after.moved, before.moved, FP32_OF_LARGEST)


def test_the_model_is_left_as_it_is(tmp_path: object) -> None:
    model = _model("bert", tmp_path)
    trace = model.trace(TEXT)
    trace.ablation(0, 0)
    assert torch.equal(model.trace(TEXT).embeddings(), trace.embeddings())


def test_what_it_refuses(tmp_path: object) -> None:
    model = _model("bert", tmp_path)
    trace = model.trace(TEXT)
    with pytest.raises(InputError, match="head must be from 0 to 2"):
        trace.ablation(0, 3)
    path = trace.save(f"{tmp_path}/trace.safetensors")
    with pytest.raises(InputError, match="without the model"):
        Trace.open(path).ablation(0, 0)


def test_no_other_word_looks_at_it_and_the_others_move() -> None:
    model = regard.load()
    text = "an unforgettable poem about attention"
    trace = model.trace(text)
    tokens = list(trace.encoding.find("unforgettable"))
    assert len(tokens) > 1
    changed = model.edited(unseen(tokens)).trace(text)
    others = [place for place in range(len(trace.tokens)) if place not in tokens]
    for layer in range(6):
        weights = changed.weights(layer)
        assert weights[:, others][:, :, tokens].max() == 0
        torch.testing.assert_close(weights.sum(dim=2), torch.ones(weights.shape[:2]))
        assert weights[:, tokens][:, :, tokens].max() > 0  # its pieces see each other
    whole = model.edited(unseen_word(trace, tokens[-1])).trace(text)
    torch.testing.assert_close(whole.embeddings(), changed.embeddings())  # whatever piece of it is named
    assert torch.cosine_similarity(trace.embeddings(), changed.embeddings())[others].min() < 0.98
    with pytest.raises(InputError, match="unseen must be tokens of the text, from 0 to"):
        model.edited(unseen([99])).trace(text)
