"""The page of a whole model's attention: its size, the time to make it, the time until it can be used.

    python benchmarks/bench_page.py [--text FILE] [--tokens 32 128 512] [--repeats 3] [--no-rival]

Beside it, in the same run and on the same text, BertViz's head view of transformers' eager attention. Both
are timed from the text to the file on disk. BertViz's file loads its libraries from the network, so that
offline only its size and its making can be compared.

The answer is checked before anything is reported: rows that the browser computed, against the weights that
the transformers library returns. The last line is the result as JSON.
"""

import argparse
import os
import shutil
import statistics
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from _harness import PARAGRAPH, finish, machine, seconds, text_of
from playwright.sync_api import Browser, sync_playwright
from transformers import AutoModel

import regard


@dataclass(frozen=True, kw_only=True)
class Result:
    tokens: int
    encoding: str
    stated_difference: float
    checked_difference: float
    page_bytes: int
    make_s: float
    interactive_ms: float
    hover_ms: float
    bertviz_bytes: int | None
    bertviz_make_s: float | None


class Rival:
    """transformers' eager attention, drawn by BertViz."""

    def __init__(self, model: regard.Model) -> None:
        folder = str(model.loaded.source.folder)
        self.tokenizer = model.tokenizer
        self.eager = AutoModel.from_pretrained(
            folder, attn_implementation="eager", dtype=torch.float32
        ).eval()

    def attentions(self, text: str) -> tuple[torch.Tensor, ...]:
        ids = torch.tensor([self.tokenizer.encode(text).token_ids])
        with torch.inference_mode():
            return self.eager(ids, output_attentions=True).attentions

    def write(self, text: str, path: Path) -> None:
        from bertviz import head_view  # type: ignore[import-untyped]

        names = [token.text for token in self.tokenizer.encode(text).tokens]
        path.write_text(head_view(self.attentions(text), names, html_action="return").data, encoding="utf-8")


def in_browser(
    browser: Browser, path: Path, attentions: tuple[torch.Tensor, ...], repeats: int
) -> tuple[float, float, float]:
    """Milliseconds to interactive and from pointer to redrawn row; the largest difference of checked rows."""
    interactive, hover, difference = [], [], 0.0
    layers, (_, heads, size, _) = len(attentions), attentions[0].shape
    for _ in range(repeats):
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(path.as_uri())
        interactive.append(page.evaluate("performance.getEntriesByName('regard-interactive')[0].startTime"))
        hover.append(
            page.evaluate(
                """async () => {
                    const token = document.querySelector('.token[data-side="query"]');
                    const number = document.querySelector('.token[data-side="key"] .number');
                    const start = performance.now();
                    token.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
                    while (!number.textContent) await new Promise(requestAnimationFrame);
                    return performance.now() - start;
                }"""
            )
        )
        rng = np.random.default_rng(0)
        for _ in range(12):
            layer, head, query = (int(rng.integers(n)) for n in (layers, heads, size))
            row = page.evaluate(f"Array.from(regard.weightsRow({layer}, {head}, {query}))")
            wanted = attentions[layer][0, head, query].numpy()
            difference = max(difference, float(np.abs(np.array(row) - wanted).max()))
        page.close()
    return statistics.median(interactive), statistics.median(hover), difference


def measure(
    model: regard.Model,
    text: str,
    rival: Rival,
    browser: Browser,
    folder: Path,
    repeats: int,
    draw_rival: bool,
) -> Result:
    path = folder / "page.html"
    trace = model.trace(text)
    page = trace.write_page(path)
    make_s = seconds({"regard": lambda: model.trace(text).write_page(path)}, repeats)["regard"]
    interactive_ms, hover_ms, difference = in_browser(browser, path, rival.attentions(text), repeats)
    # The rival's own float32 weights differ from numpy's in the last bits.
    if difference > page.largest_difference + 5e-6:
        raise SystemExit(f"wrong answer: a row differs by {difference}, stated {page.largest_difference}")
    bertviz_bytes, bertviz_make_s = None, None
    if draw_rival:
        other = folder / "bertviz.html"
        once = len(trace.tokens) > 256  # it takes half a minute and 5 GB
        bertviz_make_s = seconds({"bertviz": lambda: rival.write(text, other)}, 1 if once else repeats)[
            "bertviz"
        ]
        bertviz_bytes = other.stat().st_size
        other.unlink()
    return Result(
        tokens=len(trace.tokens),
        encoding=page.encoding,
        stated_difference=page.largest_difference,
        checked_difference=difference,
        page_bytes=path.stat().st_size,
        make_s=make_s,
        interactive_ms=interactive_ms,
        hover_ms=hover_ms,
        bertviz_bytes=bertviz_bytes,
        bertviz_make_s=bertviz_make_s,
    )


def table(results: list[Result]) -> str:
    heads = ["tokens", "page MB", "make s", "ready ms", "hover ms", "stated", "checked"]
    rows = [[*heads, "BertViz MB", "make s", "smaller", "faster"]]
    for r in results:
        row = [str(r.tokens), f"{r.page_bytes / 1e6:.2f}", f"{r.make_s:.3f}", f"{r.interactive_ms:.0f}"]
        row += [f"{r.hover_ms:.1f}", f"{r.stated_difference:.1e}", f"{r.checked_difference:.1e}"]
        if r.bertviz_bytes is not None and r.bertviz_make_s is not None:
            row += [f"{r.bertviz_bytes / 1e6:.1f}", f"{r.bertviz_make_s:.2f}"]
            row += [f"{r.bertviz_bytes / r.page_bytes:.1f}x", f"{r.bertviz_make_s / r.make_s:.1f}x"]
        rows.append(row)
    return "\n".join("  ".join(f"{cell:>10}" for cell in row) for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", type=Path, help="a text file; repeated or cut to the number of tokens")
    parser.add_argument("--tokens", type=int, nargs="+", default=[32, 128, 512])
    parser.add_argument("--repeats", type=int, default=3, help="the median is reported")
    parser.add_argument("--no-rival", action="store_true", help="leave BertViz out")
    parser.add_argument("--keep", action="store_true", help="keep the result in benchmarks/results/")
    arguments = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("chromium: wanted on the PATH, got none; install the chromium package")
    text = arguments.text.read_text(encoding="utf-8") if arguments.text else PARAGRAPH
    flags = ["--disable-background-networking", "--disable-component-update", "--no-first-run"]
    if os.geteuid() == 0:
        flags += ["--no-sandbox", "--disable-dev-shm-usage"]
    model = regard.load()
    rival = Rival(model)

    def count(text: str) -> int:
        return len(model.tokenizer.encode(text).tokens)

    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        results = [
            measure(
                model,
                text_of(size, count, text),
                rival,
                browser,
                Path(folder),
                arguments.repeats,
                not arguments.no_rival,
            )
            for size in arguments.tokens
        ]
        browser.close()
    print(table(results))
    finish(
        "page",
        machine("transformers", "bertviz"),
        [asdict(result) for result in results],
        keep=arguments.keep,
    )


if __name__ == "__main__":
    main()
