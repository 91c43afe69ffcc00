"""`regard index`, `find` and `count`: what they print and write, what they refuse, and how they end."""

import csv
import json
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from integration import test_cli
from integration.forked import Forked, wait_for
from integration.test_cli import Run, columns, refused
from regard.concordance import Concordance, Reading, build_index
from regard.concordance._store import FILE
from unit.concordance.conftest import write_rows
from unit.concordance.test_building import content

run = test_cli.run


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("cli")
    build_index([write_rows(folder / "rows.jsonl")], folder / "index", Reading(date="date", meta=("genre",)))
    return str(folder / "index")


def test_index(run: Run, tmp_path: Path) -> None:
    corpus = write_rows(tmp_path / "rows.jsonl")
    with corpus.open("a") as file:
        file.write("{\n" * 12)
    command = (
        "index",
        str(corpus),
        "-o",
        str(tmp_path / "index"),
        "--meta",
        "genre",
        "--date-column",
        "date",
    )
    done = run(*command)
    assert (done.code, done.out[:21]) == (0, "6 texts, 53 words in ")
    told = done.err.splitlines()
    assert told[0].startswith("regard: line 7 of rows.jsonl is put aside: the line is not valid JSON")
    assert (len(told), told[-1]) == (11, "regard: 2 more are put aside, 12 in all")
    done = run(*command, "--json")
    nothing = {name: [] for name in ("put_aside", "undated", "left_out")}
    assert json.loads(done.out) == {"texts": 6, "words": 53, "fields": ["genre"], **nothing}
    # Without --meta all columns are kept, and what is not is said.
    table = tmp_path / "table.csv"
    table.write_text("text,source,html\na bank,x," + 1001 * "x" + "\n")
    done = run("index", str(table), "-o", str(tmp_path / "all"))
    assert done.out.endswith("; fields: meta.source\n")
    assert done.err.splitlines()[-1] == (
        "regard: column 'html' of table.csv is not kept as a whole: without 1 value of more than 1,000 "
        "characters, unless --meta names it"
    )
    assert "fields" not in run("index", str(table), "-o", str(tmp_path / "none"), "--no-meta").out
    vertical = run(
        "index",
        "-",
        "-o",
        str(tmp_path / "v"),
        "--format",
        "vrt",
        "--vrt-columns",
        "pos,word",
        stdin=b"NN\tbank\n",
    )
    assert vertical.out.startswith("1 text, 1 word in ")


def test_find(run: Run, index: str, tmp_path: Path) -> None:
    assert run("find", index, "bank", "-k", "2") == run("find", index, "--word", "bank", "-k", "2")
    assert run("find", index, "bnk?", "-k", "1").code == 2
    assert run("find", index, '"the" "BANK"', "--case").code == 2
    done = run("find", index, "--word", "bank", "--sort", "L1,R1", "--where", "genre=news", "-k", "2")
    assert done == (
        0,
        "2 of 3 uses, sorted by L1, R1; 100,000.0 per million words\n\n"
        "11                              The bank lent money to the Bank of England.\n"
        "43  hey gave it up; she gave up the bank loan.\n",
        "",
    )
    for ending in ("csv", "jsonl", "parquet"):
        path = tmp_path / f"all.{ending}"
        assert run("find", index, "-w", "bank", "-o", str(path)).out == f"6 of 6 uses in {path}\n"
    with (tmp_path / "all.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert (rows[0]["left"], rows[0]["node"], rows[0]["right"]) == (
        "She sat on the ",
        "bank",
        " of the river.",
    )
    assert rows == [
        {name: str(value) if value is not None else "" for name, value in json.loads(line).items()}
        for line in (tmp_path / "all.jsonl").read_text().splitlines()
    ]
    document = json.loads(run("find", index, "-w", "bank", "--sample", "2", "--json").out)
    assert (document["total"], len(document["lines"])) == (2, 2)


