"""How `regard serve` ends: each time with a word on stderr, and a code that says the same."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from integration.forked import wait_for
from integration.served import PATIENCE_S, posted


def start(*words: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "regard", "serve", "--port", "0", *map(str, words)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def wait_for_handlers(process: subprocess.Popen[str]) -> None:
    """Until SIGTERM is caught; models are loaded long after."""
    until, status = time.monotonic() + PATIENCE_S, Path(f"/proc/{process.pid}/status")
    while True:
        caught = next(line for line in status.read_text().splitlines() if line.startswith("SigCgt"))
        if int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1:
            return
        assert time.monotonic() < until
        time.sleep(0.01)


EARLY = {
    signal.SIGTERM: (143, "regard: stopped by SIGTERM\n"),
    signal.SIGINT: (130, "regard: stopped by SIGINT\n"),
    signal.SIGSEGV: (-signal.SIGSEGV, "Fatal Python error: Segmentation fault"),
}


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux which signals are caught")
@pytest.mark.parametrize("sent", EARLY)
def test_before_it_serves(sent: signal.Signals) -> None:
    process = start()
    wait_for_handlers(process)
    process.send_signal(sent)
    _, told = process.communicate(timeout=PATIENCE_S)
    code, words = EARLY[sent]
    assert process.returncode == code
    assert told.startswith(words)


def test_a_second_signal_ends_it_at_once() -> None:
    """What was accepted gets no answer then, which is a failure; and torch, at work, must not abort."""
    process = start("--no-access-log")
    assert process.stderr is not None
    url = process.stderr.readline().split()[-1]
    body = json.dumps({"input": [f"{n} {'bank ' * 100}" for n in range(1000)]}).encode()
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as client:
        client.sendall(posted(body))
        with httpx.Client(base_url=url) as watching:
            wait_for(lambda: b"regard_compute_seconds_count" in watching.get("/metrics").content)
        process.send_signal(signal.SIGTERM)
        first = process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        _, last = process.communicate(timeout=PATIENCE_S)
    assert first.startswith("regard: SIGTERM: new requests are taken for 2 s, and what was accepted")
    again, *_, end = last.splitlines()
    assert again == "regard: SIGTERM again: it stops at once"
    assert end == "regard: 1 accepted request got no answer"
    assert process.returncode == 1
