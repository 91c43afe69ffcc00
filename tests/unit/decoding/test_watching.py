"""How a text was written: against one pass by hand, in double precision."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers

import regard
from regard.core.errors import InputError, RegardError
from regard.decoding import Beams, Rules, Sampling, Watched, decode_texts, watch_text
from regard.decoding._texts import Job
from regard.models import Loaded
from regard.text import Tokenizer
from tolerances import FP64
from unit.decoding.toy import decoder, log_probabilities, pair
from unit.models.folders import write, write_tokenizer

WORDS = ["<s>", "</s>", "a", "b", "c", "d", "e"]


def tokenizer() -> Tokenizer:
    backend = Backend(models.WordLevel({word: id for id, word in enumerate(WORDS)}, "a"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(WORDS[:2])
    return Tokenizer.from_str(backend.to_str(), roles={"eos": "</s>"})


def loaded(network: Any, words: Tokenizer) -> Loaded:
    made: Any = SimpleNamespace(name="toy", folder="")
    return Loaded(network=network, tokenizer=words, source=made, family=made, left_out=made)


def watch(two: bool, choice: Any = None, **rules: Any) -> tuple[Watched, Any]:
    network, words = (pair if two else decoder)(len(WORDS)), tokenizer()
    held = Rules(start_ids=(0,) if two else (), end_ids=(1,), **{"max_length": 6, **rules})
    return watch_text(loaded(network, words), words, "a c b", choice=choice, rules=held), network


def by_hand(network: Any, ids: Sequence[int]) -> torch.Tensor:
    return log_probabilities(network, [2, 4, 3], list(ids), 0)


@pytest.mark.parametrize("two", [True, False])
@pytest.mark.parametrize("choice", [None, Beams(3), Sampling(temperature=2.0, seed=3)])
def test_steps_are_those_of_one_pass(two: bool, choice: Any) -> None:
    found, network = watch(two, choice)
    oracle = by_hand(network, found.token_ids)
    assert len(found.steps) == len(found.log_probabilities)
    assert [step.token_id for step in found.steps][: len(found.token_ids)] == list(found.token_ids)
    for step, row in zip(found.steps, oracle.exp(), strict=False):
        assert step.probability == pytest.approx(float(row[step.token_id]), abs=FP64)
        assert step.place == int((row > row[step.token_id]).sum())
        best = row.topk(5)
        assert [each.token_id for each in step.likeliest] == best.indices.tolist()
        assert [each.probability for each in step.likeliest] == pytest.approx(best.values.tolist(), abs=FP64)
        assert [each.text for each in step.likeliest] == [WORDS[id] for id in best.indices]
    # The trace is of all that was read and written, an end left out.
    passage = found.trace.stack("decoder").encoding
    before = (0,) if two else (2, 4, 3)
    assert passage.token_ids == (*before, *found.token_ids)
    assert found.first == len(before)
    assert [token.surface for token in passage.tokens] == [WORDS[id] for id in passage.token_ids]


@pytest.mark.parametrize("two", [True, False])
def test_branches_are_the_ways_that_were_followed(two: bool) -> None:
    found, network = watch(two, Beams(3))
    ways: list[list[int]] = []
    for branch in found.branches:
        before = [] if branch.parent is None else ways[branch.parent]
        ways.append([*before, branch.token_id])
        assert branch.step == len(before)
        rows = by_hand(network, ways[-1][:-1])
        total = sum(float(row[id]) for row, id in zip(rows, ways[-1], strict=True))
        assert branch.log_probability == pytest.approx(total, abs=10 * FP64)
        assert branch.text == WORDS[branch.token_id]
    parents = {branch.parent for branch in found.branches}
    written = [step.token_id for step in found.steps]
    for place, branch in enumerate(found.branches):
        assert (branch.end == "on") == (place in parents)
        assert (branch.end == "ended") == (branch.token_id == 1)
        assert branch.won == (written[: len(ways[place])] == ways[place])
        assert branch.end != "cut" or branch.step == 5
    # At every step the three likeliest of all that come out of those before, counted by hand.
    for step in range(1, 3):
        before = [
            way for way, branch in zip(ways, found.branches, strict=True)
            if branch.step == step - 1 and branch.token_id != 1
        ]  # fmt: skip
        after = []
        for way in before:
            rows = by_hand(network, way)
            total = sum(float(row[id]) for row, id in zip(rows, way, strict=False))
            after += [(total + float(rows[-1][id]), [*way, id]) for id in range(len(WORDS)) if id != 1]
        best = [way for _, way in sorted(after, reverse=True)[:3]]
        here = [way for way in ways if len(way) == step + 1 and way[-1] != 1]
        assert here == best
    assert sum(branch.won for branch in found.branches) == len(found.steps)


@pytest.mark.parametrize("choice", [None, Beams(3)])
def test_a_translation_that_was_begun(choice: Any) -> None:
    network, words = pair(len(WORDS)), tokenizer()
    held: Any = {"rules": Rules(start_ids=(0,), end_ids=(1,), first_id=5, max_length=5), "prefix": "b d"}
    found = watch_text(loaded(network, words), words, "a c b", choice=choice, **held)
    ((plain,),) = decode_texts(network, words, ["a c b"], choice=choice, **held)
    assert (found.text, found.token_ids, found.score) == (plain.text, plain.token_ids, plain.score)
    assert found.trace.stack("decoder").encoding.token_ids == (0, 5, 3, 5, *found.token_ids)
    assert (found.first, len(found.steps)) == (4, len(found.log_probabilities))


def test_rules_and_chance_are_no_part_of_the_probabilities() -> None:
    """Those are the model's own; what was noted while writing is checked by the rules."""
    free, _ = watch(False)
    held, network = watch(False, forbidden_ids=(free.token_ids[0],), repetition_penalty=1.5)
    step = held.steps[0]
    assert step.likeliest[0].token_id == free.token_ids[0]
    assert step.place > 0
    assert step.probability == pytest.approx(
        math.exp(float(by_hand(network, [])[-1][step.token_id])), abs=FP64
    )
    forced, _ = watch(True, first_id=5, last_id=1)
    assert forced.steps[0].token_id == 5
    assert forced.log_probabilities[0] == 0