def test_find_by_meaning(run: Run, index: str) -> None:
    options = ("--in", "They walked along the *bank* of the stream.", "--where", "genre!=")
    done = run("find", index, *options, "-k", "3", "--why", "--json")
    lines = json.loads(done.out)["lines"]
    assert {line["place"] for line in lines[:2]} == {"line 1", "line 5"}
    assert {"river", "sat"} & {each["word"] for line in lines[:2] for each in line["reasons"]}
    assert [line["similarity"] for line in lines] == sorted(
        (line["similarity"] for line in lines), reverse=True
    )
    shown = run(
        "find", index, *options, "-k", "2", "--more", str(lines[1]["use"]), "--less", str(lines[2]["use"])
    )
    assert "because" not in shown.out
    assert columns(shown.out) <= 80
    assert shown.out.splitlines()[0].startswith("2 of 6 uses, the likest in meaning first; ")


def test_saved_conditions(run: Run, index: str) -> None:
    done = run("find", index, "--save-where", "late", "--where", "date>=2000")
    assert done == (0, "", "regard: --where @late stands for date>=2000 from now on\n")
    assert run("find", index, "-w", "bank", "--where", "@late").out.startswith("2 of 2 uses")


def test_count(run: Run, index: str, tmp_path: Path) -> None:
    assert run("count", index, "-k", "1").out.splitlines() == [
        "53 words",
        "",
        "form  count  per million",
        "the       8      150,943",
        "",
        "26 more rows",
    ]
    found = json.loads(run("count", index, "-w", "bank", "--by", "genre", "--json").out)
    assert (found["total"], len(found["rows"]), round(found["dispersion"], 2)) == (3, 3, 0.07)
    keys = run("count", index, "--where", "genre=news", "--against", "rest", "-k", "2")
    assert keys.out.startswith("genre=news against rest: 30 and 23 words\n")
    near = run(
        "count", index, "-w", "bank", "--collocates", "--span", "0,1", "-o", str(tmp_path / "near.csv")
    )
    assert (
        (tmp_path / "near.csv")
        .read_text()
        .startswith("form,left,right,count,other,log_ratio,g2,p,log_dice,mi,mi3,t\n")
    )
    assert near.out == f"27 of 27 rows in {tmp_path / 'near.csv'}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("find", "INDEX"), "give WORD, or --in with the word marked"),
        (("find", "INDEX", "-w", "bnak"), "WORD must be in the corpus; 'bnak' is not. Did you mean 'bank'"),
        (("find", "INDEX", "-w", "bank", "--why"), "--why goes with --in or --more"),
        (
            ("find", "INDEX", "-w", "bank", "--any-word", "--more", "198822"),
            "--more must be a whole number, from 0 to ",
        ),
        (("find", "INDEX", "-w", "bank", "--more=-1"), "--more must be a whole number, from 0 to "),
        (("find", "INDEX", "--in", "A *bank*.", "--sort", "L1"), "give --in or --sort, not both"),
        (("find", "INDEX", "--in", "A bank, a bank.", "-w", "bank"), "is there 2 times. Mark the one meant"),
        (("find", "INDEX", "-w", "bank", "--where", "genr=x"), "--where must name a field"),
        (("find", "INDEX", "-w", "bank", "-k", "0"), "-k must be a whole number, at least 1; got 0."),
        (
            ("find", "INDEX", "-w", "bank", "-o", "a.txt"),
            "--output must end in .csv, .tsv, .json, .jsonl or .parquet",
        ),
        (("find", "INDEX", "bank", "-w", "bank"), "give WORD or --word, not both"),
        (("count", "INDEX", '"bank" within <s/>'), "is not understood from 'within <s/>' on"),
        (("find", "nowhere", "-w", "bank"), "INDEX must be a folder that `regard index` has made"),
        (("find", "INDEX", "--save-where", "a b", "--where", "genre=x"), "name must be of letters"),
        (("count", "INDEX", "--collocates"), "--collocates goes with WORD"),
        (("count", "INDEX", "--span", "2"), "--span goes with --collocates"),
        (("count", "INDEX", "-w", "bank", "--collocates", "--span", "x"), "--span must be a number of words"),
        (("count", "INDEX", "--lemmas", "--by", "pos"), "give --by or --lemmas, not both"),
        (("count", "INDEX", "--lemmas"), "--by must be form: the index has no lemmas"),
        (("count", "INDEX", "--against", "rest"), "--against must be conditions"),
        (("index", "missing.txt", "-o", "new"), "missing.txt cannot be read"),
        (("index", "corpus.xml", "-o", "new"), "CORPUS... must be text, JSON lines"),
        (
            ("index", "corpus.xml", "-o", "new", "--unit", "word"),
            "--unit must be one of line, paragraph, file",
        ),
        (("index", "corpus.xml", "-o", "new", "--vrt-columns", "tag"), "--vrt-columns must be one of"),
    ],
)
def test_what_is_refused(
    run: Run,
    index: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("corpus.xml").write_text("<TEI/>")
    assert message in refused(run(*(index if word == "INDEX" else word for word in words)), 2)
    assert [each.name for each in tmp_path.iterdir()] == ["corpus.xml"]


def test_killed_stopped_and_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By SIGKILL at three instants, then by Ctrl-C."""
    corpus, index = tmp_path / "corpus.txt", tmp_path / "index"
    corpus.write_text("".join(f"Bank {n} of {n * 7}.\n" for n in range(2600)))
    command = ("index", str(corpus), "-o", str(index))
    program = "from regard.concordance import _building\n_building._TEXTS_AT_ONCE = 800\nmain()"

    def texts() -> int:
        if not (index / FILE).exists():
            return -1
        with closing(sqlite3.connect(index / FILE)) as db:
            return int(db.execute("SELECT count(*) FROM text").fetchone()[0])

    for wanted in (-1, 800, 1600, 2400):
        process = Forked(*command, program=program)
        wait_for(lambda wanted=wanted: index.exists() and texts() >= wanted)
        stop = signal.SIGINT if wanted == 2400 else signal.SIGKILL
        process.send_signal(stop)
        code, _, err = process.end()
        if stop == signal.SIGINT and code:
            assert (code, err) == (130, "regard: stopped; the same command goes on where it was\n")
        assert texts() % 800 == 0 or texts() in (-1, 2600)
    code, out, err = Forked(*command, program=program).end()
    assert (code, out[:26], err) == (0, "2,600 texts, 10,400 words ", "")
    monkeypatch.setattr("regard.concordance._building._TEXTS_AT_ONCE", 800)
    build_index([corpus], tmp_path / "whole")
    assert content(index) == content(tmp_path / "whole")


def test_killed_while_vectors_are_computed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"The bank of river {n}.\n" for n in range(270)))
    index = tmp_path / "index"
    build_index([tmp_path / "a.txt"], index)
    store = Concordance(index)._store

    def kept() -> int:
        return int(store.one("SELECT count(*) FROM vector"))

    command = ("find", str(index), "--word", "bank", "--in", "A *bank*.", "-k", "1", "--json")
    program = "from regard.concordance import _vectors\n_vectors._TEXTS_AT_ONCE = 100\nmain()"
    process = Forked(*command, program=program)
    wait_for(kept)
    process.send_signal(signal.SIGKILL)
    assert process.end()[0] == -signal.SIGKILL
    assert kept() in (100, 200)
    assert json.loads(Forked(*command).end()[1])["total"] == 270
    assert kept() == 270
    assert store.one("PRAGMA integrity_check") == "ok"


def test_words_do_not_wait_for_torch(index: str) -> None:
    script = (
        "import sys; from regard.cli import main\n"
        f"sys.argv = ['regard', 'find', {index!r}, '--word', 'bank', '-k', '1']\n"
        "try: main()\n"
        "except SystemExit as end: print('torch' in sys.modules, end.code)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False 0", done.stderr
