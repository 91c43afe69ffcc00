"""What a frame of the head view spares the browser while somebody points."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import expect

from integration import head_page
from unit.views.conftest import write_page

OpenPage = Callable[..., BrowserPage]

# Idle time comes when the test says so.
_HOLD_IDLE = """() => {
    const waiting = new Map();
    window.requestIdleCallback = (task) => {
        const name = Math.random();
        waiting.set(name, task);
        return name;
    };
    window.cancelIdleCallback = (name) => waiting.delete(name);
    window.idleTasks = () => waiting.size;
    window.idle = () => {
        for (const [name, task] of [...waiting]) {
            waiting.delete(name);
            task({ didTimeout: false, timeRemaining: () => 8 });
        }
    };
}"""

_WAIT_FOR_TASK = """async () => {
    for (let i = 0; i < 600 && idleTasks() === 0; i += 1) await new Promise(requestAnimationFrame);
    if (idleTasks() === 0) throw new Error("nothing waits for idle time");
}"""

# Every class, style and attribute that is set on a token: its name, and whether it had that value already.
_WATCH = """() => {
    window.records = [];
    const seen = (all) => records.push(...all.map(({ attributeName: name, oldValue, target }) =>
        [name, oldValue === target.getAttribute(name)]));
    window.watcher = new MutationObserver(seen);
    const what = { attributes: true, attributeOldValue: true, subtree: true };
    for (const side of document.querySelectorAll(".tokens")) watcher.observe(side, what);
}"""


@pytest.fixture
def page(open_page: OpenPage, tmp_path: Path) -> BrowserPage:
    write_page(head_page.record(tokens=61), tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", "#layer=0&head=1&form=lines")
    expect(page.locator(".grid.drawn")).to_be_visible()
    return page


def test_the_list_waits_for_idle_time_and_not_for_keys(page: BrowserPage) -> None:
    title = page.locator(".panel-title")
    expect(page.locator(".top li").first).to_be_visible()  # nothing is under way any more
    before = title.text_content()
    page.evaluate(_HOLD_IDLE)
    head_page.token(page, "query", 1).hover()
    expect(head_page.token(page, "key", 0).locator(".number")).not_to_be_empty()
    page.evaluate(_WAIT_FOR_TASK)
    assert title.text_content() == before
    # It goes on: what waited is left off at once.
    moved = "e => (e.dispatchEvent(new PointerEvent('pointerover', { bubbles: true })), idleTasks())"
    assert head_page.token(page, "query", 2).evaluate(moved) == 0
    page.evaluate(_WAIT_FOR_TASK)
    page.evaluate("idle()")
    expect(title).to_have_text(f"{head_page.WORDS[2]} looks at")
    expect(page.locator(".panel .note").first).to_contain_text("Where its 100 % goes")
    head_page.token(page, "query", 5).focus()
    page.keyboard.press("ArrowDown")
    expect(title).to_have_text(f"{head_page.WORDS[6]} looks at")


def test_what_a_token_has_is_not_set_again(page: BrowserPage) -> None:
    head_page.token(page, "query", 1).hover()
    head_page.drawn(page)
    page.evaluate(_WATCH)
    head_page.token(page, "query", 2).hover()
    head_page.drawn(page)
    records = page.evaluate("watcher.takeRecords().length === 0 && records")
    assert {"class", "style"} <= {name for name, _ in records}
    assert "aria-selected" not in {name for name, _ in records}
    assert [name for name, same in records if same] == []
    pinned = head_page.token(page, "query", 2)
    pinned.click()
    expect(pinned).to_have_attribute("aria-selected", "true")
    head_page.token(page, "query", 4).click()
    expect(pinned).to_have_attribute("aria-selected", "false")
