"""What is passed on from the front door: its address, its picture, and itself in a frame; and its lines."""

import base64
import io
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, ViewportSize, expect
from playwright.sync_api import Page as BrowserPage

import regard
from integration import head_page
from integration.live_models import live_model
from integration.served import Served
from regard.views import Page

OpenPage = Callable[..., BrowserPage]

BANK = "The man who fishes on the river bank keeps his money in a bank."
DESK: ViewportSize = {"width": 1280, "height": 800}
WALL: ViewportSize = {"width": 1920, "height": 1080}
PHONE: ViewportSize = {"width": 390, "height": 844}
MAY_COPY = {"permissions": ["clipboard-read", "clipboard-write"]}

_COPIED = """async () => {
    const [item] = await navigator.clipboard.read();
    const bytes = new Uint8Array(await (await item.getType("image/png")).arrayBuffer());
    return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}"""


@pytest.fixture(scope="module")
def written() -> Page:
    return regard.load().trace(BANK).page()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory, written: Page) -> Path:
    path = tmp_path_factory.mktemp("share") / "bank.html"
    written.write(path)
    return path


def _said(page: BrowserPage) -> str:
    return page.locator(".door-said").inner_text()


def _lines(page: BrowserPage) -> list[str]:
    """The words of each line."""
    tops = page.locator(".door > .door-sentence .door-word").evaluate_all(
        "all => all.map((e) => [e.textContent, Math.round(e.getBoundingClientRect().top)])"
    )
    return [" ".join(word for word, top in tops if top == line) for line in sorted({top for _, top in tops})]


def test_a_copied_link_opens_the_same(open_page: OpenPage, path: Path) -> None:
    page = open_page(path, start=True, **MAY_COPY)
    page.locator(".door-word", has_text="river").click()
    page.get_by_role("button", name="And the other heads?").click()
    page.locator(".door-card").last.click()
    page.get_by_role("button", name="Copy link").click()
    expect(page.locator(".door-pass")).to_contain_text("Copied.")
    link = page.evaluate("navigator.clipboard.readText()")
    other = open_page(path, link.removeprefix(path.as_uri()), start=True)
    assert _said(other) == _said(page)
    assert head_page.state(other)["asks"] == ["others"]
    assert head_page.state(other)["head"] == head_page.state(page)["head"]


def test_what_stands_in_the_file_is_the_remark(open_page: OpenPage, path: Path, written: Page) -> None:
    page = open_page(path, start=True)
    described = page.locator("meta[name=description]").get_attribute("content")
    assert described == written.preview.said
    assert _said(page).replace("\u00a0", " ").startswith(written.preview.said[:-1])
    assert page.title() == page.locator("meta[property='og:title']").get_attribute("content")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_copied_picture_is_of_what_is_on_show(open_page: OpenPage, path: Path, scheme: str) -> None:
    page = open_page(path, start=True, color_scheme=scheme, **MAY_COPY)
    page.get_by_role("button", name="Copy picture").click()
    expect(page.locator(".door-pass")).to_contain_text("Copied.")
    copied = page.evaluate(_COPIED)
    drawn = Image.open(io.BytesIO(base64.b64decode(copied))).convert("RGB")
    assert drawn.width > 2000
    ground = drawn.getpixel((5, 5))
    assert isinstance(ground, tuple)
    assert (sum(ground) > 600) == (scheme == "light")
    # In it are the sentence with its arcs, and the remark: the blue of what looks is in both halves.
    colour = page.evaluate("getComputedStyle(document.querySelector('.door-from')).color")
    blue = np.array([int(each) for each in re.findall(r"\d+", colour)][:3])
    pixels = np.asarray(drawn).astype(int)
    near = np.abs(pixels - blue).sum(-1) < 30
    rows = np.flatnonzero(near.any(axis=1))
    assert rows.min() < 0.6 * drawn.height < 0.7 * drawn.height < rows.max()
    assert near.sum() > 2000
    assert page.locator(".door-picture").count() == 0  # nothing of it is left in the page
    page.locator(".door-word", has_text="river").click()
    page.get_by_role("button", name="Copy picture").click()
    page.wait_for_function(f"before => ({_COPIED})().then((now) => now !== before)", arg=copied, polling=200)


def test_where_a_picture_cannot_be_copied_it_is_saved(open_page: OpenPage, path: Path) -> None:
    page = open_page(path, start=True, viewport=PHONE)
    with page.expect_download() as saved:
        page.get_by_role("button", name="Copy picture").click()
    assert saved.value.suggested_filename == "regard.png"
    with Image.open(saved.value.path()) as drawn:
        assert drawn.width > 2000  # of its own width, not the phone's
    expect(page.locator(".door-pass")).to_contain_text(
        "Saved: the browser does not let this page copy a picture."
    )


