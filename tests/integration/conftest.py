"""A real browser, and a page in it that fails its test on any error or request of its own."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest
import torch
from playwright.sync_api import (
    Browser,
    BrowserContext,
    CDPSession,
    ConsoleMessage,
    Dialog,
    Error,
    Page,
    Request,
    TimeoutError,
    ViewportSize,
    expect,
    sync_playwright,
)

import regard
from integration import head_page, tiny
from integration.jupyter import jupyterlab
from regard.checkpoints import DEFAULT_DECODER, DEFAULT_MODEL
from regard.tracing import Trace, comparison_page
from regard.views import AttentionRecord
from unit.models.folders import write, write_tokenizer
from unit.views.conftest import write_page

# The suggestions below the address bar are two pages more for every window, also when nobody sees them.
SUGGESTIONS = ["WebUIOmniboxPopup", "WebUIOmniboxAimPopup"]
# Of several lists only the last counts: what matters here of Playwright's own, requests and paints held back.
UNASKED = [
    "AimEnabled",
    "DestroyProfileOnBrowserClose",
    "HttpsFirstBalancedModeAutoEnable",
    "HttpsUpgrades",
    "MediaRouter",
    "NetworkTimeServiceQuerying",
    "OptimizationHints",
    "PaintHolding",
    "PreconnectToSearch",
    "ThirdPartyStoragePartitioning",
]
ARGUMENTS = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    f"--disable-features={','.join(SUGGESTIONS + UNASKED)}",
    "--in-process-gpu",  # there is no graphics card to wait for
]
# Chromium's sandbox refuses to start as root, and containers often have a small /dev/shm.
AS_ROOT = ["--no-sandbox", "--disable-dev-shm-usage"]

# A browser, and with it a kernel and a server, share the processor with other tests.
PATIENCE_MS = 60_000

# What a window may be told of its reader, and what it is told without a test that asks.
MEDIA: dict[str, Any] = {
    "color_scheme": "light",
    "reduced_motion": "no-preference",
    "forced_colors": "none",
}

OpenPage = Callable[..., Page]
TinyPage = Callable[[str], Path]


def _no_browser(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must run the browser tests: {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium, from the PATH; best without its windows, which take half as long again for each page."""
    executable = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if executable is None:
        _no_browser("no chromium-headless-shell or chromium on the PATH")
    arguments = ARGUMENTS + (AS_ROOT if os.geteuid() == 0 else [])
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        try:
            chromium = playwright.chromium.launch(executable_path=executable, args=arguments)
        except Error as error:
            _no_browser(f"chromium does not start: {error.message.splitlines()[0]}")
        yield chromium
        chromium.close()


WINDOW: ViewportSize = {"width": 1280, "height": 720}
"""Playwright's own, which a page gets where a test asks for no other."""


class Windows:
    """Where the pages open that ask for no context of their own: each in a window that another has left.

    A new window takes a third of what a page takes. Pages share nothing through it, since they may keep
    nothing (tests/unit/views/test_render_page.py).
    """

    def __init__(self, context: BrowserContext) -> None:
        self._context = context
        self._left: list[Page] = []
        self._sessions: dict[Page, CDPSession] = {}

    def take(self) -> Page:
        """A blank window."""
        return self._left.pop() if self._left else self._context.new_page()

    def leave(self, page: Page) -> None:
        """Give a window back, as it was taken."""
        if not page.is_closed():
            page.goto("about:blank")
            page.mouse.move(0, 0)
            if page.viewport_size != WINDOW:
                page.set_viewport_size(WINDOW)
            page.emulate_media(media="null", **MEDIA)
            if page not in self._sessions:
                self._sessions[page] = self._context.new_cdp_session(page)
            self._sessions[page].send("Page.resetNavigationHistory")
            self._left.append(page)


@pytest.fixture(scope="session")
def windows(browser: Browser) -> Iterator[Windows]:
    """The windows of all tests."""
    context = browser.new_context(offline=True, viewport=WINDOW)
    context.new_page()  # blank, and never closed: with the last page, the process that draws them would end
    yield Windows(context)
    context.close()


