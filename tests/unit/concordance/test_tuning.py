"""Layers and calibration: the fit against scipy, data of every kind, and what an index keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

import regard
from regard.concordance import Calibration, Concordance, build_index, read_judged, tune_layers, use_settings
from regard.concordance._meaning import nearness, shipped, voted
from regard.concordance._tuning import calibration_error, fit, layers_of, unseen
from regard.concordance._vectors import Span, UsageEmbedder
from regard.core.errors import InputError

USES = [
    ("a river bank", 8, "side"),
    ("a muddy bank", 8, "side"),
    ("a bank loan", 2, "money"),
    ("the bank lends", 4, "money"),
]


def senses(file: Path) -> Path:
    rows = (
        {"word": "bank", "text": text, "start": at, "stop": at + 4, "sense": sense}
        for text, at, sense in USES
    )
    file.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return file


def drawn(count: int, seed: int = 0) -> tuple[Any, Any]:
    draw = np.random.default_rng(seed)
    cosines = draw.uniform(0.2, 1.0, count)
    return cosines, draw.random(count) < Calibration(0.8, -1.4)(cosines)


def test_the_fit_is_the_likeliest() -> None:
    cosines, same = drawn(5000)
    x, sign = nearness(cosines), np.where(same, 1, -1)
    likeliest = minimize(lambda w: np.logaddexp(0, -sign * (w[0] * x + w[1])).sum(), [1.0, 0.0], tol=1e-9)
    assert fit(cosines, same) == pytest.approx(likeliest.x, abs=1e-3)
    assert fit(cosines, same) == pytest.approx((0.8, -1.4), abs=0.15)
    slope, _ = fit(np.array([0.1, 0.2, 0.8, 0.9]), np.array([0, 0, 1, 1], bool))  # told apart without a fault
    assert 0 < slope < 100


def test_a_probability_is_the_power_of_a_distance() -> None:
    calibration = Calibration(slope=2.0, intercept=1.0)
    assert calibration(0.5) == pytest.approx(1 / (1 + 0.5**2 / np.e))
    assert calibration(1.0) == calibration(1.2) == pytest.approx(1 / (1 + 1e-6 / np.e))
    assert [calibration.answer(p) for p in (0.1, 0.35, 0.5, 0.65, 0.7)] == [
        "other",
        "unsure",
        "unsure",
        "unsure",
        "same",
    ]


def test_the_calibration_error_by_hand() -> None:
    p, same = np.array([0.05, 0.05, 0.95, 0.95]), np.array([0, 1, 1, 1], bool)
    assert calibration_error(p, same) == pytest.approx((abs(0.1 - 1) + abs(1.9 - 2)) / 4)
    assert calibration_error(np.array([1.0]), np.array([True])) == 0


def test_a_word_has_no_part_in_its_own_probabilities() -> None:
    cosines, same = drawn(300)
    words = np.repeat([f"word {number}" for number in range(30)], 10).astype(object)
    first, other = words == "word 7", same.copy()
    other[first] = ~other[first]
    before, after = unseen(cosines, same, words), unseen(cosines, other, words)
    assert np.array_equal(before[first], after[first])
    assert not np.array_equal(before[~first], after[~first])
    assert np.isfinite(unseen(cosines, same, np.full(300, "one"))).all()


def test_of_equal_votes_the_nearest_counts() -> None:
    likeness = np.array([[0.9, 0.8, 0.7, 0.6, -1.0]])
    assert voted(likeness, list("abbac"), 4) == ["a"]
    assert voted(likeness, list("abbac"), 3) == ["b"]


def test_pairs_are_read_as_word_in_context_and_as_json_lines(tmp_path: Path) -> None:
    (tmp_path / "a.data.txt").write_text(
        "bank\tN\t2-1\ta river bank\tthe bank lends\nbank\tN\t2-2\tx y bank\tu v bank\n"
    )
    (tmp_path / "a.gold.txt").write_text("F\nT\n")
    rows = [
        {
            "word": "bank",
            "first": {"words": ["a", "river", "bank"], "index": 2},
            "second": {"text": "the bank lends", "start": 4, "stop": 8},
            "same": False,
        },
        {
            "word": "bank",
            "first": {"text": "x y bank", "start": 4, "stop": 8},
            "second": {"words": ["u", "v", "bank"], "index": 2},
            "same": True,
        },
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    both = [read_judged(tmp_path / name) for name in ("a.data.txt", "a.jsonl")]
    assert both[0].spans == both[1].spans
    assert both[0].spans[1] == Span("the bank lends", 4, 8)
    for each in both:
        assert each.same.tolist() == [False, True]
        assert each.pairs.tolist() == [[0, 1], [2, 3]]
        assert each.words.tolist() == ["bank"] * 4


def test_pairs_of_senses_are_within_a_word_and_balanced(tmp_path: Path) -> None:
    file = senses(tmp_path / "a.jsonl")
    other = {"word": "line", "text": "a line", "start": 2, "stop": 6, "sense": "side"}
    file.write_text(file.read_text() + json.dumps(other) + "\n")
    judged = read_judged(file)
    assert sorted(map(tuple, judged.pairs[judged.same].tolist())) == [(0, 1), (2, 3)]
    assert judged.same.tolist().count(False) == 2
    assert judged.pairs.max() < 4


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", "not json\n", "line 1"),
        (
            "a.jsonl",
            '{"word": "bank", "text": "a bank", "start": 2, "stop": 9, "sense": "x"}\n',
            "start and stop",
        ),
        ("a.jsonl", '{"word": "bank", "first": {}, "second": {}, "same": true}\n', "line 1, KeyError"),
        (
            "a.jsonl",
            '{"word": "b", "text": "b", "start": 0, "stop": 1, "sense": "x"}\n',
            "pairs of one sense",
        ),
        ("a.jsonl", "", "pairs of one sense"),
        ("a.data.txt", "bank\tN\t2-1\ta river bank\tthe bank lends\n", "FileNotFoundError"),
    ],
)
def test_what_is_no_judged_data_is_refused(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        read_judged(tmp_path / name)


def test_the_default_model_is_calibrated_at_its_layers(model: Any) -> None:
    embed = UsageEmbedder(model.loaded)
    assert embed.layers == (6,)
    calibration = shipped(embed)
    assert calibration is not None, "the mark of the default model has changed: fit it anew"
    assert calibration([0.5, 0.754, 0.95]).round(2).tolist() == [0.36, 0.5, 0.79]
    assert shipped(UsageEmbedder(model.loaded, [5])) is None


def test_layers_are_mixed_as_the_concordance_mixes_them(model: Any) -> None:
    spans = [Span(text, at, at + 4) for text, at, _ in USES]
    mean = layers_of(model.loaded, spans, [6]).astype(np.float32).mean(1)
    mean /= np.linalg.norm(mean, axis=1, keepdims=True)
    assert np.abs(mean - UsageEmbedder(model.loaded)(spans)).max() < 1e-3  # float16


def test_uses_of_any_size_have_the_length_one() -> None:
    model, spans = regard.load(), [Span(text, at, at + 4) for text, at, _ in USES]
    with torch.no_grad():
        dict(model.network.named_parameters())["encoder.layers.5.ffn_residual.norm.bias"][29] = 1e38
    assert np.abs(UsageEmbedder(model.loaded, [6])(spans)[:, 29] - 1.0).max() < 1e-6
    assert np.abs(layers_of(model.loaded, spans, [6])[:, 0, 29] - 1.0).max() < 1e-3  # float16


def test_several_sets_have_one_say_each(model: Any, tmp_path: Path) -> None:
    """Ranks in each set by itself, whatever its size; and one of pairs beside one with senses."""
    one = read_judged(senses(tmp_path / "senses.jsonl"))
    pairs = [
        {"word": word, "first": first, "second": second, "same": same}
        for word, first, second, same in (
            (
                "cold",
                {"words": ["a", "cold", "day"], "index": 1},
                {"words": ["a", "cold", "wind"], "index": 1},
                True,
            ),
            (
                "cold",
                {"words": ["a", "cold", "day"], "index": 1},
                {"words": ["cold", "to", "me"], "index": 0},
                False,
            ),
            (
                "line",
                {"words": ["a", "line", "of", "verse"], "index": 1},
                {"words": ["line", "up"], "index": 0},
                False,
            ),
            ("line", {"words": ["my", "line"], "index": 1}, {"words": ["a", "line"], "index": 1}, True),
        )
    ]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    two = read_judged(tmp_path / "pairs.jsonl")
    alone = [{tuple(row["layers"]): row for row in tune_layers(model, each).rows} for each in (one, two)]
    both = tune_layers(model, [one, two])
    for row in both.rows:
        own = [each[tuple(row["layers"])] for each in alone]
        assert row["rank"] == np.mean([each["rank"] for each in own])
        assert row["auc"] == pytest.approx(np.mean([each["auc"] for each in own]))
        assert row["neighbours"] == own[0]["neighbours"]
        assert own[1]["neighbours"] is None
    ranks = [row["rank"] for row in both.rows]
    assert ranks == sorted(ranks)
    assert both.settings["calibration"]["fitted_on"].startswith("senses.jsonl, ")
    assert "By one set." in str(tune_layers(model, one))
    assert "By one set." not in str(both)
    weighted = fit(
        np.array([0.1, 0.5, 0.5, 0.9]), np.array([0, 1, 0, 1], bool), np.array([1.0, 2.0, 1.0, 1.0])
    )
    twice = fit(np.array([0.1, 0.5, 0.5, 0.5, 0.9]), np.array([0, 1, 1, 0, 1], bool))
    assert weighted == pytest.approx(twice, rel=1e-6)


def test_settings_go_into_an_index_without_vectors(model: Any, tmp_path: Path) -> None:
    tuning = tune_layers(model, read_judged(senses(tmp_path / "senses.jsonl")))
    assert len(tuning.rows) == 6 + 5 + 4 + 3
    best = tuning.rows[0]
    assert best["neighbours"] == max(row["neighbours"] for row in tuning.rows)
    assert "5 neighbours" in str(tuning)
    (tmp_path / "a.txt").write_text("The bank of a river.\nThe bank lent money.\n")
    build_index([tmp_path / "a.txt"], tmp_path / "index")
    file = tmp_path / "layers.json"
    file.write_text(json.dumps(tuning.settings))
    use_settings(tmp_path / "index", file)
    found = Concordance(tmp_path / "index")
    assert list(found.vectors.embed.layers) == best["layers"]
    assert found.calibration is not None
    assert found.calibration.slope == best["slope"]
    assert found.find("bank", sentence="a bank")[0].probability is not None
    with pytest.raises(InputError, match="settings must come before the first vector"):
        use_settings(tmp_path / "index", tuning.settings)
    with pytest.raises(InputError, match="settings must be a file that"):
        use_settings(tmp_path / "index", {})
