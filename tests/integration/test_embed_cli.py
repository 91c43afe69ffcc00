"""`regard embed` in this process: what comes out, and what it says to bad input."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from integration import test_cli
from integration.test_cli import Run, refused
from regard.models import Loaded, load_checkpoint
from unit.kernels.targets import needs_vnni

run = test_cli.run

TEXTS = ["A river bank.", "He fishes on the bank of a river, far from any bank.", "", "Bank", "\u200b"]


load_once = lru_cache(load_checkpoint)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # A command takes a third of a second, of which most is reading the model and hashing it.
    monkeypatch.setattr("regard.foreign.load", load_once)
    monkeypatch.setattr(Loaded, "mark", lambda loaded: repr(loaded.source))
    rows = [{"text": text, "doc": f"d{n}", "year": 1990 + n} for n, text in enumerate(TEXTS)]
    Path("a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    Path("a.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    pq.write_table(pa.Table.from_pylist(rows), "a.parquet")


def embedded(texts: Sequence[str], **options: Any) -> Any:
    return test_cli.load_once().embed(texts, **options)


GOOD = [TEXTS[0], TEXTS[1], TEXTS[3]]


def test_sentences_with_ids_and_columns(run: Run) -> None:
    name = "a.parquet"
    code, out, err = run("embed", name, "-o", "out", "--id-column", "doc", "--keep", "year")
    assert code == 0
    assert err == "regard: 2 rows were put aside, with the reason, in out/_quarantine.jsonl\n"
    assert re.fullmatch(r"3 texts, 25 tokens\n0\.0 MB in \d+ s\nout\n", out)
    table = pq.read_table("out")
    assert table.schema.names == ["row", "id", "year", "tokens", "windows", "cut", "unknown", "vector"]
    assert table.column("id").to_pylist() == ["d0", "d1", "d3"]
    assert table.column("year").to_pylist() == [1990, 1991, 1993]
    wanted = embedded(GOOD)
    np.testing.assert_array_equal(np.array(table.column("vector").to_pylist(), np.float32), wanted)
    reasons = [json.loads(line) for line in Path("out/_quarantine.jsonl").read_text().splitlines()]
    assert [(each["id"], each["reason"][:18]) for each in reasons] == [
        ("d2", "the text is empty"),
        ("d4", "leaves no token: t"),
    ]
    before = {path.name: path.read_bytes() for path in Path("out").iterdir()}
    again = run("embed", name, "-o", "out", "--id-column", "doc", "--keep", "year", "--json")
    assert json.loads(again.out)["before"] == 5
    counts = json.loads(again.out)["counts"]
    assert json.loads(Path("out/_manifest.json").read_text())["counts"] == counts
    assert (counts["missing"], counts["infinite"], counts["zero"]) == (2, 0, 0)
    assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == before


def test_words_at_layers(run: Run) -> None:
    code, out, _ = run("embed", "a.txt", "-o", "out", "--level", "word", "--layer", "0,4")
    assert (code, out.splitlines()[1]) == (0, "19 vectors")
    table = pq.read_table("out")
    wanted = embedded(GOOD, level="word", layer=[0, 4])
    for place, layer in enumerate((0, 4)):
        found = np.array(table.column(f"vector_{layer}").to_pylist(), np.float32)
        np.testing.assert_array_equal(found, wanted.vectors[:, place])
    spans = (table.column(name).to_pylist() for name in ("row", "start", "end", "text"))
    for row, start, end, word in zip(*spans, strict=True):
        assert TEXTS[row][start:end] == word


def test_paragraphs_and_whole_files(run: Run) -> None:
    assert run("embed", "a.txt", "-o", "out", "--unit", "paragraph").code == 0
    vectors = np.array(pq.read_table("out").column("vector").to_pylist(), np.float32)
    np.testing.assert_array_equal(vectors, embedded(["\n".join(TEXTS[:2]), "\n".join(TEXTS[3:])]))
    message = refused(run("embed", "a.txt", "-o", "out", "--unit", "file"), 2)
    assert "unit is 'paragraph' there and 'file' here" in message
    message = refused(run("embed", "a.txt", "-o", "out"), 2)
    assert "unit is 'paragraph' there and not stated here" in message
    assert run("embed", "a.txt", "a.txt", "-o", "whole.npy", "--unit", "file").code == 0
    np.testing.assert_array_equal(np.load("whole.npy"), embedded(["\n".join(TEXTS)] * 2))
    Path("b.csv").write_text("text\na bank\n")
    message = refused(run("embed", "a.txt", "b.csv", "-o", "other", "--unit", "file"), 2)
    assert "--unit must be 'line' except for plain text: b.csv has rows of its own" in message


def test_numpy_files(run: Run) -> None:
    assert run("embed", "a.txt", "-o", "v.npy", "--layer", "3", "--pooling", "max").code == 0
    found = np.load("v.npy")
    np.testing.assert_array_equal(found[[0, 1, 3]], embedded(GOOD, layer=3, pooling="max"))
    assert np.isnan(found[[2, 4]]).all()
    assert "'v.npy' is there already; remove it" in refused(run("embed", "a.txt", "-o", "v.npy"), 2)


def test_zeros_and_numbers_that_are_not_finite_are_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_checkpoint()
    network: Any = loaded.network
    (bank,) = loaded.require_tokenizer().encode("bank", add_special_tokens=False).token_ids
    with torch.no_grad():
        network.encoder.embeddings.tokens.weight[bank] = torch.nan
        network.encoder.layers[-1].ffn_residual.norm.weight.zero_()
        network.encoder.layers[-1].ffn_residual.norm.bias.zero_()
    monkeypatch.setattr("regard.foreign.load", lambda *_, **__: loaded)
    Path("b.txt").write_text("a bank\nfish\n\nrivers\n")
    code, out, err = run("embed", "b.txt", "-o", "out")
    assert code == 0
    assert out.splitlines()[1:3] == [
        "2 vectors of zeros alone, with no direction",
        "1 text put aside, with vectors that are not finite",
    ]
    assert err == "regard: 2 rows were put aside, with the reason, in out/_quarantine.jsonl\n"
    counts = json.loads(Path("out/_manifest.json").read_text())["counts"]
    assert (counts["missing"], counts["infinite"], counts["zero"]) == (1, 1, 2)


def test_no_vector_is_a_failure(run: Run) -> None:
    Path("blank.txt").write_text("\n\n")
    for output in ("out", "v.npy", "-"):
        code, out, err = run("embed", "blank.txt", "-o", output)
        assert (code, "[" in out) == (1, False)
        told = (
            "regard: none of the 2 rows could be embedded: the text is empty; is it the right --text-column?"
        )
        assert err.splitlines()[-1] == told
    Path("latin.txt").write_bytes(b"caf\xe9\nna\xefve\n\n")
    for output in ("out", "-"):
        told = (
            "none of the 3 rows could be embedded: the line is not UTF-8: byte 3 is 0xe9; name its encoding"
        )
        assert run("embed", "latin.txt", "-o", output).err.endswith(f"{told}, such as --encoding cp1252\n")
    assert Path("out/_quarantine.jsonl").exists()
    assert not Path("v.npy").exists()
    assert run("embed", "a.txt", "-o", "out").code == 0  # such a folder does not refuse the right input


def test_how_many_may_be_put_aside(run: Run) -> None:
    assert run("embed", "a.txt", "-o", "-", "--max-rejected", "2").code == 0
    done = run("embed", "a.txt", "-o", "out", "--max-rejected", "39.9%")
    assert (done.code, Path("out/_quarantine.jsonl").exists()) == (1, True)
    assert done.err.endswith("regard: 2 of 5 rows were put aside, more than --max-rejected allows.\n")


def test_json_lines_on_stdout_with_the_model_of_a_run(run: Run) -> None:
    Path("run").mkdir()
    Path("run/settings.json").write_text("{}")
    Path("run/model").symlink_to(run("models", "path").out.strip())
    given = "\n".join(TEXTS).encode()
    code, out, err = run("embed", "-", "-o", "-", "--dims", "5", "-m", "run", stdin=given)
    assert code == 0
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["row"] for line in lines] == [0, 1, 3]
    wanted = embedded(GOOD, truncate_dim=5)
    np.testing.assert_array_equal(np.array([line["vector"] for line in lines], np.float32), wanted)
    assert err.splitlines()[0] == "regard: row 2 is passed over: the text is empty"
    assert err.splitlines()[-1] == "regard: 2 rows were passed over in all"


@needs_vnni
def test_int8_says_what_it_loses(run: Run) -> None:
    code, _, err = run("embed", "a.txt", "-o", "out", "--precision", "int8")
    assert code == 0
    about = json.loads(Path("out/_manifest.json").read_text())["about"]
    assert about["computed"] == f"int8, smallest cosine to float32 {about['loss']['smallest_cosine']:.4f}"
    assert err.splitlines()[0] == f"regard: computed in {about['computed']}"
    vectors = np.array(pq.read_table("out").column("vector").to_pylist(), np.float32)
    np.testing.assert_array_equal(vectors, embedded(GOOD, precision="int8"))
    err = run("embed", "a.txt", "-o", "out", "--precision", "float32").err
    assert "precision is 'int8' there and 'float32' here" in err


def test_a_dry_run(run: Run) -> None:
    code, out, err = run("embed", "a.jsonl", "--dry-run")
    assert (code, err) == (0, "")
    assert out.startswith("5 rows, 2 of them with no text\n25 tokens, 3 vectors\nabout ")
    plain = json.loads(run("embed", "a.jsonl", "--dry-run", "--json").out)
    assert (plain["rows"], plain["tokens"], plain["exact"], plain["sample"]) == (5, 25, True, 4)
    assert not Path("out").exists()


def test_texts_that_are_cut_are_counted(run: Run) -> None:
    code, out, _ = run("embed", "a.txt", "-o", "out", "--truncate", "--window", "6")
    assert code == 0
    assert "1 text cut off\n10 tokens cut off\n" in out
    assert pq.read_table("out").column("cut").to_pylist() == [0, 10, 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.jsonl"], "--output names where the vectors go"),
        (["none.txt", "-o", "new"], r"none\.txt cannot be read \(No such file or directory\)"),
        (
            ["a.jsonl", "-o", "new", "--text-column", "body"],
            r"no column 'body'; it has 'text', 'doc', 'year'",
        ),
        (["a.txt", "-o", "new", "--id-column", "doc"], "plain text, which has no columns"),
        (["a.jsonl", "-o", "new", "--format", "parquet"], "not what --format says: it should be a Parquet"),
        (["a.jsonl", "-o", "new", "-l", "x"], "--layer must be a whole number, or several with commas"),
        (["a.jsonl", "-o", "new", "-l", "9"], "layer must be a whole number, from -7 to 6; got 9"),
        (["a.jsonl", "-o", "new", "-l", "1", "--mix", "1,2"], "give --layer or --mix, not both"),
        (["a.jsonl", "-o", "new", "--truncate", "--overlap", "3"], "give --truncate or --overlap, not both"),
        (["a.jsonl", "-o", "new", "--window", "900"], "size must be at most 512"),
        (
            ["a.jsonl", "-o", "new", "--rows-per-shard", "0"],
            "rows per shard must be a whole number, at least 1",
        ),
        (["a.jsonl", "-o", "new", "--device", "abacus"], "device must be one that torch has here"),
        (["a.jsonl", "-o", "new", "--device", "cuda", "--ray"], "--ray spreads over processors; got"),
        (["a.jsonl", "-o", "-", "--json"], "leave --json out"),
        (["a.jsonl", "-o", "new", "--keep", "text", "--level", "word"], "--keep 'text': the result has"),
        (["a.jsonl", "-o", "v.npy", "--level", "token"], r"a \.npy file holds one vector a text"),
        (["a.jsonl", "-o", "a.txt"], "'a.txt' must be a folder; it is a file"),
        (["a.jsonl", "-o", "."], r"'\.' holds 'a\.jsonl', which no job has written"),
        (["a.jsonl", "-o", "new", "--window", "5", "--overlap", "9"], "overlap must be less than the 3"),
        (["a.jsonl", "-o", "new", "--threads", "0"], "--threads must be a whole number, at least 1; got 0"),
        (["a.jsonl", "-o", "new", "--batch-tokens", "0"], "--batch-tokens must be a whole number, at least"),
        (["a.jsonl", "-o", "new", "--max-rejected", "1.5"], "--max-rejected must be a whole number, or a"),
        (["a.jsonl", "-o", "new", "--encoding", "x"], "--encoding must be one that Python knows"),
        (
            ["a.jsonl", "-o", "v.npz"],
            "--output must be a folder, and 'v.npz' is a file's name: leave .npz out, or",
        ),
        (["a.jsonl", "-o", "v.NPY"], "leave .NPY out, or give a .npy file"),
        (["a.jsonl", "-o", "new", "--shard", "2/2"], "--shard must be I/N with I from 0 to N - 1"),
        (["a.jsonl", "-o", "v.npy", "--shard", "1/2"], "--shard goes with a folder"),
    ],
)
def test_what_is_refused(run: Run, arguments: list[str], message: str) -> None:
    assert re.search(message, refused(run("embed", *arguments), 2))
    assert sorted(path.name for path in Path().iterdir()) == ["a.jsonl", "a.parquet", "a.txt"]


def test_a_folder_of_other_settings(run: Run) -> None:
    run("embed", "a.txt", "-o", "out")
    message = refused(run("embed", "a.txt", "-o", "out", "--layer", "3", "--storage", "float16"), 2)
    assert "layers is [6] there and [3] here; storage is 'float32' there" in message
    message = refused(run("embed", "a.jsonl", "-o", "out"), 2)
    assert "a.jsonl is not what it was when 'out' was begun: its format was 'text' and is 'jsonl'" in message
    assert "ModelNotFound" not in refused(run("embed", "a.txt", "-o", "out", "-m", "./nowhere"), 2)


def test_without_pyarrow(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "run: pip install pyarrow" in refused(run("embed", "a.txt", "-o", "new"), 1)
    assert "run: pip install pyarrow" in refused(run("embed", "a.parquet", "-o", "-"), 1)
    for name in ("a.txt", "a.jsonl"):
        for level, vectors in (("sentence", 3), ("word", 19)):
            code, out, _ = run("embed", name, "-o", "-", "--level", level)
            assert (code, len(out.splitlines())) == (0, vectors)
    code, _, _ = run("embed", "a.txt", "-o", "a.npy")  # which no Parquet is made for
    assert (code, np.load("a.npy").shape) == (0, (5, 384))
