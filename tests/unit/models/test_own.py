"""The families that `transformers` does not have: decoded, traced, trained, written and read."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.core import Segments
from regard.core.errors import InputError
from regard.models import load_checkpoint, write_checkpoint
from regard.training.tasks import MaskedTokens, NextToken, Task, TextLabels
from tolerances import FP64, WEIGHTS, assert_close_to_largest
from unit.models import folders
from unit.training import small

CAUSAL = ["expire-span", "srupp"]
LENGTH = 13


def drawn() -> Tensor:
    return torch.randint(1, 31, (3, LENGTH))


@pytest.fixture(params=CAUSAL)
def network(request: pytest.FixtureRequest) -> Any:
    made = folders.network(request.param).double()
    with torch.no_grad():
        for parameter in made.parameters():
            if not parameter.any():  # what begins with 0 would hide what it multiplies
                parameter.copy_(torch.randn_like(parameter))
    return made


@torch.no_grad()
@pytest.mark.parametrize("sizes", [[1] * LENGTH, [5, 1, 7]])
def test_pieces_give_what_the_whole_gives(network: Any, sizes: list[int]) -> None:
    ids, state = drawn(), network.begin()
    got = [network.decode(piece, state).logits for piece in ids.split(sizes, dim=1)]
    assert_close_to_largest(torch.cat(got, dim=1), network(ids).logits, FP64)


@torch.no_grad()
def test_padding_and_what_follows_change_nothing(network: Any) -> None:
    lengths, ids = torch.tensor([7, 1, 4]), drawn()
    mask, state = torch.arange(7) >= 7 - lengths[:, None], network.begin()
    prompt = network.decode(ids[:, :7], state, mask=mask, last=True).logits
    got = torch.cat(
        [prompt, *(network.decode(each, state).logits for each in ids[:, 7:].split([1, 5], 1))], 1
    )
    for row, length in enumerate(lengths.tolist()):
        alone = network(ids[row : row + 1, 7 - length :]).logits
        assert_close_to_largest(got[row : row + 1], alone[:, length - 1 :], FP64)
    right = torch.arange(LENGTH) < 5
    beside = network(ids, mask=right.expand(3, -1)).logits[:, :5]
    assert_close_to_largest(beside, network(ids[:, :5]).logits, FP64)


@torch.no_grad()
def test_texts_that_share_a_row_do_not_see_each_other(network: Any) -> None:
    ids = drawn()[:1]
    numbers = torch.tensor([[0] * 4 + [1] * 6 + [2] * 3])
    places = torch.tensor([[*range(4), *range(6), *range(3)]])
    got = network(ids, mask=Segments(numbers), positions=places).logits
    alone = torch.cat([network(piece).logits for piece in ids.split([4, 6, 3], dim=1)], dim=1)
    assert_close_to_largest(got, alone, FP64)


@torch.no_grad()
def test_rows_change_places_and_tokens_are_taken_back(network: Any) -> None:
    ids, rows, state = drawn(), torch.tensor([2, 0, 2, 1]), network.begin(back=3)
    network.decode(ids[:, :5], state)
    state.pick(rows)
    network.decode(ids[rows, 6:8], state)
    state.cut(5)
    got = network.decode(ids[rows, 5:], state).logits
    assert_close_to_largest(got, network(ids).logits[rows, 5:], FP64)
    state.cut(12)
    network.decode(ids[rows, 12:], state)
    with pytest.raises(InputError, match="length must be from"):
        state.cut(1)


@pytest.mark.parametrize("family", sorted(folders.OWN - {"bahdanau"}))  # which has a file of its own
def test_it_is_written_and_read(family: str, tmp_path: Path) -> None:
    made = folders.network(family)
    found = load_checkpoint(write_checkpoint(made, tmp_path / "model")).network
    assert found.config == made.config
    ids = drawn()
    assert torch.equal(found(ids[:, :11]).last_hidden_state, made(ids[:, :11]).last_hidden_state)


@pytest.mark.parametrize("family", CAUSAL)
def test_its_traces_are_exact_and_kept(family: str, tmp_path: Path) -> None:
    trace = regard.load(folders.write(tmp_path, family)).trace(token_ids=drawn()[0].tolist())
    assert trace.parity().largest < 2e-5
    again = regard.Trace.open(trace.save(tmp_path / "trace"))
    for layer in range(2):
        weights = trace.weights(layer=layer)
        assert_close_to_largest(weights.sum(-1), torch.ones(weights.shape[:2]), WEIGHTS)
        assert torch.equal(again.weights(layer=layer), weights)


def task_of(family: str) -> Task:
    if family in CAUSAL:
        return NextToken(small.network(family), small.tokenizer())
    if family == "perceiver-io labels":
        labels = {"head": "sequence", "labels": ("both", "money", "water"), "num_labels": 3}
        return TextLabels(small.network("perceiver-io", **labels), small.tokenizer())
    return MaskedTokens(small.network(family, head="masked-lm"), small.tokenizer(), masked=0.4)


@pytest.mark.parametrize("family", [*CAUSAL, "perceiver-io", "perceiver-io labels"])
def test_it_learns(family: str) -> None:
    torch.manual_seed(0)
    task = task_of(family)
    batch = small.batch(task)
    optimiser, losses = torch.optim.AdamW(task.parameters(), lr=0.03), []
    for _ in range(20):
        loss = small.loss(task, batch)
        optimiser.zero_grad()
        loss.backward()
        assert all(each.grad is not None and each.grad.isfinite().all() for each in task.parameters())
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]


def test_spans_are_a_term_of_the_loss_and_are_scored() -> None:
    plain, dear = (
        NextToken(small.network("expire-span", span_penalty=p), small.tokenizer()) for p in (0.0, 0.1)
    )
    assert (dict(plain.weights), dict(dear.weights)) == ({"loss": 1.0}, {"loss": 1.0, "spans": 0.1})
    batch = small.batch(dear)
    sums = dear(batch)
    # Before training every span is half the longest, in each of two layers.
    assert float(sums["spans"].detach()) == pytest.approx(2 * 512 * batch.counts["spans"])
    with torch.no_grad():
        scores = dear.eval().scores(
            {name: float(each) for name, each in dear(batch).items()}
            | {f"targets.{name}": count for name, count in batch.counts.items()}
        )
    assert scores["spans"] == pytest.approx(1024)


@pytest.mark.parametrize(
    ("family", "field", "value", "message"),
    [
        ("expire-span", "max_span", 0, "max_span must be a number of positions above 0; got 0"),
        ("expire-span", "ramp", 0, "ramp must be a number of positions above 0; got 0"),
        ("expire-span", "span_penalty", -1.0, "span_penalty must be at least 0; got -1.0"),
        ("srupp", "d_attention", 10, "num_heads must divide d_attention; got 3 and 10"),
        ("expire-span", "initial_span", 1.0, "initial_span must be above 0 and below 1; got 1.0"),
    ],
)
def test_refused(family: str, field: str, value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        folders.network(family, **{field: value})


def test_a_perceiver_is_not_traced_and_says_why(tmp_path: Path) -> None:
    model = regard.load(folders.write(tmp_path, "perceiver-io"))
    words = "can be traced; of this one its queries and keys are latent vectors"
    with pytest.raises(InputError, match=words):
        model.trace(token_ids=[3, 1, 4])
    with pytest.raises(InputError, match=words):
        model.forecast(3)
    assert model.describe()["trace_bytes"] is None


def test_no_other_library_takes_its_files_for_something_else(tmp_path: Path) -> None:
    import transformers

    for family in folders.OWN:
        folder = tmp_path / family
        folder.mkdir()
        folders.write(folder, family)
        with pytest.raises(ValueError, match="does not recognize this architecture"):
            transformers.AutoConfig.from_pretrained(folder)
