"""What may be written, and what is drawn from, as the processors of transformers have it."""

from typing import Any

import pytest
import torch
from transformers.generation import logits_process as theirs

from parity.conftest import Workshop
from parity.families import ENTRIES
from parity.families_entry import PAD
from parity.test_decoding import END, LONGEST, START, generated, texts
from regard.decoding import Power, Rules, Sampling, beam_search, greedy
from tolerances import FP64, PARITY_FP32, assert_close_to_largest

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.mark.parametrize(
    "how",
    [
        {"temperature": 0.6},
        {"top_k": 5},
        {"top_p": 0.7},
        {"min_p": 0.2},
        {"typical_p": 0.3},
        {"typical_p": 0.95},
        {"epsilon_cutoff": 0.05},
        {"epsilon_cutoff": 0.9},
        {"eta_cutoff": 0.03},
        {"eta_cutoff": 0.9},
        {"temperature": 1.7, "top_k": 11, "top_p": 0.9, "min_p": 0.05},
        {"top_k": 20, "min_p": 0.01, "typical_p": 0.9, "epsilon_cutoff": 0.02, "eta_cutoff": 0.05},
    ],
    ids=str,
)
def test_filters_keep_what_theirs_keep(how: dict[str, float]) -> None:
    logits = 2 * torch.randn(29, 37, dtype=torch.float64)
    warpers: list[Any] = []
    for name, kind in (
        ("temperature", theirs.TemperatureLogitsWarper),
        ("top_k", theirs.TopKLogitsWarper),
        ("top_p", theirs.TopPLogitsWarper),
        ("min_p", theirs.MinPLogitsWarper),
        ("typical_p", theirs.TypicalLogitsWarper),
        ("epsilon_cutoff", theirs.EpsilonLogitsWarper),
        ("eta_cutoff", theirs.EtaLogitsWarper),
    ):
        if name in how:
            warpers.append(kind(how[name]))
    expected = theirs.LogitsProcessorList(warpers)(torch.zeros(29, 1, dtype=torch.int64), logits)
    got = Sampling(**how).filtered(logits.log_softmax(dim=1))  # type: ignore[arg-type]
    assert_close_to_largest(got, expected.log_softmax(dim=1), FP64)
    assert (how == {"temperature": 0.6}) == bool(got.isfinite().all())


RULES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"repetition_penalty": 1.7}, {"repetition_penalty": 1.7}),
    ({"repetition_penalty": 0.6}, {"repetition_penalty": 0.6}),
    ({"no_repeat": 1}, {"no_repeat_ngram_size": 1}),
    ({"no_repeat": 2}, {"no_repeat_ngram_size": 2}),
    ({"no_repeat": 3}, {"no_repeat_ngram_size": 3}),
]


def test_rules_give_the_scores_of_theirs() -> None:
    """On logits above 0 and below, and texts that repeat; shorter ones beside longer as if alone."""
    logits, read = 3 * torch.randn(5, 13, dtype=torch.float64), torch.randint(0, 4, (5, 23))
    bad = [[5], [1, 2], [3, 0, 7], [2], *([last, 11] for last in range(4)), list(range(4)) * 9]
    for ours, theirs_too in (
        ({"repetition_penalty": 1.3}, theirs.RepetitionPenaltyLogitsProcessor(1.3)),
        ({"no_repeat": 2}, theirs.NoRepeatNGramLogitsProcessor(2)),
        ({"no_repeat": 4}, theirs.NoRepeatNGramLogitsProcessor(4)),
        ({"forbidden": bad}, theirs.NoBadWordsLogitsProcessor(bad)),
    ):
        rules = Rules(**ours)  # type: ignore[arg-type]
        for length in (23, 5, 1):
            padded = read.clone()
            padded[::2, : 23 - length] = -1
            got = rules.apply(logits, padded, 3, [99] * 5)
            for row, there in enumerate(padded):
                expected = theirs_too(there[there >= 0][None], logits[row : row + 1]).log_softmax(dim=1)[0]
                forbids = ours.keys() != {"repetition_penalty"}
                plain = logits[row].log_softmax(dim=0)  # what is forbidden is not shared among the others
                wanted = plain.masked_fill(expected == -torch.inf, -torch.inf) if forbids else expected
                assert_close_to_largest(got[row], wanted, FP64)


@pytest.mark.parametrize(
    ("name", "ours", "their"),
    [
        *(("gpt2", *rule) for rule in [*RULES, ({}, {})]),
        *((name, *rule) for name in ("qwen3", "mbart") for rule in [RULES[0], RULES[3], ({}, {})]),
    ],
    ids=str,
)
def test_greedy_texts_under_rules(
    workshop: Workshop, name: str, ours: dict[str, Any], their: dict[str, Any]
) -> None:
    """All texts as one batch here, each alone there; each also meets a sequence that is forbidden."""
    saved = workshop.saved(name, "language-model", dtype=torch.float64)
    network = workshop.network(name, "language-model", dtype=torch.float64)
    two = ENTRIES[name].shape == "encoder-decoder"
    start: tuple[int, ...] = (START,) if two else ()
    free = greedy(network, texts(), rules=Rules(start_ids=start, end_ids=(END,), max_length=LONGEST))
    bad = tuple(way.token_ids[2:4] for way in free if len(way.token_ids) > 4)
    before = (START, free[0].token_ids[0]) if two else (texts()[0][-1], free[0].token_ids[0])
    bad = (*bad, before, (29,)) if not ours else ()
    rules = Rules(
        start_ids=start, end_ids=(END,), max_length=LONGEST, **ours, **({"forbidden": bad} if bad else {})
    )
    more = their | ({"bad_words_ids": [list(each) for each in bad]} if bad else {})
    got = greedy(network, texts(), rules=rules)
    if ours.get("repetition_penalty") != 0.6:  # which asks for what mBART does anyway
        assert [way.token_ids for way in got] != [way.token_ids for way in free]
    for row, way in zip(texts(), got, strict=True):
        output = generated(saved.model, row, two=two, **more)
        assert [*way.token_ids, *[END] * way.ended] == output.sequences[0, 1 if two else len(row) :].tolist()


@pytest.mark.parametrize("name", ["gpt2", "mbart"])
def test_the_best_beams_under_rules(workshop: Workshop, name: str) -> None:
    saved = workshop.saved(name, "language-model", dtype=torch.float64)
    network = workshop.network(name, "language-model", dtype=torch.float64)
    two = ENTRIES[name].shape == "encoder-decoder"
    rules = Rules(start_ids=(START,) if two else (), end_ids=(END,), max_length=LONGEST, no_repeat=2)
    search = {"num_beams": 5, "num_return_sequences": 3, "early_stopping": True, "length_penalty": 0.7}
    for row in texts():
        output = generated(saved.model, row, two=two, no_repeat_ngram_size=2, **search)
        expected = [
            [token for token in ids.tolist() if token not in (PAD, END)]
            for ids in output.sequences[:, 1 if two else len(row) :]
        ]
        (ways,) = beam_search(network, [row], beams=5, best=3, counts=Power(0.7), rules=rules)
        assert [[token for token in way.token_ids if token != PAD] for way in ways] == expected
        assert_close_to_largest([way.score for way in ways], output.sequences_scores, PARITY_FP32)
        for way in ways:
            assert len(way.log_probabilities) == len(way.token_ids) + way.ended
            assert way.score == pytest.approx(way.log_probability / len(way.log_probabilities) ** 0.7)
