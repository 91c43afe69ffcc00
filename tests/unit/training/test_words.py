"""word2vec and FastText: the words of texts, what is drawn, and what is learned."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.checkpoints import SafetensorsFile
from regard.core.errors import InputError, MissingExtraError, OutputError, RegardError, TrainingError
from regard.training import WordSettings, read_journal, read_word_settings, train_words, words_step
from regard.training.words import _corpus, _train
from regard.training.words._corpus import Corpus, Draws, read_corpus
from regard.words import WordVectors
from tolerances import FP32_OF_LARGEST, assert_close_to_largest
from unit.training.small import Killed, kill_at

TEXT = "The river bank .\n\nthe BANK of the loan\nriver river of\n"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "text.txt"
    file.write_text(TEXT)
    return file


def settings(file: Path, objective: str = "word2vec", **more: Any) -> WordSettings:
    return read_word_settings(
        objective, data={"train": [str(file)], "lowercase": True} | more.pop("data", {}), **more
    )


def texts(corpus: Corpus) -> list[list[str]]:
    cut = np.split(corpus.ids, corpus.starts[1:-1])
    return [[corpus.words[each] for each in part] for part in cut]


def test_words_are_numbered_by_how_often_they_occur(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = read_corpus(settings(text).data, 2)
    assert found.words == ["the", "river", "bank", "of"]
    assert found.counts.tolist() == [3, 3, 2, 2]
    assert texts(found) == [["the", "river", "bank"], ["the", "bank", "of", "the"], ["river", "river", "of"]]
    monkeypatch.setattr(_corpus, "LONGEST", 3)
    assert texts(read_corpus(settings(text).data, 2))[1:3] == [["the", "bank", "of"], ["the"]]
    cased = read_corpus(settings(text, data={"lowercase": False, "words": "blanks"}).data, 1)
    assert set(cased.words) == set(TEXT.split())
    columns = text.with_suffix(".tsv")
    columns.write_text('1\t"bank bank \\"river\\""\n')
    form = {"text": "2", "csv": {"header": False, "escape": "\\"}}
    assert read_corpus(settings(columns, data=form).data, 1).words == ["bank", '"', "river"]
    text.write_text("Fluß Fluß Ufer", encoding="cp1252")
    assert read_corpus(settings(text, data={"encoding": "cp1252"}).data, 1).words == ["fluß", "ufer"]


def corpus(lengths: list[int], words: int = 11) -> Corpus:
    ids = np.random.default_rng(1).integers(0, words, sum(lengths)).astype(np.int32)
    return Corpus(
        words=[str(each) for each in range(words)],
        counts=np.arange(words, 0, -1) ** 2,
        ids=ids,
        starts=np.cumsum([0, *lengths]),
    )


@pytest.mark.parametrize("architecture", ["skip-gram", "cbow"])
def test_windows_are_those_of_a_loop(architecture: str) -> None:
    made = corpus([7, 0, 1, 5, 29])
    draws = Draws(
        corpus=made, settings=WordSettings(objective="", architecture=architecture, subsample=0, window=3)
    )  # type: ignore[arg-type]
    found = draws.examples(0, 0)
    width = np.random.default_rng([0, 0, 0])
    width.random(len(made.ids))
    widths = iter(width.integers(1, 3, len(made.ids), endpoint=True).tolist())
    wanted: list[tuple[list[int], int]] = []
    for part in np.split(made.ids, made.starts[1:-1]):
        for place, word in enumerate(part.tolist()):
            reach = next(widths)
            around = [*part[max(0, place - reach) : place], *part[place + 1 : place + 1 + reach]]
            if architecture == "cbow":
                wanted += [(around, word)] if around else []
            else:
                wanted += [([word], other) for other in around]
    read = np.split(found.words, found.first[1:-1])
    assert [
        (each.tolist(), target) for each, target in zip(read, found.targets[:, 0].tolist(), strict=True)
    ] == wanted
    assert found.read == len(made.ids)


def test_an_epoch_reads_every_text_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_corpus, "STEP", 10)
    made = corpus([7, 0, 1, 25, 5, 2])
    draws = Draws(corpus=made, settings=WordSettings(objective="", subsample=0))
    assert [draws.examples(0, step).read for step in range(draws.steps)] == [33, 7]
    one, other = (draws.examples(epoch, 0).targets for epoch in (0, 1))
    assert one.tolist() != other.tolist()


def test_words_are_kept_and_drawn_as_often_as_they_should() -> None:
    made = corpus([40_000])
    draws = Draws(corpus=made, settings=WordSettings(objective="", subsample=0.05))
    share = made.counts / made.counts.sum()
    assert draws.kept == pytest.approx((np.sqrt(share / 0.05) + 1) * 0.05 / share)
    stays = np.bincount(draws.examples(0, 0).words, minlength=11) > 0
    assert stays.all()
    powers = made.counts**0.75 / (made.counts**0.75).sum()
    count = 200_000
    drawn = np.bincount(draws.others(np.random.default_rng(3), (count // 5, 5)).ravel(), minlength=11)
    # The sum of squared standard errors has 10 degrees of freedom: above 35 once in 8,000 times.
    assert ((drawn - count * powers) ** 2 / (count * powers)).sum() < 35
    own, other = draws._bins
    exact = own.copy()
    np.add.at(exact, other, 1 - own)
    assert exact / 11 == pytest.approx(powers, abs=1e-12)


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts in which words of one kind stand between the same others."""
    draw, file = np.random.default_rng(1), tmp_path_factory.mktemp("words") / "text.txt"
    kinds = {"water": ["river", "lake", "stream"], "money": ["loan", "debt", "credit"]}
    around = {"water": ["fish", "swim", "boat", "wet"], "money": ["pay", "bank", "owe", "rate"]}
    lines = []
    for _ in range(900):
        kind = str(draw.choice(list(kinds)))
        words = [*draw.choice(around[kind], 3), draw.choice(kinds[kind]), *draw.choice(around[kind], 3)]
        lines.append(" ".join(words))
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.mark.parametrize(
    ("objective", "more"),
    [
        ("word2vec", {}),
        ("word2vec", {"architecture": "cbow"}),
        ("fasttext", {"ngrams": {"longest": 4, "buckets": 999}}),
    ],
    ids=["skip-gram", "cbow", "fasttext"],
)
def test_words_of_one_kind_become_near(
    objective: str, more: dict[str, Any], grown: Path, tmp_path: Path
) -> None:
    chosen = settings(grown, objective, size=13, epochs=12, subsample=0, **more)
    result = train_words(chosen, tmp_path / "run")
    journal = list(read_journal(tmp_path / "run"))
    usual = 0.05 if objective == "fasttext" else 0.2 if "architecture" in more else 0.025
    assert journal[0]["lr"] == more.get("rate", usual)
    words = read_corpus(chosen.data, 5).counts
    same = (words / words.sum()) @ (
        words**0.75 / (words**0.75).sum()
    )  # a word drawn that is the one to predict
    begun = (1 + 5 * (1 - same)) * np.log(2)  # sigmoid(0) of each
    assert journal[-1]["loss"] < 0.8 * begun
    messages: list[str] = []
    train_words(replace(chosen, rate=1e-4, epochs=1), tmp_path / "begun", on_message=messages.append)
    assert re.search(r"words, vectors of 13 numbers.* words to learn from, 1 epoch, ", messages[-1])
    assert next(iter(read_journal(tmp_path / "begun")))["loss"] == pytest.approx(begun, rel=0.02)
    found = WordVectors.open(result.model / "vectors.safetensors")
    assert {word for word, _ in found.nearest("river", 2)} == {"lake", "stream"}
    assert {word for word, _ in found.nearest("loan", 2)} == {"debt", "credit"}
    for path in (result.model / "vectors.txt", result.model, result.model.parent):
        assert (WordVectors.open(path).vectors == found.vectors).all()
    if objective == "fasttext":
        assert found["rivers"] @ found["river"] > 0
        assert found.similarity("rivers", "river") > found.similarity("rivers", "loan")
        assert found.parts is not None
        pytest.importorskip("gensim")
        from gensim.models.fasttext import FastTextKeyedVectors  # takes seconds

        theirs = FastTextKeyedVectors(13, 3, 4, 999)
        theirs.key_to_index = {word: place for place, word in enumerate(found)}
        theirs.index_to_key = list(found)
        learned = SafetensorsFile(tmp_path / "run" / "checkpoint.safetensors").read("read").numpy()[:, :13]
        theirs.vectors_vocab, theirs.vectors_ngrams = learned[: len(found)], np.zeros((999, 13), np.float32)
        theirs.vectors_ngrams[found.parts.buckets] = found.parts.vectors
        theirs.recalc_char_ngram_buckets()
        theirs.adjust_vectors()
        assert_close_to_largest(found.vectors, theirs.vectors, FP32_OF_LARGEST)


