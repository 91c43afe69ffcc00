"""Every view on paper: as many pages as it needs, text on each, nothing cut off, no switch to be pressed."""

import re
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import expect

from integration import head_page
from unit.views.conftest import write_page

OpenPage = Callable[..., BrowserPage]

# The pages of paper that each takes, and the least number of pieces of text on all of them.
VIEWS = {
    "movement": ("movement", 1, 40),
    "heads": ("movement", 1, 25),
    "story": ("text", 1, 20),
    "model": ("movement", 1, 60),
    "neuron": ("movement", 2, 60),
    "positions": ("movement", 1, 10),
    "difference": ("difference", 1, 40),
}
MARGINS = dict.fromkeys(("top", "bottom", "left", "right"), "1cm")


def _printed(page: BrowserPage) -> list[int]:
    """How many pieces of text each page of paper has, by the operators that show them."""
    pdf = page.pdf(format="A4", margin=MARGINS)
    objects = dict(re.findall(rb"\n(\d+) 0 obj\n(.*?)\nendobj", pdf, re.DOTALL))
    sheets = [each for each in objects.values() if re.search(rb"/Type /Page\b", each)]

    def pieces(of: bytes) -> int:
        stream = of.partition(b"stream\n")[2].rpartition(b"\nendstream")[0]
        return len(re.findall(rb"\bTj|\bTJ", zlib.decompress(stream)))

    def forms(of: bytes) -> list[bytes]:
        """What is drawn as a group by itself, and the groups in it."""
        named = (objects[each] for each in re.findall(rb"/X\d+ (\d+) 0 R", of.partition(b"stream\n")[0]))
        found = [each for each in named if b"/Subtype /Form" in each]
        return [*found, *(inner for each in found for inner in forms(each))]

    counts = []
    for sheet in sheets:
        content = re.search(rb"/Contents (\d+) 0 R", sheet)
        assert content
        counts.append(sum(map(pieces, [objects[content[1]], *forms(sheet)])))
    return counts


# What reaches beyond the sheet, or beyond the picture that it is written in, once all is laid out for paper.
_CUT = """() => {
    const root = document.querySelector(".regard").getBoundingClientRect();
    const beyond = (element, box) => {
        const { left, right, width } = element.getBoundingClientRect();
        return width > 0 && (left < box.left - 1 || right > box.right + 1);
    };
    const all = name => [...document.querySelectorAll(name)];
    const shown = each => each.checkVisibility() && !each.closest(".sr-only");
    return [
        ...all(".regard *:not(svg *)").filter(each => shown(each) && beyond(each, root)),
        ...all("svg text").filter(each => beyond(each, each.closest("svg").getBoundingClientRect())),
    ].map(each => `${each.tagName} ${each.textContent.slice(0, 30)}`);
}"""


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_on_paper(open_page: OpenPage, compared_pages: dict[str, Path], view: str) -> None:
    name, sheets, texts = VIEWS[view]
    page = open_page(
        compared_pages[name], f"#view={view}&theme=dark&pin=query-1", viewport={"width": 1280, "height": 800}
    )
    expect(page.get_by_role("tabpanel")).to_be_visible()
    counts = _printed(page)
    assert len(counts) == sheets
    assert min(counts) > 3
    assert sum(counts) > texts
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.evaluate(_CUT) == []
    controls = page.locator("button, input, select, summary").filter(visible=True)
    # Lists of heads and weights are made of buttons, which print as lines of text.
    left = [
        each
        for each in controls.all()
        if not each.evaluate("e => e.closest('.top, .strongest-heads, .story')")
    ]
    assert [each.evaluate("e => e.outerHTML") for each in left] == []


@pytest.mark.parametrize(("tokens", "form", "most"), [(60, "lines", 4), (127, "lines", 1), (127, "map", 1)])
def test_a_long_text_is_printed_as_text(
    open_page: OpenPage, tmp_path: Path, tokens: int, form: str, most: int
) -> None:
    write_page(head_page.record(tokens=tokens), tmp_path / "page.html")
    fragment = f"#form={form}&specials=shown"
    page = open_page(tmp_path / "page.html", fragment, viewport={"width": 1280, "height": 800})
    counts = _printed(page)
    assert len(counts) <= most
    assert min(counts) > 3
    assert sum(counts) > (2 * tokens if tokens == 60 else tokens)  # every word; as lines, on both sides
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    expect(page.locator(".forms input:checked")).to_have_value(form)
    assert page.locator(".canvases, .matrix-canvases").first.is_visible()