def test_a_trace_that_is_not_of_the_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Job.run

    def wrong(*arguments: Any) -> Any:
        ((way,),) = run(*arguments)
        first, *rest = way.log_probabilities
        return [[replace(way, log_probabilities=(first - 1e-4, *rest))]]

    monkeypatch.setattr(Job, "run", wrong)
    with pytest.raises(RegardError, match="not of this text: one pass gives token 0 the log-probability"):
        watch(False)


def test_model_generate_keeps_what_is_asked_for_and_what_it_wrote(tmp_path: Path) -> None:
    write_tokenizer(write(tmp_path, "gpt2"), 31)
    model = regard.load(str(tmp_path))
    plain, found = (model.generate("w3 w5", max_length=4, trace=keep) for keep in (False, True))
    assert isinstance(found, Watched)
    assert (found.text, found.log_probabilities) == (plain.text, plain.log_probabilities)
    assert found.trace.weights(layer=0, head=0).shape == (6, 6)
    with pytest.raises(InputError, match="keep"):
        found.trace.embeddings(0)
    assert model.generate("w3", max_length=2, trace="all").trace.embeddings(0).shape == (3, 15)
    assert len(found.to_json()["steps"]) == 4
    facts = json.loads(found.view().facts)["runs"][0]["facts"]
    assert facts["writing"] == found.facts() == found.page().subject.facts
    assert found._repr_mimebundle_() == {"text/plain": repr(found)}  # outside a notebook
    for given in ({"texts": ["w3"]}, {"texts": "w3", "count": 1}):
        with pytest.raises(InputError, match="trace must be False with several texts or a count"):
            model.generate(trace=True, **given)