def test_a_run_that_was_stopped_ends_with_the_same_bits(
    grown: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_corpus, "STEP", 1000)
    chosen = settings(grown, size=5, epochs=2, save_every=3)
    whole = train_words(chosen, tmp_path / "whole")
    with pytest.raises(Killed):
        train_words(chosen, tmp_path / "cut", on_report=kill_at(8))
    assert words_step(tmp_path / "cut") == 6
    again = train_words(chosen, tmp_path / "cut")
    assert (again.model / "vectors.txt").read_bytes() == (whole.model / "vectors.txt").read_bytes()
    steps = [[line["loss"] for line in read_journal(tmp_path / run)] for run in ("whole", "cut")]
    assert steps[0] == steps[1]
    with pytest.raises(InputError, match="size is 5 there and 6 here"):
        train_words(settings(grown, size=6, epochs=2), tmp_path / "cut")


@pytest.mark.parametrize("objective", ["word2vec", "fasttext"])
def test_words_of_any_text_are_in_both_files(objective: str, tmp_path: Path) -> None:
    """French numbers hold a narrow no-break space; every reader parts words at blanks alone."""
    odd = ["12\u202f500", "l\u2019eau", "é\u0301", "👩\u200d🚀"]
    file = tmp_path / "fr.txt"
    file.write_text(("La ville compte 12\u202f500 habitants l\u2019eau é\u0301 👩\u200d🚀\n") * 30, "utf-8")
    result = train_words(settings(file, objective, size=5, epochs=1), tmp_path / "run")
    for name in ("vectors.txt", "vectors.safetensors"):
        assert set(odd) <= set(WordVectors.open(result.model / name))