@pytest.mark.parametrize("keys", [(), ("key",)])
def test_a_link_to_a_server_has_the_sentence(browser: Browser, tmp_path: Path, keys: tuple[str, ...]) -> None:
    live_model(tmp_path / "bert", "bert")
    text = "the man on a money bank."
    server = Served(tmp_path / "bert", keys=keys)
    context = browser.new_context(**MAY_COPY)
    try:
        page = context.new_page()
        page.goto(f"http://localhost:{server.port}/")
        if keys:
            page.get_by_label("API key").fill("key")
            page.get_by_role("button", name="Use this key").click()
        expect(page.locator(".live-status")).to_contain_text(" ms.")
        page.get_by_label("Type your own").click()
        page.get_by_label("Type a sentence").fill(text)
        expect(page.locator(".door-word").first).to_have_text("the")
        page.locator(".door-word", has_text="money").click(force=True)
        expect(page.locator(".door-said")).to_contain_text("money")
        page.get_by_role("button", name="Copy link").click()
        expect(page.locator(".door-pass")).to_contain_text("Copied.")
        link = page.evaluate("navigator.clipboard.readText()")
        asked = urlsplit(link)
        assert dict(parse_qsl(asked.query)) == {"text": text}
        assert "text=" not in asked.fragment
        other = context.new_page()
        other.goto(link)
        if keys:
            other.get_by_label("API key").fill("key")
            other.get_by_role("button", name="Use this key").click()
        else:  # it is drawn from what is in the page
            assert other.title() == f"{text} · regard"
        expect(other.locator(".door-said")).to_have_text(_said(page))
        assert other.get_by_label("Type a sentence").input_value() == text
    finally:
        context.close()
        server.die()
        server.ask("/v1/embeddings", {"input": "w1"}, Authorization="Bearer key")
        server.close()


def test_both_are_one_stop_of_the_tab_key(open_page: OpenPage, path: Path) -> None:
    page = open_page(path, start=True)
    bar = page.get_by_role("toolbar", name="Pass on")
    stops = "all => all.map((each) => each.tabIndex)"
    assert bar.get_by_role("button").evaluate_all(stops) == [0, -1]
    bar.get_by_role("button", name="Copy link").press("ArrowRight")
    expect(bar.get_by_role("button", name="Copy picture")).to_be_focused()
    assert bar.get_by_role("button").evaluate_all(stops) == [-1, 0]


def test_in_a_frame_is_the_door_alone(open_page: OpenPage, path: Path) -> None:
    page = open_page(path, "#bare", start=True, viewport={"width": 800, "height": 450})
    for seen in (".door-sentence", ".door-said", ".opener"):
        expect(page.locator(seen).first).to_be_in_viewport()
    for gone in (".header", ".footer", ".door-pass"):
        expect(page.locator(gone)).to_be_hidden()
    expect(page.get_by_role("button", name="And the other heads?")).to_be_in_viewport()
    page.locator(".door-word", has_text="river").click()
    page.locator(".opener").hover()
    link = page.locator(".opener").get_attribute("href")
    assert link is not None
    assert "bare" not in link
    other = open_page(path, link.removeprefix(path.as_uri()), start=True)
    assert _said(other) == _said(page)
    # An address that names a head is still of the heads.
    page.evaluate("location.hash = '#bare&layer=5&head=11'")
    expect(page.locator(".shown")).to_have_attribute("aria-label", "Heads")
    assert head_page.state(page)["view"] == "heads"


def _resize(page: BrowserPage, size: ViewportSize) -> None:
    page.set_viewport_size(size)
    head_page.drawn(page)  # lines are laid out after the window has its size


def test_the_words_stand_on_one_line_or_on_lines_alike(open_page: OpenPage, path: Path) -> None:
    page = open_page(path, start=True, viewport=DESK)
    size = "e => Number.parseFloat(getComputedStyle(e).fontSize)"
    large = page.locator(".door-word").first
    assert len(_lines(page)) == 1
    assert 24.5 < large.evaluate(size) < 34  # somewhat smaller
    _resize(page, WALL)
    assert len(_lines(page)) == 1
    assert large.evaluate(size) > 42  # for who sits in the last row
    _resize(page, {"width": 800, "height": 800})
    assert _lines(page) == ["The man who fishes on the river", "bank keeps his money in a bank ."]
    # Two words with a strong arc stay on one line where they can.
    _resize(page, PHONE)
    assert any("keeps his money" in line for line in _lines(page))
    assert page.evaluate("document.documentElement.scrollWidth") == 390
