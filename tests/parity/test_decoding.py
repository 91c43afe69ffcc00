"""Greedy decoding token for token as `generate` of transformers, in every family that writes."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from parity.conftest import Workshop
from parity.families import ENTRIES, PLAINLY
from parity.families_entry import PAD
from parity.families_oracle import as_new, at_full_width
from parity.test_cached import CACHED
from regard.decoding import Draft, Lookup, Rules, beam_search, greedy, speculate
from regard.decoding._speculation import Next
from tolerances import FP64, PARITY_FP32, assert_close_to_largest

pytestmark = pytest.mark.usefixtures("quiet")

START, END, LONGEST = 11, 3, 9
LENGTHS = (7, 1, 11, 2)
WRITERS = [name for name in CACHED if name in PLAINLY]
# One each with learned positions, rotary ones in windows, relative ones, and two stacks with learned ones.
SOME = ("gpt2", "gemma3_text", "t5", "mbart")


def texts(seed: int = 0) -> list[list[int]]:
    draw = torch.Generator().manual_seed(seed)
    return [torch.randint(12, 53, (length,), generator=draw).tolist() for length in LENGTHS]


def generated(model: Any, row: list[int], *, two: bool, **more: Any) -> Any:
    """What their `generate` gives of a text alone, so that padding has no part in it."""
    given = torch.tensor([row])
    usual: dict[str, Any] = {
        "do_sample": False,
        "use_cache": False,
        "max_new_tokens": LONGEST,
        "eos_token_id": END,
        "pad_token_id": PAD,
        "bos_token_id": None,
        "forced_bos_token_id": None,
        "forced_eos_token_id": None,
        "return_dict_in_generate": True,
        "output_scores": True,
    }
    if two:
        usual["decoder_start_token_id"] = START
    with as_new(model), at_full_width(model):
        return model.generate(given, attention_mask=torch.ones_like(given), **usual | more)


def theirs(model: Any, rows: list[list[int]], end: int, *, two: bool) -> list[list[int]]:
    """Their new tokens, the end included."""
    found = (generated(model, row, two=two, num_beams=1, eos_token_id=end).sequences[0] for row in rows)
    return [ids[1 if two else len(row) :].tolist() for row, ids in zip(rows, found, strict=True)]


@pytest.mark.parametrize("name", [*WRITERS, "llama-dynamic"])
def test_greedy_is_that_of_transformers(workshop: Workshop, name: str) -> None:
    saved = workshop.saved(name, "language-model", dtype=torch.float64)
    network = workshop.network(name, "language-model", dtype=torch.float64)
    two = ENTRIES[name].shape == "encoder-decoder"
    rows = texts()
    # The first text's third token is the end: some texts end, others go on to the limit.
    end = theirs(saved.model, rows[:1], END, two=two)[0][2]
    expected = theirs(saved.model, rows, end, two=two)
    assert len({len(each) for each in expected}) > 1
    rules = Rules(start_ids=(START,) if two else (), end_ids=(end,), max_length=LONGEST)
    for cached in (False, True)[: 1 if name == "llama-dynamic" else 2]:
        if name == "llama-dynamic":  # whose base is that of the longest in the batch
            got = [greedy(network, [row], rules=rules, cached=cached)[0] for row in rows]
        else:
            got = greedy(network, rows, rules=rules, cached=cached)
        assert [[*way.token_ids, *[end] * way.ended] for way in got] == expected
    if name == "llama-dynamic":
        return
    (beam,) = zip(*beam_search(network, rows, beams=1, rules=rules), strict=True)
    assert [way.token_ids for way in beam] == [way.token_ids for way in got]
    sums = [[way.log_probability for way in each] for each in (beam, got)]
    assert_close_to_largest(*sums, FP64)


class _Spoilt:
    """Guesses what will be written, but for every third token, which it has wrong."""

    tokens = 4

    def __init__(self, written: dict[tuple[int, ...], list[int]], begun: int) -> None:
        self._written, self._begun = written, begun

    def of(self, source: Sequence[int]) -> Next:
        whole = self._written[tuple(source)]
        spoilt = [(token + 1) % 53 if place % 3 == 2 else token for place, token in enumerate(whole)]
        begun = self._begun or len(source)
        return lambda read, most: spoilt[len(read) - begun :][:most]


@pytest.mark.parametrize("name", SOME)
def test_speculation_is_greedy(workshop: Workshop, name: str) -> None:
    network = workshop.network(name, "language-model", dtype=torch.float64)
    two = ENTRIES[name].shape == "encoder-decoder"
    rows = [row + row[:3] for row in texts()[:3]]
    rules = Rules(start_ids=(START,) if two else (), end_ids=(END,), max_length=LONGEST)
    expected = greedy(network, rows, rules=rules)
    written = {tuple(row): list(way.token_ids) for row, way in zip(rows, expected, strict=True)}
    for guess in (Lookup(tokens=3), Draft(network, tokens=3), _Spoilt(written, 1 if two else 0)):
        got = speculate(network, rows, guess=guess, rules=rules)
        assert [way.token_ids for way in got] == [way.token_ids for way in expected]
        assert [way.ended for way in got] == [way.ended for way in expected]
        assert_close_to_largest([w.log_probability for w in got], [w.log_probability for w in expected], FP64)


@pytest.mark.parametrize("name", SOME)
def test_the_company_changes_nothing(workshop: Workshop, name: str) -> None:
    network = workshop.network(name, "language-model", dtype=torch.float64)
    two = ENTRIES[name].shape == "encoder-decoder"
    rules = Rules(start_ids=(START,) if two else (), end_ids=(END, 30, 31, 32), max_length=LONGEST)
    together = beam_search(network, texts(), beams=3, best=3, rules=rules)
    again = beam_search(network, texts(), beams=3, best=3, rules=rules, cached=False)
    for row, ways, uncached in zip(texts(), together, again, strict=True):
        (alone,) = beam_search(network, [row], beams=3, best=3, rules=rules)
        ids = [way.token_ids for way in ways]
        assert ids == [way.token_ids for way in alone] == [way.token_ids for way in uncached]
        scores = [[way.score for way in each] for each in (ways, alone, uncached)]
        assert_close_to_largest(scores[0], scores[1], FP64)
        assert_close_to_largest(scores[0], scores[2], FP64)


@pytest.mark.parametrize("name", SOME)
def test_beams_are_those_of_transformers(workshop: Workshop, name: str) -> None:
    """With early stopping both end a text where as many ways are finished as there are beams."""
    saved = workshop.saved(name, "language-model", dtype=torch.float64)
    network = workshop.network(name, "language-model", dtype=torch.float64)
    two = ENTRIES[name].shape == "encoder-decoder"
    rules = Rules(start_ids=(START,) if two else (), end_ids=(END,), max_length=LONGEST, min_length=2)
    for row in texts():
        search = {"num_beams": 4, "num_return_sequences": 2, "early_stopping": True, "length_penalty": 1.0}
        output = generated(saved.model, row, two=two, min_new_tokens=2, **search)
        expected = [
            [token for token in ids.tolist() if token not in (PAD, END)]
            for ids in output.sequences[:, 1 if two else len(row) :]
        ]
        (ways,) = beam_search(network, [row], beams=4, best=2, rules=rules)
        assert [[token for token in way.token_ids if token != PAD] for way in ways] == expected
        assert_close_to_largest([way.score for way in ways], output.sequences_scores, PARITY_FP32)
