"""The page that writes: its size, when it writes, and how fast, for a prompt and for 200 tokens after it.

    python benchmarks/bench_writes.py [--tokens 200] [--repeats 9] [--keep]

Of SmolLM2-135M-Instruct in its own 4 and 8 bits, in Chromium, with WebAssembly. A prompt is typed whole, so
that all of it is read; it is timed from the event of the field to the frame after its next words are in the
page. Then "Go on" writes at temperature 0: each token is timed from the one before it, with the drawing.
Beside it, in the same run, `model.generate` in Python on the same weights, and in the same browser
onnxruntime-web on the same weights (_writes_rival.py, which npm installs into build/), with its cache of keys
and values and on one thread, as the page: without a tokenizer, a page, or a drawing. (The model of
transformer-explainer cannot be had without its network.)

The answers are checked before anything is told: the text that the page writes is Python's, the rival's tokens
are too, and its logits are within 1e-3. The last line is the result as JSON.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _harness import finish, machine
from _writes_rival import FORMS, VERSION, rival
from playwright.sync_api import Browser, Page, sync_playwright

import regard

PROMPT = "When Mary and John went to the store, John gave a drink to"
STORY = "Once upon a time, there was a little girl who lived in"
OTHER = "The old lighthouse on the hill was dark, and the sailors in the bay could"

TURN = 20  # tokens that each side writes before the next does

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
class Rival:
    form: str
    file_bytes: int
    prompt_ms: float
    first_ms: float
    last_ms: float
    tokens_a_second: float
    words_a_second: float
    logits_apart: float
    prompt_ratio: float  # the page's time over the rival's
    token_ratio: float


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
    rivals: list[Rival]


def settled(page: Page) -> None:
    page.locator(".live:not(.working)").wait_for(state="attached", timeout=60_000)


class Rivals:
    """onnxruntime-web, in each of its forms."""

    def __init__(self, browser: Browser, model: regard.Model, place: Path, stack: ExitStack) -> None:
        self.model, self.place = model, place
        self.pages = {form: stack.enter_context(rival(browser, model, form, place)) for form in FORMS}
        self.prompts: dict[str, list[float]] = {form: [] for form in FORMS}
        self.apart = dict.fromkeys(FORMS, 0.0)
        self.ids: dict[str, list[int]] = {form: [] for form in FORMS}
        self.times: dict[str, list[float]] = {form: [] for form in FORMS}

    def read(self, text: str) -> None:
        ids = list(self.model.tokenizer.encode(text).token_ids)
        with torch.no_grad():
            logits = self.model(torch.tensor([ids])).logits
        assert logits is not None
        for form, page in self.pages.items():
            self.prompts[form].append(page.evaluate("prompt", ids))
            apart = np.abs(np.array(page.evaluate("logits()")) - logits[0, -1].numpy()).max()
            self.apart[form] = max(self.apart[form], float(apart))
            if apart > 1e-3:
                raise SystemExit(f"wrong answer: logits of onnxruntime-web ({form}) differ by {apart}")

    def write(self, count: int) -> None:
        for form, page in self.pages.items():
            told = page.evaluate("written", count)
            self.ids[form] += told["ids"]
            self.times[form] += told["times"]

    def results(
        self, wanted: Sequence[int], words: int, page_prompt: float, page_token: float
    ) -> list[Rival]:
        """Of a text of these tokens and so many words, and beside the page's milliseconds."""
        for form, ids in self.ids.items():
            if ids != list(wanted):
                raise SystemExit(f"wrong answer: onnxruntime-web ({form}) writes other tokens than Python")
        return [
            Rival(
                form=form,
                file_bytes=(self.place / f"{form}.onnx").stat().st_size,
                prompt_ms=statistics.median(self.prompts[form]),
                first_ms=statistics.median(times[:20]),
                last_ms=statistics.median(times[-20:]),
                tokens_a_second=1000 * len(times) / sum(times),
                words_a_second=1000 * words / sum(times),
                logits_apart=self.apart[form],
                prompt_ratio=page_prompt / statistics.median(self.prompts[form]),
                token_ratio=page_token / statistics.mean(times),
            )
            for form, times in self.times.items()
        ]


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
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        path = Path(place) / "writes.html"
        model.live_page("The capital of France is").write(path)
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(path.as_uri())
        page.locator(".writer-bars > li").first.wait_for(timeout=60_000)
        live = page.evaluate("performance.now()")
        page.get_by_role("slider", name="Temperature").fill("0")
        settled(page)
        rivals = Rivals(browser, model, Path(place), stack)
        prompts, python = [], []
        for _ in range(arguments.repeats):
            for text in (OTHER, PROMPT):
                prompts.append(page.evaluate(TYPED, text))
                settled(page)
                began = time.perf_counter()
                model.generate(text, max_length=1)
                python.append(1000 * (time.perf_counter() - began))
                rivals.read(text)
        page.evaluate(TYPED, STORY)
        settled(page)
        rivals.read(STORY)
        times: list[float] = []
        while len(times) < arguments.tokens:
            times += page.evaluate(WRITTEN, TURN)
            settled(page)
            rivals.write(TURN)
        written = page.get_by_label("Type a sentence").input_value().removeprefix(STORY)
        began = time.perf_counter()
        wanted = model.generate(STORY, max_length=len(times) + len(times) // 10 + 8)
        seconds = time.perf_counter() - began
        if not wanted.text.removeprefix(STORY).startswith(written):
            raise SystemExit(f"wrong answer: the page writes {written!r}, Python {wanted.text!r}")
        ids = wanted.token_ids[: len(times)]
        words = len(model.tokenizer.decode(ids).split())
        prompt, token = statistics.median(prompts), statistics.mean(times)
        result = Result(
            page_bytes=path.stat().st_size,
            live_ms=live,
            prompt_tokens=len(model.tokenizer.encode(PROMPT).tokens),
            prompt_ms=prompt,
            python_prompt_ms=statistics.median(python),
            tokens=len(times),
            first_ms=statistics.median(times[:20]),
            last_ms=statistics.median(times[-20:]),
            tokens_a_second=1000 / token,
            words_a_second=1000 * words / sum(times),
            python_tokens_a_second=len(wanted.token_ids) / seconds,
            rivals=rivals.results(ids, words, prompt, token),
        )
    tell(asdict(result))
    facts = machine("onnx") | {"onnxruntime-web": VERSION}
    finish("writes", facts, [asdict(result)], keep=arguments.keep)


def tell(facts: dict[str, Any]) -> None:
    for name, value in facts.items():
        if isinstance(value, list):
            for each in value:
                print("\n    beside onnxruntime-web")
                tell(each)
        else:
            print(f"{name:>24}  {f'{value:,.4g}' if isinstance(value, float) else value}")


if __name__ == "__main__":
    main()
