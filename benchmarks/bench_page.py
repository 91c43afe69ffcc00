"""The page of a whole model's attention: its size, the time to make it, the time until it can be used.

    python benchmarks/bench_page.py [--text FILE] [--tokens 32 128 512] [--repeats 3] [--no-rival]
        [--models default bert-base wall]

For the default model, for a model of BERT-base's shape, and for 24 layers of 16 heads over 512 tokens
("wall", without a forward pass: the model view is what is measured there, and the page holds what fits).
Weights of the latter two are random, and their queries and keys larger than at the start of a training, so
that rows are neither flat nor single keys.

Beside it, in the same run and on the same text, BertViz's head view of transformers' eager attention. Both
are timed from the text to the file on disk. BertViz's file loads its libraries from the network, so that
offline only its size and its making can be compared. A file of more than two gigabytes is left out.

The answer is checked before anything is reported: rows that the browser computed, against the weights that
the transformers library returns. The last line is the result as JSON.
"""

import argparse
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from _harness import PARAGRAPH, finish, machine, seconds, text_of
from _page_browser import hover_heads, hover_wall, interactive_ms, opened
from playwright.sync_api import Browser, sync_playwright
from transformers import AutoModel, BertConfig, BertModel

import regard
from regard.views import AttentionRecord, LayerRecord, Page, PageToken, Side, render_page

Attentions = tuple[torch.Tensor, ...]


@dataclass(frozen=True, kw_only=True)
class Result:
    model: str
    tokens: int
    encoding: str
    heads: int
    stated_difference: float
    checked_difference: float | None
    page_bytes: int
    make_s: float
    interactive_ms: float
    hover_ms: float
    heads_hover_ms: float
    heads_hover_p95_ms: float
    wall_hover_ms: float
    wall_hover_p95_ms: float
    wall_scroll_p95_ms: float
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


def checked(browser: Browser, path: Path, attentions: Attentions) -> float:
    """The largest difference of some rows that the browser computed."""
    difference = 0.0
    layers, (_, heads, size, _) = len(attentions), attentions[0].shape
    rng = np.random.default_rng(0)
    page = opened(browser, path)
    for _ in range(36):
        layer, head, query = (int(rng.integers(n)) for n in (layers, heads, size))
        row = page.evaluate(f"Array.from(regard.weightsRow({layer}, {head}, {query}))")
        wanted = attentions[layer][0, head, query].numpy()
        difference = max(difference, float(np.abs(np.array(row) - wanted).max()))
    page.close()
    return difference


