"""Sentence vectors against sentence-transformers, which wrote the folders: each pooling, step and prompt."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import regard
from regard.checkpoints import find
from regard.checkpoints._packages import store
from regard.embedding import Embedder, Request, Truncate, read_sentence_settings
from regard.models import load_checkpoint
from tolerances import PARITY_FP32, WEIGHTS, assert_close_to_largest

D_MODEL, LIMIT = 30, 13
MPNET = store() / "sentence-transformers--all-mpnet-base-v2"  # of the user: tests have a store of their own
WORDS = [
    "time",
    "flies",
    "like",
    "an",
    "arrow",
    "fruit",
    "banana",
    "query",
    ":",
    "the",
    "##s",
    "a",
    "of",
    ".",
]
TEXTS = [
    "Time flies like an arrow.",
    "a banana",
    "Fruit flies like the banana of the time of an arrow of a query of the arrows",
    ":",
]
PROMPT = "Query of: "

POOLINGS = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")


@pytest.fixture(scope="module")
def st() -> SimpleNamespace:
    """Their classes. The import takes seconds, and every process collects this file."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Dropout, LayerNorm, Pooling

    classes = (SentenceTransformer, Transformer, Pooling, Dense, Dropout, LayerNorm, Normalize)
    return SimpleNamespace(**{each.__name__: each for each in classes})


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT with its tokenizer, as transformers saves it."""
    folder = tmp_path_factory.mktemp("bert")
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
    config = transformers.BertConfig(
        vocab_size=len(WORDS) + 5,
        hidden_size=D_MODEL,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=17,
        max_position_embeddings=31,
        initializer_range=0.5,
    )
    torch.manual_seed(0)
    transformers.BertModel(config).save_pretrained(folder)
    transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


def theirs(st: Any, folder: Path, modules: Sequence[torch.nn.Module], into: Path, **kwargs: Any) -> Any:
    """A model of theirs, saved, and read again from there."""
    first = st.Transformer(str(folder), max_seq_length=LIMIT)
    st.SentenceTransformer(modules=[first, *modules], device="cpu", **kwargs).save(str(into))
    return st.SentenceTransformer(str(into), device="cpu")


def ours(folder: Path, texts: Sequence[str], **kwargs: Any) -> np.ndarray[Any, Any]:
    """The same by regard, cut where theirs cuts."""
    request = Request(window=Truncate(), **kwargs)
    vectors: np.ndarray[Any, Any] = Embedder(load_checkpoint(folder), request).sentences(texts).vectors
    return vectors


@pytest.mark.parametrize(
    ("mode", "include_prompt"),
    [
        *((mode, True) for mode in [*POOLINGS, ("cls", "mean", "max"), ("weightedmean", "lasttoken")]),
        *((mode, False) for mode in [("cls", "mean", "max"), ("weightedmean", "lasttoken")]),
        ("mean_sqrt_len_tokens", False),
    ],
)
def test_each_pooling(st: Any, bert: Path, tmp_path: Path, mode: Any, include_prompt: bool) -> None:
    pooling = st.Pooling(D_MODEL, mode, include_prompt=include_prompt)
    model = theirs(st, bert, [pooling], tmp_path, prompts={"query": PROMPT})
    for name in (None, "query"):
        expected = model.encode(TEXTS, prompt_name=name, batch_size=3)
        assert_close_to_largest(ours(tmp_path, TEXTS, prompt_name=name), expected, PARITY_FP32)


@pytest.mark.parametrize("mode", POOLINGS)
def test_the_flags_of_older_files(st: Any, bert: Path, tmp_path: Path, mode: str) -> None:
    theirs(st, bert, [st.Pooling(D_MODEL, mode)], tmp_path)  # type: ignore[arg-type]
    flags = {f"pooling_mode_{each}": False for each in ("cls_token", "mean_tokens", "max_tokens")}
    flag = {
        "cls": "cls_token",
        "mean": "mean_tokens",
        "max": "max_tokens",
        "weightedmean": "weightedmean_tokens",
    }
    flags[f"pooling_mode_{flag.get(mode, mode)}"] = True
    fields = {"word_embedding_dimension": D_MODEL} | flags
    (tmp_path / "1_Pooling/config.json").write_text(json.dumps(fields))
    expected = st.SentenceTransformer(str(tmp_path), device="cpu").encode(TEXTS)
    assert_close_to_largest(ours(tmp_path, TEXTS), expected, PARITY_FP32)


def test_every_step(st: Any, bert: Path, tmp_path: Path) -> None:
    steps = [
        st.Pooling(D_MODEL, ("mean", "cls")),
        st.Dropout(0.5),
        st.Dense(2 * D_MODEL, 11, activation_function=torch.nn.GELU()),
        st.LayerNorm(11),
        st.Dense(11, 11, bias=False, activation_function=torch.nn.Identity(), use_residual=True),
        st.Normalize(),
        st.Dense(11, 7, use_residual=True),
        st.Normalize(),
    ]
    expected = theirs(st, bert, steps, tmp_path).encode(TEXTS)
    assert_close_to_largest(ours(tmp_path, TEXTS), expected, PARITY_FP32)


@pytest.mark.parametrize("normalize", [False, True])
def test_a_cut_with_and_without_the_length_1_after_it(
    st: Any, bert: Path, tmp_path: Path, normalize: bool
) -> None:
    model = theirs(st, bert, [st.Pooling(D_MODEL), st.Normalize()], tmp_path, truncate_dim=11)
    expected = model.encode(TEXTS, normalize_embeddings=normalize)
    assert expected.shape == (4, 11)
    assert_close_to_largest(ours(tmp_path, TEXTS, normalize=normalize or None), expected, PARITY_FP32)


def test_a_default_prompt(st: Any, bert: Path, tmp_path: Path) -> None:
    prompts = {"query": PROMPT, "document": "the "}
    model = theirs(st, bert, [st.Pooling(D_MODEL)], tmp_path, prompts=prompts, default_prompt_name="document")
    assert_close_to_largest(ours(tmp_path, TEXTS), model.encode(TEXTS), PARITY_FP32)
    with_none = model.encode(TEXTS, prompt="")
    assert_close_to_largest(ours(tmp_path, TEXTS, prompt=""), with_none, PARITY_FP32)


def test_lower_case(st: Any, bert: Path, tmp_path: Path) -> None:
    theirs(st, bert, [st.Pooling(D_MODEL)], tmp_path)
    for name, changed in (("tokenizer.json", "normalizer"), ("tokenizer_config.json", None)):
        fields = json.loads((tmp_path / name).read_text())
        inside = fields if changed is None else fields[changed]
        inside["do_lower_case" if changed is None else "lowercase"] = False
        (tmp_path / name).write_text(json.dumps(fields))
    file = tmp_path / "sentence_bert_config.json"
    vectors: list[np.ndarray[Any, Any]] = []
    for lowercases in (False, True):
        file.write_text(json.dumps({"do_lower_case": lowercases, "max_seq_length": LIMIT}))
        expected = st.SentenceTransformer(str(tmp_path), device="cpu").encode(TEXTS)
        found = ours(tmp_path, TEXTS)
        assert_close_to_largest(found, expected, PARITY_FP32)
        vectors.append(found)
    assert not np.array_equal(*vectors)


def test_a_folder_without_modules(st: Any, bert: Path) -> None:
    model = st.SentenceTransformer(str(bert), device="cpu")
    assert_close_to_largest(ours(bert, TEXTS), model.encode(TEXTS), PARITY_FP32)


@pytest.mark.parametrize(
    ("kind", "inside", "about", "steps"),
    [
        ("Transformer", "0_Transformer", "sentence_bert_config.json", ["Dense"]),
        ("Transformer", "0_RoBERTa", "sentence_roberta_config.json", []),
        ("BERT", "0_BERT", "sentence_bert_config.json", []),
        ("DistilBERT", "parts/0_DistilBERT", "sentence_distilbert_config.json", ["Normalize"]),
    ],
)
def test_a_folder_of_theirs_before_2_0(
    st: Any, bert: Path, tmp_path: Path, kind: str, inside: str, about: str, steps: list[str]
) -> None:
    """The network lies in a folder of its own. Theirs no longer has the classes that were one a family."""
    after = {"Dense": st.Dense(2 * D_MODEL, 7), "Normalize": st.Normalize()}
    pooling = st.Pooling(D_MODEL, ("mean", "max"))
    theirs(st, bert, [pooling, *(after[step] for step in steps)], tmp_path / "new")
    old = tmp_path / "old"
    shutil.copytree(tmp_path / "new", old)
    (old / inside).mkdir(parents=True)
    for file in [each for each in old.iterdir() if each.is_file() and each.name != "modules.json"]:
        file.rename(old / inside / file.name)
    (old / inside / "sentence_bert_config.json").unlink()
    (old / inside / about).write_text(json.dumps({"max_seq_length": 9, "do_lower_case": None}))
    (old / "config.json").write_text(json.dumps({"__version__": "0.3.0"}))
    modules = json.loads((old / "modules.json").read_text())
    modules[0] |= {"path": inside}
    (old / "modules.json").write_text(json.dumps(modules))
    expected = st.SentenceTransformer(str(old), device="cpu").encode(TEXTS)
    modules[0] |= {"type": f"sentence_transformers.models.{kind}"}
    (old / "modules.json").write_text(json.dumps(modules))
    assert_close_to_largest(ours(old, TEXTS), expected, PARITY_FP32)

    # Saved it lies as theirs does today, without a second copy of the weights.
    (old / "modules.json").write_text((old / "modules.json").read_text().replace(f".{kind}", ".Transformer"))
    folder = regard.load(old).save(tmp_path / "saved")
    assert not (folder / inside).exists()
    assert_close_to_largest(ours(folder, TEXTS), expected, PARITY_FP32)
    again = st.SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    assert_close_to_largest(again, expected, PARITY_FP32)


def test_bits(st: Any, bert: Path, tmp_path: Path) -> None:
    model = theirs(st, bert, [st.Pooling(D_MODEL)], tmp_path)
    expected = model.encode(TEXTS, precision="ubinary")
    assert np.array_equal(ours(tmp_path, TEXTS, storage="ubinary"), expected)


def test_the_default_model(st: Any) -> None:
    folder = find("all-MiniLM-L6-v2").folder
    model = st.SentenceTransformer(str(folder), device="cpu")
    texts = [*TEXTS, "Write a poem about a man fishing on a river bank. " * 40]
    assert_close_to_largest(ours(folder, texts), model.encode(texts), PARITY_FP32)
    settings = read_sentence_settings(folder)
    assert settings.max_seq_length == model.max_seq_length
    assert settings.width(384) == model.get_embedding_dimension()


@pytest.mark.slow
@pytest.mark.skipif(not MPNET.exists(), reason="404 MB are not here: `regard models get all-mpnet-base-v2`")
def test_a_model_of_full_size(st: Any) -> None:
    """Of unit vectors of 768 numbers the largest entry is some 0.15: measured 1.4e-7 apart."""
    model = st.SentenceTransformer(str(MPNET), device="cpu")
    texts = [*TEXTS[:3], "Write a poem about a man fishing on a river bank. " * 60]
    found, wanted = ours(MPNET, texts), model.encode(texts)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=WEIGHTS)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=0, atol=WEIGHTS)
