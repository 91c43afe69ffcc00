"""The live page: its size, when it can be typed into, and how long a key takes to a redrawn row.

    python benchmarks/bench_live.py [--tokens 14 64 256] [--repeats 40] [--keep]

Of the default model, in Chromium, with WebAssembly and without. A key is a changed word, so that every layer
is worked out; it is timed from the event of the field to the frame after the new row is in the page, with the
tokenizer, the forward pass in the worker and the drawing of the head view. Beside it, in the same run and on
the same texts, the same model in Python: `model.trace` and a row of its weights. No other tool has such a
page to compare with.

The answer is checked before anything is timed: rows that the browser computed, against Python's float32,
within what the page states. The last line is the result as JSON.
"""

import argparse
import os
import shutil
import statistics
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from _harness import finish, machine, seconds, text_of
from playwright.sync_api import Browser, Page, sync_playwright

import regard

WORDS = ("river", "money", "stone", "cloud", "paper", "water", "green", "black", "small", "house")

# From the event to the frame after the one in which the new page is drawn.
KEYS = """async texts => {
    const frame = () => new Promise(requestAnimationFrame);
    const field = document.querySelector(".live textarea");
    const found = [];
    for (const text of texts) {
        const old = regard.source;
        const start = performance.now();
        field.value = text;
        field.dispatchEvent(new Event("input"));
        while (regard.source === old) await frame();
        await frame();
        const pass = Number(/, (\\d+) ms/.exec(document.querySelector(".live-status").textContent)[1]);
        found.push([performance.now() - start, pass]);
        await new Promise(resolve => setTimeout(resolve, 50));
    }
    return found;
}"""


@dataclass(frozen=True, kw_only=True)
class Result:
    how: str
    tokens: int
    page_bytes: int
    ready_ms: float
    live_ms: float
    key_ms: float
    key_p95_ms: float
    pass_ms: float
    python_ms: float
    stated_difference: float
    checked_difference: float


def opened(browser: Browser, path: Path, how: str) -> tuple[Page, float, float]:
    """The page when it can be typed into, and the milliseconds until it is there and until then."""
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    if how == "JavaScript":
        # The first line of the worker's script; other blobs stay what they are.
        page.add_init_script(
            "const Plain = Blob; window.Blob = class extends Plain { constructor(parts, options) {"
            " super(options?.type ? ['delete self.WebAssembly;', ...parts] : parts, options); } }"
        )
    page.goto(path.as_uri() + "#view=heads")
    page.get_by_text(" ms.").wait_for()
    marks = "['regard-interactive', 'regard-live'].map(n => performance.getEntriesByName(n)[0].startTime)"
    ready, live = page.evaluate(marks)
    return page, ready, live


def checked(page: Page, model: regard.Model, text: str) -> float:
    """The largest difference of some rows to Python's."""
    page.evaluate(KEYS, [text])
    trace = model.trace(text)
    rng = np.random.default_rng(0)
    largest = 0.0
    for _ in range(24):
        layer, head, query = (int(rng.integers(n)) for n in (6, 12, len(trace.tokens)))
        row = page.evaluate(f"Array.from(regard.weightsRow({layer}, {head}, {query}))")
        apart = np.array(row) - trace.weights(layer, head, query=query)[0].numpy()
        largest = max(largest, float(np.abs(apart).max()))
    return largest


def measure(
    browser: Browser, path: Path, model: regard.Model, stated: float, how: str, tokens: int, repeats: int
) -> Result:
    page, ready, live = opened(browser, path, how)
    text = text_of(tokens, lambda text: len(model.tokenizer.encode(text).tokens), SENTENCE)
    difference = checked(page, model, text)
    if difference > stated:
        raise SystemExit(f"wrong answer: a row differs by {difference}, stated {stated}")
    texts = [text.replace("river", WORDS[turn % len(WORDS)]) for turn in range(repeats)]
    found = page.evaluate(KEYS, texts[:10] + texts)[10:]
    page.close()
    keys = [key for key, _ in found]
    return Result(
        how=how,
        tokens=tokens,
        page_bytes=path.stat().st_size,
        ready_ms=ready,
        live_ms=live,
        key_ms=statistics.median(keys),
        key_p95_ms=float(np.percentile(keys, 95)),
        pass_ms=statistics.median(each for _, each in found),
        python_ms=1000 * seconds({"trace": lambda: model.trace(text).weights(5, 6, query=3)}, 9)["trace"],
        stated_difference=stated,
        checked_difference=difference,
    )


SENTENCE = "Write a poem about a man fishing on a river bank. "


def table(results: list[Result]) -> str:
    rows = [
        ["", "tokens", "page MB", "ready ms", "live ms", "key ms", "p95", "pass ms", "Python ms", "checked"]
    ]
    for r in results:
        row = [r.how, str(r.tokens), f"{r.page_bytes / 1e6:.1f}", f"{r.ready_ms:.0f}", f"{r.live_ms:.0f}"]
        row += [f"{r.key_ms:.0f}", f"{r.key_p95_ms:.0f}", f"{r.pass_ms:.0f}", f"{r.python_ms:.0f}"]
        rows.append([*row, f"{r.checked_difference:.1e}"])
    return "\n".join("  ".join(f"{cell:>11}" for cell in row) for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, nargs="+", default=[14, 64, 256])
    parser.add_argument("--repeats", type=int, default=40, help="keys; the median is reported")
    parser.add_argument("--keep", action="store_true", help="keep the result in benchmarks/results/")
    arguments = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-headless-shell")
    if chromium is None:
        raise SystemExit("chromium: wanted on the PATH, got none; `make system` installs one")
    flags = ["--disable-background-networking", "--disable-component-update", "--no-first-run"]
    if os.geteuid() == 0:
        flags += ["--no-sandbox", "--disable-dev-shm-usage"]
    model = regard.load()
    results = []
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as place:
        path = Path(place) / "live.html"
        page = model.live_page(SENTENCE)
        page.write(path)
        assert page.live_difference is not None
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        for how in ("WebAssembly", "JavaScript"):
            for tokens in arguments.tokens:
                stated = page.live_difference
                results.append(measure(browser, path, model, stated, how, tokens, arguments.repeats))
        browser.close()
    print(table(results))
    finish("live", machine(), [asdict(result) for result in results], keep=arguments.keep)


if __name__ == "__main__":
    main()
