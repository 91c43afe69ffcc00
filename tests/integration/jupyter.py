"""A real JupyterLab without a network, and what the tests of the widget do and read in it."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Locator, expect
from playwright.sync_api import Page as BrowserPage

TOKEN = "regard"
START_S = 60
UNASKED = ("csvviewer", "debugger", "extensionmanager", "help", "htmlviewer", "hub", "imageviewer")
UNASKED += ("inspector", "launcher", "logconsole", "terminal")
SHOWN_S = 60_000


@contextmanager
def jupyterlab(folder: Path) -> Iterator[str]:
    """JupyterLab over a folder; gives its address. Its settings and runtime files are in one of their own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    home = folder.parent / "jupyter-home"
    home.mkdir()
    # It asks whether to show news, over the page; and what no test looks at need not start.
    settings = home / "JUPYTER_CONFIG_DIR" / "labconfig"
    settings.mkdir(parents=True)
    off = {"@jupyterlab/apputils-extension:announcements": True}
    off |= {f"@jupyterlab/{name}-extension": True for name in UNASKED}
    (settings / "page_config.json").write_text(json.dumps({"disabledExtensions": off}))
    names = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    environment = os.environ | {name: str(home / name) for name in names}
    options = [
        "--no-browser",
        "--allow-root",
        f"--port={port}",
        "--ip=127.0.0.1",
        f"--IdentityProvider.token={TOKEN}",
        f"--ServerApp.root_dir={folder}",
        "--LabApp.collaborative=False",
        "--LabApp.extension_manager=readonly",
        "--expose-app-in-browser",
    ]
    log = (home / "log").open("w")
    server = subprocess.Popen(
        [sys.executable, "-m", "jupyterlab", *options],
        env=environment,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        _wait(address, server, home / "log")
        yield address
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        log.close()


def _wait(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(10 * START_S):
        try:
            urllib.request.urlopen(f"{address}/api?token={TOKEN}", timeout=2).close()
            return
        except OSError:
            if server.poll() is not None:
                break
            time.sleep(0.1)
    raise AssertionError(f"jupyter lab did not start:\n{log.read_text()[-4000:]}")


def write_notebook(path: Path, cells: Sequence[str]) -> None:
    """A notebook of code cells, not run."""
    usual = {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": []}
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    # As plain JSON: nbformat takes seconds to import, in every process that collects the tests.
    notebook = {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {"kernelspec": kernel},
        "cells": [usual | {"id": f"cell-{place}", "source": cell} for place, cell in enumerate(cells)],
    }
    path.write_text(json.dumps(notebook), encoding="utf-8")


@contextmanager
def notebook(
    browser: Browser,
    address: str,
    folder: Path,
    name: str,
    cells: Sequence[str],
    *,
    allowed: str | None = None,
) -> Iterator[BrowserPage]:
    """A notebook with all its cells run. Fails on errors in the console, and on requests elsewhere.

    Args:
        browser: the browser.
        address: of JupyterLab, over `folder`.
        folder: where the notebook is written.
        name: its name.
        cells: its cells; a page is ready when the last of them has run.
        allowed: what a warning in the console may say.
    """
    write_notebook(folder / f"{name}.ipynb", cells)
    troubles: list[str] = []
    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    page = context.new_page()
    page.on(
        "console",
        lambda message: troubles.append(message.text) if message.type in ("warning", "error") else None,
    )
    page.on("pageerror", lambda error: troubles.append(f"script: {error}"))
    page.on("dialog", lambda dialog: troubles.append(f"dialog: {dialog.message}"))
    page.on(
        "request",
        lambda request: (
            None
            if request.url.startswith((address, "data:", "blob:"))
            else troubles.append(f"request: {request.url}")
        ),
    )
    page.goto(f"{address}/lab/workspaces/{name}/tree/{name}.ipynb?token={TOKEN}&reset")
    page.locator(".jp-Notebook .jp-CodeCell").first.wait_for(timeout=SHOWN_S)
    expect(page.locator("#jp-main-statusbar")).to_contain_text("Idle", timeout=SHOWN_S)
    page.evaluate("() => { jupyterapp.commands.execute('notebook:run-all-cells'); }")
    prompt = cell_of(page, len(cells) - 1).locator(".jp-InputArea-prompt").first
    expect(prompt).to_have_text(f"[{len(cells)}]:", timeout=SHOWN_S)
    yield page
    context.close()
    # On a busy machine JupyterLab says how long each of its plugins "took 5070.90ms to activate".
    fine = ("ms to activate", *([allowed] if allowed else []))
    assert [each for each in troubles if not any(said in each for said in fine)] == [], troubles


def cell_of(page: BrowserPage, number: int) -> Locator:
    """A cell of the notebook, counted from 0."""
    return page.locator(".jp-Notebook .jp-CodeCell").nth(number)


def widget_of(page: BrowserPage, number: int) -> Locator:
    """The widget that a cell shows, behind its front door."""
    found = cell_of(page, number).locator(".regard-widget")
    found.scroll_into_view_if_needed(timeout=SHOWN_S)
    way_in = found.get_by_role("button", name="All views")
    if way_in.is_visible():
        way_in.click()
    return found


def run_cell(page: BrowserPage, number: int) -> None:
    """Runs a cell again, and waits for its end."""
    prompt = cell_of(page, number).locator(".jp-InputArea-prompt").first
    count = prompt.inner_text()
    prompt.click()
    page.keyboard.press("Shift+Enter")
    expect(prompt).not_to_have_text(count)
    expect(prompt).not_to_have_text("[*]:", timeout=SHOWN_S)


def state_of(page: BrowserPage, number: int) -> dict[str, Any]:
    """What is chosen in a cell's widget, but for what is below the pointer: scrolling moves widgets there."""
    found: dict[str, Any] = widget_of(page, number).evaluate("widget => widget.regard.state()")
    return found | {"hover": None}
