"""The page saves the picture that is on show, as SVG and as PNG."""

import re
import struct
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import expect

import regard
from integration import head_page
from regard.views import PageToken, weight_rows
from unit.views.conftest import encoder_record, write_page

OpenPage = Callable[..., BrowserPage]
NS = "{http://www.w3.org/2000/svg}"
TOKENS = ("river", "<b>&", "\x00\ufffe", "שלום", "bank")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    q, k = np.random.default_rng(0).standard_normal((2, 2, 3, 5, 4), dtype=np.float32) * 2
    tokens = tuple(PageToken(text=text, sequence=0) for text in TOKENS)
    record = encoder_record(text="t", model="m", tokens=tokens, q=q, k=k, scale=0.5)
    write_page(record, tmp_path / "page.html")
    np.save(
        tmp_path / "w.npy",
        [[weight_rows(each, head, np.arange(5)) for head in range(3)] for each in record.layers["encoder"]],
    )
    return tmp_path / "page.html"


def _saved(page: BrowserPage, ending: str, to: Path) -> tuple[str, bytes]:
    with page.expect_download() as caught:
        page.get_by_role("button", name=f"Save the picture as {ending}").click()
    caught.value.save_as(to)
    return caught.value.suggested_filename, to.read_bytes()


def _lines(svg: bytes) -> dict[str, ElementTree.Element]:
    paths = ElementTree.fromstring(svg).iter(f"{NS}path")
    return {title: each for each in paths if (title := each.findtext(f"{NS}title"))}


def test_svg_has_every_line_with_its_weight(open_page: OpenPage, path: Path, tmp_path: Path) -> None:
    page = open_page(path, "#layer=1&head=2")
    name, svg = _saved(page, "SVG", tmp_path / "a.svg")
    assert name == "layer-1-head-2.svg"
    weights = np.load(tmp_path / "w.npy")[1, 2]
    lines = _lines(svg)
    assert len(lines) == (weights >= 0.002).sum()
    names = ["river", "<b>&", "␀\ufffd", "שלום", "bank"]
    for title, line in lines.items():
        said, _, number = title.rpartition(": ")
        query, key = (names.index(each) for each in said.split(" → "))
        assert float(number) == pytest.approx(weights[query, key], abs=1e-3)
        assert float(line.get("stroke-width", "")) == pytest.approx(
            0.6 + 3.4 * weights[query, key] / weights.max(), abs=4e-3
        )
    root = ElementTree.fromstring(svg)
    assert {each.tag.removeprefix(NS) for each in root.iter()} == {"svg", "title", "rect", "path", "text"}
    assert [each.text for each in root.iter(f"{NS}text")].count("<b>&") == 2


def test_of_a_pinned_token_its_row_of_several_heads_all(
    open_page: OpenPage, path: Path, tmp_path: Path
) -> None:
    weights = np.load(tmp_path / "w.npy")
    page = open_page(path, "#layer=0&head=1&pin=key-0")
    _, svg = _saved(page, "SVG", tmp_path / "a.svg")
    assert all(title.partition(" → ")[2].startswith("river: ") for title in _lines(svg))
    assert len(_lines(svg)) == (weights[0, 1, :, 0] >= 0.002).sum()
    head_page.go(page, "#layer=0&head=1&also=0.1,1.0")
    name, svg = _saved(page, "SVG", tmp_path / "b.svg")
    assert name == "heads.svg"
    titles = list(_lines(svg))
    assert {title[:4] for title in titles} == {"0.1 ", "1.0 "}
    assert len(titles) == sum((weights[layer, head] >= 0.002).sum() for layer, head in ((0, 1), (1, 0)))


def test_png_has_the_same_size_twice_over(open_page: OpenPage, path: Path, tmp_path: Path) -> None:
    page = open_page(path, "#theme=dark")
    _, svg = _saved(page, "SVG", tmp_path / "a.svg")
    name, png = _saved(page, "PNG", tmp_path / "a.png")
    assert name == "layer-0-head-0.png"
    root = ElementTree.fromstring(svg)
    size = struct.unpack(">II", png[16:24])
    assert size == (2 * float(root.get("width", "")), 2 * float(root.get("height", "")))
    assert root.find(f"{NS}rect").get("fill") == "#171c24"  # type: ignore[union-attr]


def test_of_a_pair_each_token_says_whose_it_is(open_page: OpenPage, tmp_path: Path) -> None:
    write_page(head_page.record(pair=True), tmp_path / "page.html")
    svg = _saved(open_page(tmp_path / "page.html", "#view=heads"), "SVG", tmp_path / "a.svg")[1]
    texts = [each.text for each in ElementTree.fromstring(svg).iter(f"{NS}text")]
    wanted = ["[CLS]", "time (A)", "fl (A)", "##ies (A)", "[SEP]", "fruit (B)", "bananas (B)", "[SEP]"]
    assert texts[-16:] == 2 * wanted
    ends = {end for title in _lines(svg) for end in title.rpartition(": ")[0].split(" → ")}
    assert ends == set(wanted)


