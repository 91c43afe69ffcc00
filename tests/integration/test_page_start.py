"""A page opens on the head and the word that Python chose, without special tokens; an address wins."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import expect

from integration import head_page
from regard.views import render_page

OpenPage = Callable[..., BrowserPage]


def _facts(page: BrowserPage) -> Any:
    return json.loads(page.locator("#regard-facts").inner_text())


def test_opens_where_python_says_without_special_tokens(open_page: OpenPage, path: Path) -> None:
    page = open_page(path, start=True)
    start, state = _facts(page)["start"], head_page.state(page)
    assert (start["layer"], start["head"]) != (0, 0)
    assert [state[name] for name in ("kind", "layer", "head")] == [
        start[name] for name in ("kind", "layer", "head")
    ]
    assert state["pin"] == {"side": "query", "index": start["pin"]}
    assert page.url == path.as_uri()  # nothing was chosen yet
    page.get_by_role("button", name="All views").click()
    expect(page.locator(f'.token.pinned[data-token="{start["pin"]}"]')).to_have_count(1)
    assert head_page.shown(page, "query") == head_page.shown(page, "key") == [1, 2, 3, 5, 6]

    head_page.token(page, "query", start["pin"]).click()  # lets go of it
    assert head_page.state(page)["pin"] is None
    page.reload()
    page.wait_for_function("window.regard.ready")
    assert head_page.state(page)["pin"] is None
    assert [head_page.state(page)[name] for name in ("layer", "head")] == [start["layer"], start["head"]]


@pytest.mark.parametrize(
    ("fragment", "wanted"),
    [
        ("#layer=1", {"layer": 1, "head": 0, "pin": None, "specials": False}),
        ("#pin=key-2", {"layer": 0, "head": 0, "pin": {"side": "key", "index": 2}}),
        ("#specials=hidden", {"specials": False}),
        ("#specials=shown", {"specials": True}),
    ],
)
def test_an_address_wins(open_page: OpenPage, path: Path, fragment: str, wanted: dict[str, Any]) -> None:
    page = open_page(path, fragment, start=True)
    state = head_page.state(page)
    assert {name: state[name] for name in wanted} == wanted
    if fragment.startswith("#specials"):
        assert state["layer"] == _facts(page)["start"]["layer"]


def test_special_tokens_are_shown_where_there_is_nothing_else(open_page: OpenPage, tmp_path: Path) -> None:
    record = head_page.record()
    assert record.encoder is not None
    tokens = tuple(replace(token, special=True) for token in record.encoder.tokens)
    render_page(replace(record, encoder=replace(record.encoder, tokens=tokens))).write(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", start=True)  # on Heads: there is no sentence for the front door
    assert head_page.shown(page, "query") == list(range(head_page.TOKENS))


def test_two_runs_open_on_what_differs_most(open_page: OpenPage, compared_pages: dict[str, Path]) -> None:
    page = open_page(compared_pages["difference"], start=True)
    start, state = _facts(page)["start"], head_page.state(page)
    assert state["view"] == "door"  # which chooses its head by both texts: test_page_experiment.py
    divergence = _facts(page)["compared"]["kinds"]["encoder"]["divergence"]
    assert divergence[start["layer"]][start["head"]] == max(map(max, divergence))
    page = open_page(compared_pages["movement"], start=True)
    start, state = _facts(page)["start"], head_page.state(page)
    assert (state["view"], state["layer"], state["head"]) == ("movement", start["layer"], start["head"])
