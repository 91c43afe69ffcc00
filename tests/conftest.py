"""What holds for every test: the same random numbers each time, and a Hugging Face home of its own."""

from __future__ import annotations

import functools
import gc
import itertools
import os
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer.main

gc.disable()  # until all is collected: 0.8 s
# The models of the tests are tiny: a second thread only waits, and for other processes too. Said here, since
# the conftest.py of a folder that pytest is asked for imports torch before anything is configured.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Whatever the environment says, what Python compiles is kept: each process would compile the sources and the
# tests anew.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
STATIC = Path(__file__).parents[1] / "src/regard/views/static"

_STRONGER_THAN_HF_HOME = (
    "HF_HUB_CACHE",
    "HF_ASSETS_CACHE",
    "HF_XET_CACHE",
    "HF_TOKEN",
    "HF_TOKEN_PATH",
    "HUGGINGFACE_HUB_CACHE",
    "HUGGINGFACE_ASSETS_CACHE",
    "HUGGING_FACE_HUB_TOKEN",
)


def pytest_configure(config: pytest.Config) -> None:
    """Keep the user's cache and token from whatever is imported from here on."""
    sources = [file for kind in ("js", "css", "json") for file in STATIC.glob(f"**/*.{kind}")]
    written = [file.stat().st_mtime for file in sources if "built" in file.parts]
    if min(written, default=0) < max(file.stat().st_mtime for file in sources if "built" not in file.parts):
        raise pytest.UsageError("the bundle of the page is older than its sources: `make page` renews it")
    for name in _STRONGER_THAN_HF_HOME:
        os.environ.pop(name, None)
    home = tempfile.TemporaryDirectory(prefix="regard-tests-")
    os.environ["HF_HOME"] = home.name
    config.add_cleanup(home.cleanup)
    # Fixtures of this file alone would not reach the doctests in src/; those of a plugin do.
    config.pluginmanager.register(EveryTest(), "regard-every-test")
    # A process builds the command line once, 35 ms; tests call it some hundred times in one.
    patch = pytest.MonkeyPatch()
    patch.setattr(typer.main, "get_command", _built_once(typer.main.get_command))
    # No test outlives its machine: what it writes need not be on the disk, 2 ms and more each time. Its
    # handle must be open all the same.
    patch.setattr(os, "fsync", os.fstat)
    config.add_cleanup(patch.undo)


def _built_once(build: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.cache
    def built(app: Any) -> Any:
        root = build(app)
        commands = [root]
        for command in commands:
            commands += getattr(command, "commands", {}).values()
            # A test may parse a command alone; it keeps the names of --help of its first context.
            command.context_settings |= root.context_settings
        return root

    return built


class EveryTest:
    """What holds for every test and doctest."""

    def __init__(self) -> None:
        self._count = itertools.count()

    def pytest_collection_finish(self) -> None:
        """What is imported and collected stays to the end: Python's collector never looks through it."""
        gc.freeze()
        # After 700 new objects it took a twentieth of the time: tiny models have many.
        gc.set_threshold(20_000)
        gc.enable()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """An example of what is public begins with its imports: who pastes it has nothing else."""
        for item in items:
            if not isinstance(item, pytest.DoctestItem) or (test := item.dtest) is None:
                continue
            module = test.globs.get("__name__", "")
            package, name = module.partition("._")[0], test.name.removeprefix(f"{module}.").partition(".")[0]
            if name in getattr(sys.modules.get(package), "__all__", ()):
                test.globs.clear()

    @pytest.fixture(autouse=True)
    def hf_home(self, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """An empty `HF_HOME` and other places of models, here and in subprocesses; no folder before something
        is written to it."""
        home = tmp_path_factory.getbasetemp() / f"hf-home-{next(self._count)}"
        monkeypatch.setenv("HF_HOME", str(home))
        for name in ("REGARD_HOME", "OLLAMA_MODELS", "LMSTUDIO_MODELS", "LLAMA_CACHE"):
            monkeypatch.setenv(name, str(home / name))
        # huggingface_hub reads its environment only once, when it is imported.
        if (constants := sys.modules.get("huggingface_hub.constants")) is not None:
            monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
        return home

    @pytest.fixture(autouse=True)
    def seeds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The same random numbers in any order of tests. (A torch not yet imported has a fixed seed.)"""
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002 - the global generator is the one that a test can use unasked
        if (torch := sys.modules.get("torch")) is not None:
            if not torch.accelerator.is_available():
                # Without a device to seed, manual_seed still writes down its caller's stack for each kind of
                # device that may yet appear: 2 ms a time.
                monkeypatch.setattr(torch, "manual_seed", torch.default_generator.manual_seed)
            torch.manual_seed(0)


@pytest.fixture(scope="module")
def model() -> Any:
    """The default model, one for each file of tests."""
    import regard

    return regard.load()