def measure(
    name: str,
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
    attentions = rival.attentions(text)
    difference = checked(browser, path, attentions)
    # The rival's own float32 weights differ from numpy's in the last bits.
    if difference > page.largest_difference + 5e-6:
        raise SystemExit(f"wrong answer: a row differs by {difference}, stated {page.largest_difference}")
    bertviz_bytes, bertviz_make_s = None, None
    if draw_rival and 46 * sum(each.numel() for each in attentions) < 2e9:
        other = folder / "bertviz.html"
        once = len(trace.tokens) > 256  # it takes half a minute and 5 GB
        bertviz_make_s = seconds({"bertviz": lambda: rival.write(text, other)}, 1 if once else repeats)[
            "bertviz"
        ]
        bertviz_bytes = other.stat().st_size
        other.unlink()
    return result(
        name,
        page,
        path,
        browser,
        repeats,
        tokens=len(trace.tokens),
        make_s=make_s,
        checked_difference=difference,
        bertviz_bytes=bertviz_bytes,
        bertviz_make_s=bertviz_make_s,
    )


def result(
    name: str,
    page: Page,
    path: Path,
    browser: Browser,
    repeats: int,
    *,
    tokens: int,
    make_s: float,
    checked_difference: float | None = None,
    bertviz_bytes: int | None = None,
    bertviz_make_s: float | None = None,
) -> Result:
    """What is reported of a page, with what is measured of it in the browser."""
    interactive, hover = interactive_ms(browser, path, repeats)
    heads = hover_heads(browser, path)
    wall, scroll = hover_wall(browser, path)
    return Result(
        model=name,
        tokens=tokens,
        encoding=page.encoding,
        heads=sum(map(len, page.held.values())),
        stated_difference=page.largest_difference,
        checked_difference=checked_difference,
        page_bytes=path.stat().st_size,
        make_s=make_s,
        interactive_ms=interactive,
        hover_ms=hover,
        heads_hover_ms=heads.median,
        heads_hover_p95_ms=heads.p95,
        wall_hover_ms=wall.median,
        wall_hover_p95_ms=wall.p95,
        wall_scroll_p95_ms=scroll.p95,
        bertviz_bytes=bertviz_bytes,
        bertviz_make_s=bertviz_make_s,
    )


def measure_wall(browser: Browser, folder: Path, repeats: int) -> Result:
    """24 layers of 16 heads over 512 tokens: half of each head is random, half falls with the distance."""
    layers, heads, size, dim = 24, 16, 512, 64
    rng = np.random.default_rng(0)
    angles = np.arange(size)[:, None] * np.exp(-np.arange(dim // 4) / 4)
    near = np.concatenate((np.cos(angles), np.sin(angles)), axis=1).astype(np.float32)
    made = []
    for layer in range(layers):
        q, k = rng.standard_normal((2, heads, size, dim), dtype=np.float32)
        share = rng.uniform(0, 3, (heads, 1, 1)).astype(np.float32)
        q[:, :, : dim // 2] += share * near
        k[:, :, : dim // 2] += share * near
        made.append(LayerRecord(layer=layer, q=q, k=k, scale=dim**-0.5))
    words = [f"w{i}" for i in range(size)]
    side = Side(text=" ".join(words), tokens=tuple(PageToken(text=each, sequence=0) for each in words))
    record = AttentionRecord(model="random, 24 x 16", encoder=side, layers={"encoder": tuple(made)})
    path = folder / "wall.html"
    page = render_page(record)
    page.write(path)
    make_s = seconds({"regard": lambda: render_page(record).write(path)}, 1)["regard"]
    return result("24 x 16", page, path, browser, repeats, tokens=size, make_s=make_s)


def bert_base(like: regard.Model, folder: Path) -> regard.Model:
    """A model of BERT-base's shape with random weights, and the default model's tokenizer."""
    torch.manual_seed(0)
    network = BertModel(BertConfig(), add_pooling_layer=False)
    for name, weights in network.named_parameters():
        if name.endswith(("query.weight", "key.weight")):
            weights.data *= 3
    network.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        found = like.loaded.source.folder / name
        if found.exists():
            shutil.copy(found, folder / name)
    return regard.load(str(folder))


def table(results: list[Result]) -> str:
    names = ["model", "tokens", "heads", "page MB", "make s", "ready ms", "row ms", "stated", "checked"]
    rows = [[*names, "heads p95", "wall p95", "scroll p95", "BertViz MB", "make s", "smaller", "faster"]]
    for r in results:
        row = [r.model, str(r.tokens), str(r.heads), f"{r.page_bytes / 1e6:.2f}", f"{r.make_s:.3f}"]
        row += [f"{r.interactive_ms:.0f}", f"{r.hover_ms:.1f}", f"{r.stated_difference:.1e}"]
        row += ["-" if r.checked_difference is None else f"{r.checked_difference:.1e}"]
        row += [f"{r.heads_hover_p95_ms:.1f}", f"{r.wall_hover_p95_ms:.1f}", f"{r.wall_scroll_p95_ms:.1f}"]
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
    parser.add_argument("--models", nargs="+", default=["default", "bert-base", "wall"])
    parser.add_argument("--repeats", type=int, default=3, help="the median is reported")
    parser.add_argument("--no-rival", action="store_true", help="leave BertViz out")
    parser.add_argument("--keep", action="store_true", help="keep the result in benchmarks/results/")
    arguments = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-headless-shell")
    if chromium is None:
        raise SystemExit("chromium: wanted on the PATH, got none; `make system` installs one")
    text = arguments.text.read_text(encoding="utf-8") if arguments.text else PARAGRAPH
    flags = ["--disable-background-networking", "--disable-component-update", "--no-first-run"]
    if os.geteuid() == 0:
        flags += ["--no-sandbox", "--disable-dev-shm-usage"]
    default = regard.load()
    results = []
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        for name in arguments.models:
            if name == "wall":
                results.append(measure_wall(browser, folder, arguments.repeats))
                continue
            model = default if name == "default" else bert_base(default, folder / name)
            rival = Rival(model)
            for size in arguments.tokens:
                text_ = text_of(size, lambda text: len(default.tokenizer.encode(text).tokens), text)
                results.append(
                    measure(
                        name,
                        model,
                        text_,
                        rival,
                        browser,
                        folder,
                        arguments.repeats,
                        not arguments.no_rival,
                    )
                )
        browser.close()
    print(table(results))
    finish(
        "page",
        machine("transformers", *([] if arguments.no_rival else ["bertviz"])),
        [asdict(result) for result in results],
        keep=arguments.keep,
    )


if __name__ == "__main__":
    main()
