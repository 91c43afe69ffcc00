"""What the README and the docs show is what happens."""

import csv
import pkgutil
import re
import shlex
from pathlib import Path

import pytest

import regard
from regard.checkpoints import DEFAULT_DECODER
from regard.cli import main
from regard.models import FAMILIES
from tolerances import FP32_OF_LARGEST, FP64, PAGE, PARITY_FP32, WEIGHTS
from unit.models.folders import write_chat

pytestmark = pytest.mark.usefixtures("loaded_once")

ROOT = Path(__file__).parents[2]


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / document).read_text(encoding="utf-8"), re.DOTALL)


def named(folder: str) -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*.md"))


# These pages show what each block prints. Others with code have a file of tests each; the course has its own.
DOCUMENTS = named("docs/learn/documents")
PRINTING = [
    *DOCUMENTS,
    *(
        f"docs/ideas/{name}.md"
        for name in ("exactness", "masks", "not_explanation", "numbers", "queries_and_keys")
    ),
    "docs/howto/why.md",
]
SLOW = {"docs/learn/findings.md"}  # a decoder of 135 million weights, run some thousand times
RUNNING = [
    pytest.param(page, marks=[pytest.mark.slow] if page in SLOW else [])
    for page in ("README.md", *named("docs"))
    if page not in PRINTING
    and "docs/learn/course" not in page
    and blocks(page, "python")
    and not (ROOT / f"tests/integration/test_docs_{Path(page).stem}.py").exists()
]


@pytest.mark.parametrize("document", RUNNING)
def test_python_runs(document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = blocks(document, "python")
    exec(compile("\n".join(code), document, "exec"), {})


@pytest.mark.parametrize("document", PRINTING)
def test_each_block_prints_what_stands_below_it(document: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = list(zip(blocks(document, "python"), blocks(document, "text"), strict=True))
    assert len(DOCUMENTS) == 5
    assert shown
    names: dict[str, object] = {}
    for code, wanted in shown:
        exec(compile(code, document, "exec"), names)
        assert capsys.readouterr().out == wanted


def test_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the README and of the page of commands, each once."""
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("webbrowser.open", lambda address: True)
    found = [
        block for document in ("README.md", "docs/howto/command_line.md") for block in blocks(document, "sh")
    ]
    shell = "".join(block for block in found if " -m " not in block and "train" not in block)
    written = re.findall(r'printf "%s\\n" (.*) > (\S+)', shell)
    for lines, name in written:
        Path(name).write_text("\n".join(shlex.split(lines)), encoding="utf-8")
    commands = [
        shlex.split(each, comments=True)
        for each in re.findall(r"^regard .*", shell.replace("\\\n", " "), re.MULTILINE)
    ]
    once = [command for place, command in enumerate(commands) if command not in commands[:place]]
    assert len(once) >= 10
    for command in once:
        monkeypatch.setattr("sys.argv", command)
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0, command
    assert {"texts.txt", "vectors", "live.html"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize("document", ["docs/howto/decoding.md"])
def test_commands_that_write_are_understood(
    document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Up to the models that are not here; with a tiny one in the place of the default one they run."""
    monkeypatch.chdir(tmp_path)
    load, tiny = regard.load, regard.load(write_chat(tmp_path / "tiny"))
    monkeypatch.setattr("regard.api.load", lambda name: tiny if name == DEFAULT_DECODER else load(name))
    (tmp_path / "texts.en").write_text("a river bank\n", encoding="utf-8")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    lines = "".join(block for block in blocks(document, "sh") if "regard generate" in block).splitlines()
    assert len(lines) >= 3
    for line in lines:
        command = line.partition(" < ")[0]
        words = shlex.split(command, comments=True)
        monkeypatch.setattr("sys.argv", words)
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        if "-m" in words:
            assert repr(words[words.index("-m") + 1]) in told.err, command
        else:
            assert ended.value.code == 0, command
            assert told.out.strip(), command


def test_the_comparison_in_the_readme(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    [shell] = [block for block in blocks("README.md", "sh") if "regard compare" in block]
    texts = re.findall(r'"([^"]+bank\.)"', shell[shell.index("regard compare") :])
    Console(width=80).print(regard.load().compare(texts, "bank"))
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    [shown] = blocks("README.md", "text")
    for line in shown.splitlines():
        assert line in printed


@pytest.mark.parametrize("document", ["docs/learn/steps.md", *DOCUMENTS])
def test_the_names_in_the_steps_are_there(document: str) -> None:
    steps = (ROOT / document).read_text(encoding="utf-8")
    names = set(re.findall(r"`(regard(?:\.\w+)+)", steps))
    assert len(names) >= 3
    for name in sorted(names):
        pkgutil.resolve_name(name)


def test_links_lead_somewhere() -> None:
    documents = [str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")]
    assert len(documents) > 5
    for document in ("README.md", "CONTRIBUTING.md", "benchmarks/results/README.md", *documents):
        text = (ROOT / document).read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert ((ROOT / document).parent / target).exists(), f"{document}: {target}"


def test_the_lens_takes_as_many_architectures_as_pages_say() -> None:
    table = (ROOT / "docs/howto/lens.md").read_text(encoding="utf-8")
    words = ("seen", "seen, text only", "refused")
    found = [int(re.findall(rf"\| {word} \| (\d+) \|", table)[0]) for word in words]
    with (ROOT / "docs/howto/lens.csv").open(encoding="utf-8") as file:
        rows = {row["architecture"]: row["result"] for row in csv.DictReader(file)}
    assert found == [list(rows.values()).count(word) for word in words]
    for name, result in (("llama", "seen"), ("t5", "seen"), ("llava", words[1]), ("whisper", words[1])):
        assert rows[name] == result
    for page in ("README.md", "docs/ideas/limits.md", "docs/ideas/exactness.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        for number in (found[0], found[1], sum(found)):
            assert re.search(rf"\b{number}\b", text), (page, number)


def test_the_numerical_guide_has_the_tolerances_of_the_tests() -> None:
    table = (ROOT / "docs/ideas/numbers.md").read_text(encoding="utf-8")
    for tolerance in (FP32_OF_LARGEST, PARITY_FP32, WEIGHTS, PAGE, FP64):
        assert re.search(rf"\| {tolerance:.0e}\b".replace("e-0", "e-"), table), tolerance


def test_the_version_is_the_same_everywhere() -> None:
    assert f"\nversion: {regard.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(
        rf"^## \[(?:Unreleased|{re.escape(regard.__version__)})\]", (ROOT / "CHANGELOG.md").read_text(), re.M
    )


def test_files_that_pages_name_are_there() -> None:
    pages = [page.read_text("utf-8") for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))]
    name = r"`((?:tests|benchmarks|scripts|docs)/[\w/.]+)`"
    named = {found for page in pages for found in re.findall(name, page)}
    assert len(named) > 20
    assert not [each for each in sorted(named) if not (ROOT / each).exists()]


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*/*.md"):
        assert f"({page.relative_to(ROOT / 'docs')})" in index, page


def test_every_family_is_in_the_docs() -> None:
    table = (ROOT / "docs/howto/models.md").read_text(encoding="utf-8")
    for name in FAMILIES:
        assert f"`{name}`" in table, name
