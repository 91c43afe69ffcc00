"""`trace.plot` and `regard look --svg`: one head's exact weights in a file."""

import itertools
import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

import regard
from regard.cli import main
from regard.core.errors import InputError
from regard.tracing import Trace

TEXT = "The bank of the river."
NS = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def trace() -> Trace:
    return regard.load().trace(TEXT)


def _said(svg: str, tag: str = "path") -> dict[str, float]:
    found = [each.findtext(f"{NS}title") for each in ElementTree.fromstring(svg).iter(f"{NS}{tag}")]
    return {said.rpartition(": ")[0]: float(said.rpartition(": ")[2]) for said in found if said}


def test_a_picture_has_the_traces_weights(trace: Trace) -> None:
    picture = trace.plot(3, 5, form="map", query="bank")
    weights = trace.weights(3, 5, query="bank")[0]
    said = _said(picture.svg(), "rect")
    assert said["bank → river"] == pytest.approx(float(weights[trace.tokens.index("river")]), abs=5e-5)
    assert sum(said.values()) == pytest.approx(1, abs=1e-3)
    assert picture.queries == ("bank",)


def _brightness(colour: str) -> float:
    part = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722]) + 0.05


def test_numbers_can_be_read_on_every_shade(trace: Trace) -> None:
    picture = trace.plot(3, 5, form="map")
    size = len(picture.keys)
    svg = replace(picture, weights=np.linspace(0, 1, size * size).reshape(size, size)).svg()
    cells = [each for each in ElementTree.fromstring(svg).iter() if each.tag in (f"{NS}rect", f"{NS}text")]
    pairs = [
        sorted(_brightness(each.attrib["fill"]) for each in (cell, number))
        for cell, number in itertools.pairwise(cells)
        if cell.find(f"{NS}title") is not None
    ]
    assert len(pairs) == size * size
    assert min(light / dark for dark, light in pairs) >= 4.5


def test_without_special_tokens_nothing_is_rescaled(trace: Trace) -> None:
    picture = trace.plot(-1, -1, specials=False)
    assert picture.keys == ("the", "bank", "of", "the", "river", ".") or "[CLS]" not in picture.keys
    wanted = trace.weights(-1, -1)[1:-1, 1:-1].double().numpy()
    assert (picture.weights == wanted).all()
    assert picture.title.endswith("layer 5, head 11")
    assert picture._repr_svg_() == picture.svg()


def test_refuses_what_cannot_be_read(trace: Trace) -> None:
    long = regard.load().trace("bank " * 200)
    assert isinstance(long, Trace)
    with pytest.raises(InputError, match="got 202 and 202"):
        long.plot(0, 0)
    assert long.plot(0, 0, query=slice(5, 9), key=slice(0, 100)).weights.shape == (4, 100)
    with pytest.raises(InputError, match="layer"):
        trace.plot(6, 0)
    with pytest.raises(InputError, match="specials"):
        trace.plot(0, 0, query=0, specials=False)


def _run(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[object, str]:
    monkeypatch.setattr("sys.argv", ["regard", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    return ended.value.code, printed.out if ended.value.code in (0, None) else printed.err


def test_look_writes_pictures_and_no_page(
    tmp_path: Path, trace: Trace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {ending: tmp_path / f"head.{ending}" for ending in ("svg", "png", "pdf")}
    options = [part for ending, file in files.items() for part in (f"--{ending}", str(file))]
    code, out = _run(["look", TEXT, *options, "--layer", "3", "--head", "5", "--json"], monkeypatch, capsys)
    assert code == 0, out
    assert json.loads(out) == {"pictures": [str(file) for file in files.values()]}
    assert files["svg"].read_text(encoding="utf-8") == trace.plot(3, 5).svg()
    assert files["png"].read_bytes().startswith(b"\x89PNG")
    assert files["pdf"].read_bytes().startswith(b"%PDF")
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--svg", "a.png"], "ends in .svg"),
        (["--svg", "-"], "not a file to write to"),
        (["--svg", "a.svg", "--layer", "9"], "layer"),
        (["--svg", "a.svg", "--kind", "cross"], 'kind must be "encoder"'),
    ],
)
def test_look_says_what_is_wrong(
    options: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    code, shown = _run(["look", TEXT, *options], monkeypatch, capsys)
    assert code not in (0, None)
    assert said in " ".join(shown.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", ["lines", "map"])
def test_of_a_pair_each_token_says_whose_it_is(form: Literal["lines", "map"]) -> None:
    picture = regard.load().trace("the bank", "a bank").plot(0, 1, form=form, key=slice(1, 5))
    assert picture.queries == ("[CLS]", "the (A)", "bank (A)", "[SEP]", "a (B)", "bank (B)", "[SEP]")
    assert picture.keys == picture.queries[1:5]
    assert "bank (B) → the (A): " in picture.svg()
    assert regard.load().trace("the bank").plot(0, 1).keys == ("[CLS]", "the", "bank", "[SEP]")
