"""Models of types that no family is for, on the command line: transformers runs them, and a line says so."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from integration import test_cli
from integration.test_cli import Run, refused
from lens_models import OTHERS, saved
from tolerances import FP32_OF_LARGEST, assert_close_to_largest
from unit.views.conftest import facts_of

run = test_cli.run
TEXT, IDS = "w3 w5 w7 w5", torch.tensor([[3, 5, 7, 5]])
DECODERS = ("gpt_neox", "olmo2", "gpt_oss")


def note(name: str) -> str:
    return f"regard: note: {name} is no family of regard's own: transformers runs it, seen through the lens\n"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, Any]]:
    folder, found = tmp_path_factory.mktemp("models"), {}
    for name, make in OTHERS.items():
        made = make()
        found[name] = (str(saved(folder / name, made)), made)
    return found


@pytest.mark.parametrize("name", DECODERS)
def test_it_is_the_model_of_transformers(
    run: Run, models: dict[str, tuple[str, Any]], tmp_path: Path, name: str
) -> None:
    folder, made = models[name]
    with torch.no_grad():
        written = made.generate(IDS, max_new_tokens=5, do_sample=False, eos_token_id=None)[0, 4:]
        states = made(IDS, output_hidden_states=True).hidden_states
    done = run("generate", TEXT, "-m", folder, "--max", "5", "--min", "5")
    assert (done.code, done.out.split(), done.err) == (0, [f"w{each}" for each in written], note(name))

    (tmp_path / "texts").write_text(TEXT)
    done = run("embed", str(tmp_path / "texts"), "-m", folder, "-o", str(tmp_path / "v.npy"))
    assert (done.code, done.err) == (0, note(name))
    last = states[-1][0, -1].numpy()  # of a model that writes on, the last token has seen the others
    assert_close_to_largest(np.load(tmp_path / "v.npy")[0], last, FP32_OF_LARGEST)


@pytest.mark.parametrize(
    "command",
    [
        ["look", TEXT, "--no-open", "-o", "page.html"],
        ["look", TEXT, "--no-open", "--layer", "1", "--head", "2", "--svg", "picture.svg"],
        ["compare", "w3 w5", "w7 w5", "--word", "w5"],
        ["explain", TEXT, "--word", "w7", "-l", "1"],
        ["heads", TEXT],
        ["embed", "texts", "--level", "word", "-o", "words"],
        ["models", "show"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
@pytest.mark.parametrize("name", ["gpt_neox", "camembert"])
def test_every_command_takes_it_and_says_so(
    run: Run,
    models: dict[str, tuple[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    command: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("texts").write_text(f"{TEXT}\n")
    folder, _ = models[name]
    done = run(*command, *([folder] if command[0] == "models" else ["-m", folder]))
    assert (done.code, done.err) == (0, note(name))
    assert done.out
    if Path("page.html").exists():
        assert (
            facts_of(Path("page.html").read_text())["sides"][{"gpt_neox": "decoder"}.get(name, "encoder")][
                "text"
            ]
            == TEXT
        )


def test_a_word_is_found_in_an_index_by_what_it_means(
    run: Run, models: dict[str, tuple[str, Any]], tmp_path: Path
) -> None:
    (tmp_path / "texts.txt").write_text(f"{TEXT}\nw9 w5\n")
    assert run("index", str(tmp_path / "texts.txt"), "-o", str(tmp_path / "index")).code == 0
    found = ["find", str(tmp_path / "index"), "--in", "w9 *w5*", "--json"]
    done = run(*found, "-m", models["olmo2"][0])
    assert (done.code, done.err) == (0, note("olmo2"))
    assert json.loads(done.out)


def test_what_no_lens_takes(run: Run, models: dict[str, tuple[str, Any]]) -> None:
    told = refused(run("heads", TEXT, "-m", models["mamba"][0]), 1)
    assert "MambaForCausalLM has no attention" in told
