"""The groups of a word's uses, and senses in a file."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import regard
from regard.concordance import Concordance, Line, build_index
from regard.concordance._senses import grouping
from regard.concordance._teach import read_examples, write_examples
from regard.concordance._vectors import Span
from regard.core.errors import InputError
from regard.models import write_checkpoint
from regard.text import write_tokenizer
from unit.training.small import WORDS, network, tokenizer

RIVER = ["mud", "reeds", "fish", "water", "boat", "stream", "grass", "frog", "swim", "flood"]
MONEY = ["loan", "cash", "account", "credit", "interest", "branch", "deposit", "cheque", "savings", "teller"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    river = [f"Near the river there was {each}, and we sat on the bank of the stream." for each in RIVER]
    money = [f"He asked about the {each}, and the bank lent him money for the house." for each in MONEY]
    lines = [line for pair in zip(river, money, strict=True) for line in pair]
    (folder / "a.txt").write_text("\n".join(lines) + "\nA *star* on the bank.\n", encoding="utf-8")
    build_index([folder / "a.txt"], folder / "index")
    return folder / "index"


@pytest.fixture(scope="module")
def concordance(corpus: Path) -> Concordance:
    return Concordance(corpus)


def kinds(lines: Sequence[Line]) -> list[str]:
    return ["river" if "river" in line.place.body else "money" for line in lines]


def test_groups_what_is_apart(concordance: Concordance, tmp_path: Path) -> None:
    found = concordance.senses("bank", where=["text~and"])
    labels = [line.label for line in found.lines]
    assert len(found.groups) == 2
    assert found.stability is not None
    assert found.stability > 0.9
    assert len({(label, kind) for label, kind in zip(labels, kinds(list(found.lines)), strict=True)}) == 2
    for group in found.groups:
        (kind,) = set(kinds(list(group.typical)))
        beside = {word for word, _ in group.neighbours}
        assert ({"sat", "stream"} if kind == "river" else {"lent", "money"}) <= beside
        assert group.substitutes == ()
        assert group.uses == 10
    assert found.to_rows()[0]["typical"][0].count("*bank*") == 1
    assert {row["sense"] for row in found.lines.to_rows()} == {"1", "2"}
    assert "2 groups of vectors, stable" in str(found)


def test_a_file_is_written_edited_and_labels(concordance: Concordance, tmp_path: Path) -> None:
    file = tmp_path / "bank.json"
    first = concordance.senses("bank", where=["text~and"], file=file)
    content = json.loads(file.read_text(encoding="utf-8"))
    names = {each.name: kinds(list(each.typical))[0] for each in first.groups}
    content["senses"] = {names[name]: examples for name, examples in content["senses"].items()}
    file.write_text(json.dumps(content), encoding="utf-8")
    found = concordance.senses("bank", file=file)
    assert [line.label for line in found.lines][:20] == kinds(list(found.lines)[:20])
    assert found.lines[0].probability is None  # an example keeps what its reader said
    assert found.lines[20].probability is not None
    assert found.stability is None
    assert {each.name for each in found.groups} >= {"river", "money"}
    with pytest.raises(InputError, match="groups must be left out"):
        concordance.senses("bank", file=file, groups=2)
    with pytest.raises(InputError, match=r"word must be that of .*, 'bank'; got 'river'"):
        concordance.senses("river", file=file)


def test_taught_in_two_sittings(concordance: Concordance, tmp_path: Path) -> None:
    file, seen = tmp_path / "bank.json", list[Line]()

    def ask(line: Line, names: Sequence[str]) -> str | None:
        seen.append(line)
        if "star" in line.place.body:
            return ""
        return kinds([line])[0]

    assert concordance.teach("bank", file, ask, most=2) == 2
    assert concordance.teach("bank", file, ask, most=4) == 4
    assert len({line.place.use for line in seen if "star" not in line.place.body}) == 6
    assert any(line.probability is not None for line in seen)
    labels = [line.label for line in concordance.senses("bank", file=file).lines][:20]
    right = [
        label == kind for label, kind in zip(labels, kinds(list(concordance.find("bank", k=20))), strict=True)
    ]
    assert sum(right) >= 18
    assert concordance.teach("bank", file, lambda line, names: None) == 0
    with pytest.raises(InputError, match="another name than 'unsure'"):
        concordance.teach("bank", file, lambda line, names: "unsure")


def test_one_group_of_one_cloud_and_of_few() -> None:
    rng = np.random.default_rng(0)
    cloud = (rng.standard_normal((200, 30)) * np.linspace(1, 0.2, 30)).astype(np.float32)
    labels, stability, about = grouping(cloud)
    assert set(labels.tolist()) == {0}
    assert stability is None
    assert about.startswith("One group: no split is both stable and clearer than chance.")
    assert grouping(cloud[:19])[2] == "Too few to part, 19 of them distinct: one group."
    labels, stability, about = grouping(cloud, 3)
    assert sorted(set(labels.tolist())) == [0, 1, 2]
    assert "not stable" in about
    assert (np.diff(np.bincount(labels)) <= 0).all()
    for count in (0, 1, 200):
        with pytest.raises(
            InputError, match="groups must be 2 or more, and fewer than the 200 distinct uses"
        ):
            grouping(cloud, count)


def _long(rng: np.random.Generator) -> np.ndarray:
    """A normal cloud that is long: halves part it in the same way, and yet it is one."""
    return rng.standard_normal((150, 6)) * (4, 1, 1, 1, 1, 1)


def _sphere(rng: np.random.Generator) -> np.ndarray:
    """A sphere: clearer in parts than a normal cloud, but halves part it otherwise."""
    points = rng.standard_normal((120, 4))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


@pytest.mark.parametrize("cloud", [_long, _sphere])
def test_one_group_where_only_one_condition_holds(cloud: Callable[[np.random.Generator], np.ndarray]) -> None:
    labels, _, about = grouping(cloud(np.random.default_rng(1)).astype(np.float32))
    assert set(labels.tolist()) == {0}, about


@pytest.mark.parametrize("apart", [3, 5])
def test_as_many_groups_as_there_are(apart: int) -> None:
    rng = np.random.default_rng(apart)
    vectors = 6 * np.eye(40)[np.arange(200) % apart] + rng.standard_normal((200, 40)) * 0.7
    labels, _, about = grouping(vectors.astype(np.float32))
    assert about.startswith(f"{apart} groups of vectors, stable")
    assert len(set(zip(labels.tolist(), (np.arange(200) % apart).tolist(), strict=True))) == apart


def test_examples_are_read_as_they_were_written(tmp_path: Path) -> None:
    examples = {"a": [Span("the bank.", 4, 8), Span("* bank *", 2, 6)], "ü": [Span("bank\nof", 0, 4)]}
    write_examples(tmp_path / "x.json", "bank", examples)
    assert read_examples(tmp_path / "x.json", "Bank") == examples
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))["senses"]["a"] == [
        "the *bank*.",
        ["* ", "bank", " *"],
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "file must be a JSON file of senses"),
        ('{"word": "bank", "senses": {"a": [], "a": []}}', "occurs twice"),
        ('{"word": "bank"}', 'file must have "senses"'),
        ('{"word": "bank", "senses": {"a": "x"}}', 'file must have "senses"'),
        ('{"word": "bank", "senses": {"a": ["the *bank*"]}}', "two senses or more, none named 'unsure'"),
        ('{"word": "bank", "senses": {"a": ["*bank*"], "unsure": ["*bank*"]}}', "has a, unsure"),
        ('{"word": "bank", "senses": {"a": ["the bank"]}}', "between asterisks"),
        (
            '{"word": "bank", "senses": {"a": [["the", "bank"]]}}',
            "an example must be a text with its word marked",
        ),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "x.json").write_text(content, encoding="utf-8")
    with pytest.raises(InputError) as error:
        read_examples(tmp_path / "x.json", "bank")
    assert message in str(error.value)


def test_substitutes_of_a_model_with_a_head(tmp_path: Path) -> None:
    folder = write_checkpoint(network("bert", head="masked-lm", vocab_size=len(WORDS)), tmp_path / "model")
    write_tokenizer(tokenizer(), folder)
    (tmp_path / "a.txt").write_text(
        "\n".join(["the bank of a river", "a loan of the bank"] * 3), encoding="utf-8"
    )
    build_index([tmp_path / "a.txt"], tmp_path / "index")
    model = regard.load(folder)
    with pytest.raises(InputError, match="fewer than the 2 distinct uses; got 2"):
        Concordance(tmp_path / "index", model).senses("bank", groups=2)
    found = Concordance(tmp_path / "index", model).senses("bank")
    for each in found.groups:
        texts = [f"{line.left}[MASK]{line.right}" for line in each.typical]
        wanted = dict.fromkeys(WORDS, 0.0)
        for text in texts:
            for guess in model.fill(text, top=len(WORDS)).masks[0]:
                wanted[guess.token] += guess.probability / len(texts)
        assert each.substitutes
        assert "bank" not in dict(each.substitutes)
        for word, share in each.substitutes:
            assert share == pytest.approx(wanted[word])


def test_drift_of_an_index(concordance: Concordance) -> None:
    with pytest.raises(InputError, match="none of these has a date"):
        concordance.drift("bank")