def test_a_title_is_whole_however_short_the_words(open_page: OpenPage, tmp_path: Path) -> None:
    rows = np.full((1, 1, 2, 2), 0.5)
    name = "sentence-transformers/a-model-with-a-long-name-that-goes-on"
    regard.view(rows, ["a", "b"], name=name).write(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", "#view=heads")
    _, svg = _saved(page, "SVG", tmp_path / "a.svg")
    page.set_content(svg.decode().partition("?>")[2])
    title = page.locator("text", has_text="layer 0, head 0")
    expect(title).to_have_text(f"{name}: layer 0, head 0")
    assert title.evaluate("e => e.getBBox().x + e.getBBox().width <= e.ownerSVGElement.width.baseVal.value")


# Of each page: the views, words in their pictures, and the shapes that these have several of.
PICTURES = {
    "movement": (
        ("movement", "Distances between the sentences", "circle"),
        ("neuron", "weight", "image"),
        ("positions", "positions", "image"),
        ("model", "0.0", "image"),
    ),
    "text": (("story", "The text is cut into tokens", "rect"),),
    "difference": (("difference", "Likeness", "rect"),),
}


@pytest.mark.parametrize("page_name", PICTURES)
def test_every_view_saves_what_it_would_print(
    open_page: OpenPage, compared_pages: dict[str, Path], tmp_path: Path, page_name: str
) -> None:
    page = open_page(compared_pages[page_name])
    for view, words, shapes in PICTURES[page_name]:
        head_page.go(page, f"#view={view}&theme=dark")
        name, svg = _saved(page, "SVG", tmp_path / "a.svg")
        assert name == f"{view}.svg"
        root = ElementTree.fromstring(svg)
        texts = " ".join(each.text or "" for each in root.iter(f"{NS}text"))
        assert words in texts
        assert len(list(root.iter(f"{NS}{shapes}"))) > 1
        if view == "movement":  # the PNG is made of the SVG
            name, png = _saved(page, "PNG", tmp_path / "a.png")
            assert name == f"{view}.png"
            size = 2 * int(root.get("width", "")), 2 * int(root.get("height", ""))
            assert struct.unpack(">II", png[16:24]) == size
        assert "printing" not in str(page.locator(".regard").get_attribute("class"))


def _drawn(svg: str) -> dict[tuple[object, ...], tuple[str, list[float]]]:
    """Each shape by what it is and where it stands: what it says but for numbers, and all of its numbers."""
    shapes: dict[tuple[object, ...], tuple[str, list[float]]] = {}
    for each in ElementTree.fromstring(svg.encode("utf-8")).iter():
        tag = each.tag.removeprefix(NS)
        if tag not in ("text", "path", "rect"):
            continue
        said = each.findtext(f"{NS}title") or each.text or ""
        colour = each.get("fill") if tag != "path" else each.get("stroke")
        numbers = [float(number) for number in re.findall(r"-?\d*\.\d+|-?\d+", said)]
        numbers += [int(str(colour)[at : at + 2], 16) / 100 for at in (1, 3, 5)]
        numbers += [float(each.get(name, 1)) for name in ("font-size", "stroke-width", "stroke-opacity")]
        places = re.findall(
            r"-?[\d.]+", " ".join(each.get(name, "") for name in ("x", "y", "d", "transform"))
        )
        place = tuple(round(float(number)) for number in places)
        if (place != (0, 0) and tag != "rect") or each.find(f"{NS}title") is not None:
            shapes[tag, place] = re.sub(r"[\d.]+", "", said), numbers
    return shapes


def test_python_draws_the_same_picture(open_page: OpenPage, tmp_path: Path) -> None:
    trace = regard.load().trace("The bank of the river 日本.")
    trace.write_page(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html")
    forms: tuple[Literal["lines", "map"], ...] = ("lines", "map")
    for form in forms:
        head_page.go(page, f"#view=heads&layer=3&head=5&form={form}")
        ours = _drawn(_saved(page, "SVG", tmp_path / "a.svg")[1].decode())
        python = _drawn(trace.plot(3, 5, form=form).svg())
        assert len(python) > 40
        assert ours.keys() == python.keys()
        for place, (said, numbers) in python.items():
            assert ours[place][0] == said
            assert ours[place][1] == pytest.approx(numbers, abs=0.02), place