@pytest.fixture
def open_page(browser: Browser, windows: Windows) -> Iterator[OpenPage]:
    """A function that opens a file, `open_page(path, fragment="", viewport=None, **context options)`.

    It opens on the first head, with special tokens, unless the fragment says otherwise, or `start=True` asks
    for what a reader gets. It returns the page. The test fails if anything is written to the console as a
    warning or an error, if a script throws, if a dialog opens, or if anything but the file itself is
    requested. The machine counts as offline.
    """
    leave: list[Callable[[], None]] = []
    troubles: list[str] = []

    def open_(
        path: Path,
        fragment: str = "",
        viewport: ViewportSize | None = None,
        start: bool = False,
        **options: Any,
    ) -> Page:
        if not start:
            fragment = head_page.plain(fragment)
        media = {name: options.pop(name) for name in MEDIA if name in options}
        if options:
            context = browser.new_context(offline=True, **options)
            leave.append(context.close)
            page = context.new_page()
        else:
            page = windows.take()
            leave.append(lambda: windows.leave(page))
        if viewport is not None:
            page.set_viewport_size(viewport)
        if media:
            page.emulate_media(**media)
        address = path.as_uri()

        def on_request(request: Request) -> None:
            # A live page's worker is text that stands in the page.
            url = request.url
            if url.partition("#")[0] != address and url != "data:," and not url.startswith("blob:"):
                troubles.append(f"request: {url}")

        def on_console(message: ConsoleMessage) -> None:
            if message.type in ("warning", "error"):
                troubles.append(f"console {message.type}: {message.text}")

        def on_error(error: Error) -> None:
            troubles.append(f"script: {error}")

        def on_dialog(dialog: Dialog) -> None:
            troubles.append(f"dialog: {dialog.message}")
            dialog.dismiss()

        heard = {"request": on_request, "console": on_console, "pageerror": on_error, "dialog": on_dialog}
        for event, listener in heard.items():
            page.on(event, listener)  # type: ignore[call-overload]
            leave.append(partial(page.remove_listener, event, listener))
        page.goto(address + fragment)
        try:
            page.wait_for_function("window.regard && window.regard.ready")
        except TimeoutError:
            raise AssertionError(troubles) from None
        return page

    yield open_
    for each in reversed(leave):
        each()
    assert troubles == []


@pytest.fixture(scope="module")
def loaded_once() -> Iterator[None]:
    """The two default models are loaded once for all tests of a file."""
    load = regard.load
    once = cache(load)

    def loaded(name: Any = None, **options: Any) -> regard.Model:
        is_default = name in (None, DEFAULT_MODEL, DEFAULT_DECODER) and not options
        return once(name or DEFAULT_MODEL) if is_default else load(name, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(regard, "load", loaded)
        patch.setattr("regard.api.load", loaded)
        yield


@pytest.fixture(scope="session")
def tiny_page(tmp_path_factory: pytest.TempPathFactory) -> TinyPage:
    """A function that gives the page of a tiny model of a family: integration/tiny.py."""
    folder = tmp_path_factory.mktemp("tiny")

    @cache
    def written(family: str) -> Path:
        tiny.page(family).write(folder / f"{family}.html")
        return folder / f"{family}.html"

    return written


@pytest.fixture(scope="session")
def compared_pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages of a text, "text", of a word in two of them, "movement", and of how they differ, "difference"."""
    folder = tmp_path_factory.mktemp("pages")
    torch.manual_seed(0)
    write_tokenizer(write(folder, "bert"), 31)
    one, other = regard.load(str(folder)).trace(["w3 w5 w7 w1", "w9 w5 w2 w1 w4"])
    comparison_page([one, other], "w5").write(folder / "movement.html")
    one.difference_page(other).write(folder / "difference.html")
    one.write_page(folder / "text.html")
    return {name: folder / f"{name}.html" for name in ("movement", "difference", "text")}


@pytest.fixture(scope="session")
def poem() -> Trace:
    """A sentence through the default model."""
    return regard.load().trace("Write a poem about a man fishing on a river bank.")


@pytest.fixture(scope="session")
def poem_path(poem: Trace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its page, for the tests that need a trained model and no text of their own."""
    file = tmp_path_factory.mktemp("poem") / "page.html"
    poem.write_page(file)
    return file


class Jupyter(NamedTuple):
    """A JupyterLab: its address, and its folder, with a model of random numbers of two families."""

    address: str
    folder: Path


@pytest.fixture(scope="session")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jupyter]:
    """The one server for all notebooks."""
    folder = tmp_path_factory.mktemp("lab") / "work"
    torch.manual_seed(0)
    for family in ("bert", "llama"):
        (folder / family).mkdir(parents=True)
        write_tokenizer(write(folder / family, family), 31)
    settings = folder / "llama" / "tokenizer_config.json"
    known = json.loads(settings.read_text("utf-8")) if settings.exists() else {}
    role = "{{ 'w1' if each.role == 'user' else 'w2' }}"
    template = f"{{% for each in messages %}}{role} {{{{ each.content }}}} {{% endfor %}}w2 "
    settings.write_text(json.dumps(known | {"chat_template": template}), encoding="utf-8")
    with jupyterlab(folder) as address:
        yield Jupyter(address, folder)


@pytest.fixture
def record() -> AttentionRecord:
    """The record of a text."""
    return head_page.record()


@pytest.fixture
def path(record: AttentionRecord, tmp_path: Path) -> Path:
    """The page of the record."""
    write_page(record, tmp_path / "page.html")
    return tmp_path / "page.html"
