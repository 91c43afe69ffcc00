"""The senses of a word: the map and the lines are Python's, and a line leads to its attention."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import expect

from integration.head_page import address
from regard.concordance import Concordance, Senses, build_index

OpenPage = Callable[..., BrowserPage]
HOSTILE = "-- <b>It's</b> on the bank of the river, said Jim, and he 'knew'."


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Senses:
    folder = tmp_path_factory.mktemp("senses")
    river = [
        f"We sat on the bank of the river with the {each}." for each in ("dog", "cat", "boat", "rod", "net")
    ]
    money = [f"The bank lent him money for the {each}." for each in ("house", "shop", "car", "farm", "boat")]
    (folder / "a.txt").write_text("\n".join([HOSTILE, *river, *money]), encoding="utf-8")
    build_index([folder / "a.txt"], folder / "index")
    return Concordance(folder / "index").senses("bank", groups=2)


@pytest.fixture(scope="module")
def path(found: Senses, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "bank.html"
    found.page().write(file)
    return file


def test_the_map_the_groups_and_the_lines(open_page: OpenPage, path: Path, found: Senses) -> None:
    page = open_page(path)
    expect(page.get_by_role("tab", selected=True)).to_have_text("Senses")
    expect(page.locator("h1 .part").nth(0)).to_have_text("Wordbank, 11 uses, 2 groups")
    expect(page.locator("h1 .part").nth(1)).to_be_hidden()
    marks = page.locator(".sense-use")
    expect(marks).to_have_count(11)
    shapes = {marks.nth(at).get_attribute("d") for at in range(11)}
    assert len(shapes) == 2  # not by colour alone
    shares = [f"{100 * each.share:.0f} %, {each.uses} uses" for each in found.groups]
    assert page.locator(".sense-share").all_inner_texts() == shares
    lines = page.locator(".sense-all button")
    expect(lines.nth(0)).to_have_text(f"{found.lines[0].label}: {HOSTILE}")
    assert page.locator(".senses b b").count() == 0
    expect(page.locator(".senses")).to_contain_text(found.about)


def test_a_line_by_click_and_by_keyboard(open_page: OpenPage, path: Path, found: Senses) -> None:
    page = open_page(path)
    page.locator('.sense-use[data-use="0"]').click()
    expect(page.locator(".sense-line")).to_have_text(HOSTILE)
    command = "regard look -- '" + HOSTILE.replace("'", "'\\''") + "'"
    if page.locator(".sense-command").count():
        expect(page.locator(".sense-command code")).to_have_text(command)
    assert "use=0" in address(page)
    lines = page.locator(".sense-all button")
    expect(lines.nth(0)).to_have_attribute("aria-current", "true")
    lines.nth(0).focus()
    page.keyboard.press("ArrowDown")
    expect(lines.nth(1)).to_be_focused()
    expect(page.locator(".sense-line")).to_have_text(found.lines[1].place.body)
    page.keyboard.press("End")
    expect(page.locator(".sense-line")).to_have_text(found.lines[10].place.body)
    assert lines.evaluate_all("all => all.filter((e) => e.tabIndex === 0).length") == 1
    group = page.locator(".sense-group").nth(1)
    group.press("Enter")
    expect(group).to_have_attribute("aria-pressed", "true")
    expect(group).to_be_focused()
    expect(lines).to_have_count(found.groups[1].uses)
    expect(page.get_by_role("heading", name=f"{found.groups[1].uses} lines of 2")).to_be_visible()


def test_from_a_line_to_its_attention(open_page: OpenPage, path: Path, found: Senses) -> None:
    page = open_page(path)
    typical = found.groups[1].typical[1].place.body
    page.locator(".sense-typical").nth(1).locator("button").nth(1).click()
    page.get_by_role("button", name="See its attention").click()
    expect(page.get_by_role("tab", selected=True)).to_have_text("Heads")
    expect(page.locator("h1 .part").nth(1)).to_have_text(f"2, line 2{typical}")
    # The view of another run's page still has the map.
    page.get_by_role("tab", name="Senses").click()
    expect(page.locator(".sense-use")).to_have_count(11)
    expect(page.locator("h1 .part").nth(1)).to_be_hidden()
    page.get_by_role("tab", name="Heads").click()
    page.get_by_label("Whose attention").select_option("0")
    expect(page.locator("h1 .part").nth(1)).to_have_text(f"1, line 1{found.groups[0].typical[0].place.body}")
