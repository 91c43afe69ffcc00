"""One concordance asked by several threads at once, in a process of its own, which could be stopped."""

import subprocess
import sys
from pathlib import Path

from regard.concordance import build_index

ASK = """
import sys
from concurrent.futures import ThreadPoolExecutor

from regard import Concordance

concordance = Concordance(sys.argv[1])


def ask(number):
    concordance.save_subcorpus(f"odd{number}", ["text~1"])
    counts = [concordance.count(word).rows[0]["count"] for word in ("/b.*/", "river") * 8]
    return len(concordance.find("/ri.*/", where=[f"@odd{number}"], k=None)), sum(counts)


with ThreadPoolExecutor(8) as threads:
    print(sorted(set(threads.map(ask, range(8)))))
"""


def test_threads_share_a_concordance(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("".join(f"The bank of river {number}.\n" for number in range(2000)), "utf-8")
    build_index([corpus], tmp_path / "index")
    asked = [sys.executable, "-c", ASK, str(tmp_path / "index")]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=120)
    ones = sum("1" in str(number) for number in range(2000))
    assert (done.returncode, done.stdout) == (0, f"[({ones}, {16 * 2000})]\n"), done.stderr
