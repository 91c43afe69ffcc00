"""The page that writes: its size, when it writes, and how fast, for a prompt and for 200 tokens after it.

    python benchmarks/bench_writes.py [--tokens 200] [--repeats 9] [--keep]

Of SmolLM2-135M-Instruct in its own 4 and 8 bits, in Chromium, with WebAssembly. A prompt is typed whole, so
that all of it is read; it is timed from the event of the field to the frame after its next words are in the
page. Then "Go on" writes at temperature 0: each token is timed from the one before it, with the drawing.
Beside it, in the same run, `model.generate` in Python on the same weights. (The model of
transformer-explainer cannot be had without its network.)

The answer is checked before anything is told: the text that the page writes is Python's. The last line is
the result as JSON.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from _harness import finish, machine
from playwright.sync_api import Page, sync_playwright

import regard

PROMPT = "When Mary and John went to the store, John gave a drink to"
STORY = "Once upon a time, there was a little girl who lived in"
OTHER = "The old lighthouse on the hill was dark, and the sailors in the bay could"

TYPED = """async text => {
    const frame = () => new Promise(requestAnimationFrame);
    const field = document.querySelector(".live textarea");
    const old = document.querySelector(".writer-bars > li");
    const start = performance.now();
    field.value = text;
    field.dispatchEvent(new Event("input"));
    while (document.querySelector(".writer-bars > li") === old) await frame();
    await frame();
    return performance.now() - start;
}"""

WRITTEN = """async count => {
    const frame = () => new Promise(requestAnimationFrame);
    const field = document.querySelector(".live textarea");
    document.querySelector(".writer-go").click();
    let [last, at] = [field.value, performance.now()];
    const times = [];
    while (times.length < count && document.querySelector(".writer-go").textContent === "Stop") {
        await frame();
        if (field.value === last) continue;
        times.push(performance.now() - at);
        [last, at] = [field.value, performance.now()];
    }
    if (times.length === count) document.querySelector(".writer-go").click();
    return times;
}"""


@dataclass(frozen=True, kw_only=True)
class Result:
    page_bytes: int
    live_ms: float
    prompt_tokens: int
    prompt_ms: float
    python_prompt_ms: float
    tokens: int
    first_ms: float
    last_ms: float
    tokens_a_second: float
    words_a_second: float
    python_tokens_a_second: float


def settled(page: Page) -> None:
    page.locator(".live:not(.working)").wait_for(state="attached", timeout=60_000)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=9, help="prompts; the median is reported")
    parser.add_argument("--keep", action="store_true", help="keep the result in benchmarks/results/")
    arguments = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-headless-shell")
    if chromium is None:
        raise SystemExit("chromium: wanted on the PATH, got none; `make system` installs one")
    flags = ["--disable-background-networking", "--disable-component-update", "--no-first-run"]
    if os.geteuid() == 0:
        flags += ["--no-sandbox", "--disable-dev-shm-usage"]
    model = regard.load("smollm2")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as place:
        path = Path(place) / "writes.html"
        model.live_page("The capital of France is").write(path)
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(path.as_uri())
        page.locator(".writer-bars > li").first.wait_for(timeout=60_000)
        live = page.evaluate("performance.now()")
        page.get_by_role("slider", name="Temperature").fill("0")
        settled(page)
        prompts, python = [], []
        for _ in range(arguments.repeats):
            for text in (OTHER, PROMPT):
                prompts.append(page.evaluate(TYPED, text))
                settled(page)
                began = time.perf_counter()
                model.generate(text, max_length=1)
                python.append(1000 * (time.perf_counter() - began))
        page.evaluate(TYPED, STORY)
        settled(page)
        times = page.evaluate(WRITTEN, arguments.tokens)
        settled(page)
        written = page.get_by_label("Type a sentence").input_value().removeprefix(STORY)
        began = time.perf_counter()
        wanted = model.generate(STORY, max_length=arguments.tokens + 8)
        seconds = time.perf_counter() - began
        if not wanted.text.removeprefix(STORY).startswith(written):
            raise SystemExit(f"wrong answer: the page writes {written!r}, Python {wanted.text!r}")
        browser.close()
        result = Result(
            page_bytes=path.stat().st_size,
            live_ms=live,
            prompt_tokens=len(model.tokenizer.encode(PROMPT).tokens),
            prompt_ms=statistics.median(prompts),
            python_prompt_ms=statistics.median(python),
            tokens=len(times),
            first_ms=statistics.median(times[:20]),
            last_ms=statistics.median(times[-20:]),
            tokens_a_second=1000 * len(times) / sum(times),
            words_a_second=1000 * len(written.split()) / sum(times),
            python_tokens_a_second=len(wanted.token_ids) / seconds,
        )
    for name, value in asdict(result).items():
        print(f"{name:>24}  {value:,.1f}" if isinstance(value, float) else f"{name:>24}  {value:,}")
    finish("writes", machine(), [asdict(result)], keep=arguments.keep)


if __name__ == "__main__":
    main()