def test_what_no_file_can_hold_is_refused_before_the_first_step(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = replace(corpus([50]), words=["New York", *map(str, range(10))])
    monkeypatch.setattr(_train.Corpus, "in_folder", lambda *_: broken)
    with pytest.raises(InputError, match=r"nor hold a blank.* 'New York' does"):
        train_words(settings(text, min_count=1), tmp_path / "run")
    assert not words_step(tmp_path / "run")


def test_vectors_that_are_no_numbers_are_told_and_not_written(
    grown: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(self: object, tables: Any, examples: object, rate: float) -> float:
        tables.read[0] = np.inf
        return 2.5

    monkeypatch.setattr(_train.Learner, "step", step)
    with pytest.raises(
        TrainingError, match="not finite numbers after the last step; begin in another folder"
    ):
        train_words(settings(grown, size=5, epochs=1), tmp_path / "run")
    assert not (tmp_path / "run/model").exists()


def test_the_whole_file_is_written_before_the_text(
    grown: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = WordVectors.save

    def full(self: WordVectors, path: Path) -> None:
        if path.suffix == ".txt":
            raise OutputError("the disk is full")
        save(self, path)

    with monkeypatch.context() as less:
        less.setattr(WordVectors, "save", full)
        with pytest.raises(OutputError):
            train_words(settings(grown, size=5, epochs=1), tmp_path / "run")
    assert len(WordVectors.open(tmp_path / "run/model/vectors.safetensors")) == 14
    train_words(settings(grown, size=5, epochs=1), tmp_path / "run")
    assert len(WordVectors.open(tmp_path / "run/model/vectors.txt")) == 14


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"size": 0}, "size must be a whole number, from 1 to 1024; got 0."),
        ({"window": 0}, "window must be a whole number, from 1 to 100; got 0."),
        ({"negatives": 64}, "negatives must be a whole number, from 1 to 63; got 64."),
        ({"epochs": 0}, "epochs must be a whole number, at least 1; got 0."),
        ({"rate": 0.0}, "rate must be above 0; got 0.0."),
        ({"subsample": -1.0}, "subsample must be at least 0; got -1.0."),
        ({"ngrams": {"longest": 3}}, "ngrams are of fasttext; word2vec has none."),
        ({"data": {"train": []}}, "data.train must name at least one file."),
        ({"min_count": 4}, "at least two words that occur 4 times (min_count); of 6 words 0 does."),
        ({"min_count": 1, "rate": 1e30}, "the loss is nan at step"),
    ],
)
def test_what_cannot_be_is_one_line(more: dict[str, Any], told: str, text: Path, tmp_path: Path) -> None:
    with pytest.raises(RegardError) as raised:
        train_words(settings(text, **more), tmp_path / "run")
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)


def test_what_is_not_here_is_named(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "regard.kernels", None)
        with pytest.raises(
            MissingExtraError, match="fasttext needs llvmlite, which is not installed; run: pip "
        ):
            train_words(settings(text, "fasttext"), tmp_path / "run")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="word2vec trains in one process; start it without torchrun"):
        train_words(settings(text), tmp_path / "run")
    assert not (tmp_path / "run").exists()
