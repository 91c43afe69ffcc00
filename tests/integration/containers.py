"""An image's files, run as a container runtime would run them: namespaces, chroot, and no rights."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAMESPACES = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child"]

# No device but these, no network but lo. The image stays as it is; /tmp is memory.
JAIL = r"""
set -e
root=$1; shift
mount --bind "$root" "$root"
mount -o remount,ro,bind "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/tmp"
mount -t tmpfs tmpfs "$root/dev"
for device in null zero random urandom; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
python3 -c 'import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh", b"lo", 1))'
exec chroot "$root" setpriv --reuid="$USER_ID" --regid="$USER_ID" --clear-groups \
    --no-new-privs --bounding-set=-all env -i "$@"
"""

ASK = """
import json, sys, urllib.error, urllib.request
path, body = sys.argv[1], sys.stdin.buffer.read() or None
request = urllib.request.Request("http://127.0.0.1:8000" + path, body, {"content-type": "application/json"})
try:
    answer = urllib.request.urlopen(request, timeout=60)
except urllib.error.HTTPError as error:
    answer = error
except OSError as error:
    print(json.dumps([0, str(error)])); sys.exit()
print(json.dumps([answer.status, answer.read().decode()]))
"""


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@dataclass(frozen=True)
class Image:
    """A folder with the files of the image, and its settings."""

    folder: Path
    config: dict[str, Any]

    def start(self, *arguments: str, err: Path) -> Server:
        """Run it, with other arguments if there are any."""
        command = [*self.config["Env"], *self.config["Entrypoint"], *(arguments or self.config["Cmd"])]
        user = self.config["User"].partition(":")[0]
        with err.open("wb") as file:
            process = subprocess.Popen(
                [*NAMESPACES, "sh", "-c", JAIL, "jail", str(self.folder), *command],
                stdout=file,
                stderr=file,
                env=os.environ | {"USER_ID": user},
            )
        return Server(process)


@dataclass
class Server:
    """What runs in the namespaces; the process that made them waits for it."""

    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        while not (pids := children(self.process.pid)):
            assert self.process.poll() is None
            time.sleep(0.01)
        return pids[0]

    def asking(self, path: str, body: object = None) -> subprocess.Popen[str]:
        """A request, under way from inside its network."""
        inside = ["nsenter", f"--net=/proc/{self.pid}/ns/net", sys.executable, "-c", ASK, path]
        asking = subprocess.Popen(inside, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert asking.stdin is not None
        with asking.stdin as pipe:
            pipe.write("" if body is None else json.dumps(body))
        asking.stdin = None
        return asking

    def ask(self, path: str, body: object = None) -> tuple[int, str]:
        """The status, 0 without a connection, and the text of an answer."""
        status, text = json.loads(self.asking(path, body).communicate()[0])
        return status, text

    def wait_until_ready(self, seconds: float = 120) -> float:
        begun = time.monotonic()
        while self.ask("/health/ready")[0] != 200:
            assert self.process.poll() is None
            assert time.monotonic() - begun < seconds
            time.sleep(0.1)
        return time.monotonic() - begun

    def end(self) -> None:
        if self.process.poll() is None:
            os.kill(self.pid, signal.SIGKILL)  # the server; who made its namespaces ends with it
            self.process.wait()
