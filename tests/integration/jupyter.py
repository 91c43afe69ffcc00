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

import nbformat

TOKEN = "regard"
START_S = 60


@contextmanager
def jupyterlab(folder: Path) -> Iterator[str]:
    """JupyterLab over a folder; gives its address. Its settings and runtime files are in one of their own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    home = folder.parent / "jupyter-home"
    home.mkdir()
    # It asks whether to show news, over the page.
    settings = home / "JUPYTER_CONFIG_DIR" / "labconfig"
    settings.mkdir(parents=True)
    off = {"@jupyterlab/apputils-extension:announcements": True}
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
    notebook: Any = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    path.write_text(json.dumps(notebook), encoding="utf-8")
