"""Every control of every view is reached by Tab, seen when it is, works by its keys, and lets go again."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import expect

OpenPage = Callable[..., BrowserPage]

VIEWS = {
    "movement": "movement",
    "heads": "movement",
    "story": "text",
    "model": "movement",
    "neuron": "movement",
    "positions": "movement",
    "difference": "difference",
}
MOST = 90  # presses of Tab: a page with more of them is tedious, or a trap

# The element that has the focus, with a number that it keeps; how it is seen is looked for in it, in what it
# draws before and after itself, and in the label or picture beside it.
_STOP = """() => {
    const element = document.activeElement;
    if (!element || element === document.body) return null;
    window.stops = window.stops || [];
    if (!window.stops.includes(element)) window.stops.push(element);
    const outlined = (of, pseudo) => {
        const style = getComputedStyle(of, pseudo);
        return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1;
    };
    const beside = [element, element.nextElementSibling, element.firstElementChild].filter(Boolean);
    const drawn = ["::before", "::after"];
    const { top, bottom, left, right, width } = element.getBoundingClientRect();
    return {
        number: window.stops.indexOf(element),
        name: `${element.tagName} ${element.className} ${element.textContent.slice(0, 20)}`,
        outlined: beside.some(each => outlined(each)) || drawn.some(of => outlined(element, of)),
        inView: bottom > 0 && right > 0 && top < innerHeight && left < innerWidth && width > 0,
    };
}"""

# What can be used but was no stop: but for those that arrows reach, from one that was.
_MISSED = """() => {
    const stops = window.stops;
    const within = element => element.closest("[role=tablist], [role=grid], [role=listbox], fieldset");
    const groups = new Set(stops.map(within).filter(Boolean));
    return [...document.querySelectorAll("button, a[href], input, select, summary, [tabindex]")]
        .filter(each => each.checkVisibility({ visibilityProperty: true }) && !each.disabled)
        .filter(each => !stops.includes(each))
        .filter(each => !(groups.has(within(each)) && (each.tabIndex === -1 || each.type === "radio")))
        .filter(each => !each.matches(".stage")) // scrolls with what is in it
        .map(each => each.outerHTML.slice(0, 120));
}"""


def _walk(page: BrowserPage, key: str) -> list[dict[str, Any]]:
    """What has the focus after each press, until it leaves the page."""
    found: list[dict[str, Any]] = []
    for _ in range(MOST):
        page.keyboard.press(key)
        stop = page.evaluate(_STOP)
        if stop is None or (found and stop["number"] == found[0]["number"]):
            return found
        found.append(stop)
    raise AssertionError(f"{key} does not leave the page: {[each['name'] for each in found[-3:]]}")


# A phone folds the grid of heads away and lays the story out anew; the parts of other views only stack.
@pytest.mark.parametrize(
    ("view", "width"), [*((view, 1280) for view in VIEWS), *((view, 390) for view in ("heads", "story"))]
)
def test_tab_reaches_every_control_and_goes_on(
    open_page: OpenPage, compared_pages: dict[str, Path], view: str, width: int
) -> None:
    page = open_page(
        compared_pages[VIEWS[view]], f"#view={view}&pin=query-1", viewport={"width": width, "height": 800}
    )
    expect(page.get_by_role("tabpanel")).to_be_visible()
    stops = _walk(page, "Tab")
    assert [each["name"] for each in stops if not each["outlined"]] == []
    assert [each["name"] for each in stops if not each["inView"]] == []
    assert page.evaluate(_MISSED) == []
    # Backwards too: nothing on the way takes the key for itself.
    back = _walk(page, "Shift+Tab")
    assert {each["number"] for each in back} == {each["number"] for each in stops}


_VALUE = "e => e.type === 'checkbox' ? e.checked : e.tagName === 'DETAILS' ? e.open : e.value"
_KEYS = {"checkbox": [" "], "range": ["ArrowRight", "ArrowLeft"], "select-one": ["ArrowDown", "ArrowUp"]}


@pytest.mark.parametrize("view", VIEWS)
def test_controls_work_by_their_keys(open_page: OpenPage, compared_pages: dict[str, Path], view: str) -> None:
    page = open_page(
        compared_pages[VIEWS[view]], f"#view={view}&pin=query-1", viewport={"width": 1280, "height": 800}
    )
    panel = page.get_by_role("tabpanel")
    expect(panel).to_be_visible()
    for summary in panel.locator("summary:visible").all():
        details = summary.locator("..")
        summary.focus()
        page.keyboard.press("Enter")
        assert details.evaluate(_VALUE) is True
        if view == "heads":
            page.keyboard.press("Enter")
    for control in panel.locator("input:visible, select:visible").all():
        kind = control.evaluate("e => e.type")
        if kind == "radio" or control.evaluate("e => e.tagName === 'SELECT' && e.options.length < 2"):
            continue
        before = control.evaluate(_VALUE)
        control.focus()
        changed = False
        for key in _KEYS[kind]:  # one way, and where it stands at the end, the other
            if not changed:
                page.keyboard.press(key)
                changed = control.evaluate(_VALUE) != before
        assert changed, control.evaluate("e => e.outerHTML")
    for group in panel.locator("fieldset:visible").all():
        before = group.locator("input:checked").input_value()
        group.locator("input:checked").focus()
        page.keyboard.press("ArrowRight")
        assert group.locator("input:checked").input_value() != before
        page.keyboard.press("ArrowLeft")
        assert group.locator("input:checked").input_value() == before


def test_arrows_in_the_grids_move_the_head(open_page: OpenPage, compared_pages: dict[str, Path]) -> None:
    for view in ("heads", "model", "difference"):
        page = open_page(compared_pages[VIEWS[view]], f"#view={view}")
        page.locator('[role="gridcell"][tabindex="0"]:visible').focus()
        for key, at in (("ArrowRight", (0, 1)), ("ArrowDown", (1, 1)), ("Home", (1, 0)), ("ArrowUp", (0, 0))):
            page.keyboard.press(key)
            state = page.evaluate("regard.state()")
            assert (state["layer"], state["head"]) == at
            expect(page.locator('[role="gridcell"][aria-selected="true"]:visible')).to_be_focused()
