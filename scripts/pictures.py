"""Draw the pictures of the documentation: every view of the page, from real traces in a real browser.

    make pictures                              all of them, into docs/images/
    .venv/bin/python scripts/pictures.py heads  those whose name begins so; --to FOLDER puts them elsewhere

Needs what `make test` installs, Chromium among it. The model is the default one; the
pages of an encoder-decoder, a decoder and a long text are those that examples.py has written.
"""

import argparse
import io
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

import regard
from regard.tracing import comparison_page

IMAGES = Path(__file__).parent.parent / "docs" / "images"
EXAMPLES = IMAGES.parent / "examples"
BANK = "Write a poem about a man fishing on a river bank."
BANKS = [BANK, "Write a poem about a man withdrawing money from a bank."]
MONEY = "Write a poem about a man fishing on a money bank."
ARABIC = "جلس الصياد على ضفة النهر."
HEBREW = "הדייג ישב על גדת הנהר."
DESK = (1280, 800)
PHONE = (390, 844)


@dataclass(frozen=True, kw_only=True)
class Shot:
    """One picture: which page, what the address says, the window in CSS pixels.

    `paper` draws the page as it is printed; into a live page
    `typed` is typed, and the button `pressed` pressed.
    """

    name: str
    page: str
    fragment: str
    size: tuple[int, int] = DESK
    phone: bool = False
    paper: bool = False
    typed: str = ""
    pressed: str = ""


HEAD = "view=heads&layer=5&head=11&pin=query-11"
NEURON = "view=neuron&layer=3&head=5&pin=query-11"
MEASURE = "view=heads&layer=5&head=11&pin=query-11&what=value_zeroing"

SHOTS = (
    # What a newcomer gets: nothing is chosen.
    Shot(name="door", page="bank", fragment="", size=(1280, 640)),
    Shot(name="door-open", page="bank", fragment="view=door&asks=why,without", size=(1280, 1700)),
    Shot(name="door-phone", page="bank", fragment="theme=dark", size=PHONE, phone=True),
    Shot(name="heads", page="bank", fragment="view=heads"),
    Shot(name="heads-dark", page="bank", fragment="view=heads&theme=dark"),
    Shot(name="heads-map", page="bank", fragment="form=map"),
    Shot(name="heads-all", page="bank", fragment="form=all"),
    Shot(name="heads-several", page="bank", fragment=f"{HEAD}&also=5.11,3.5,0.3,2.9", size=(1280, 900)),
    Shot(name="heads-phone", page="bank", fragment="view=heads", size=PHONE, phone=True),
    Shot(
        name="heads-pair",
        page="pair",
        fragment="view=heads&layer=5&head=3&filter=ab&specials=hidden&pin=query-2",
    ),
    Shot(name="heads-long", page="long", fragment="view=heads&layer=5&head=2&pin=query-494"),
    Shot(
        name="heads-arabic",
        page="arabic",
        fragment="view=heads&layer=3&head=11&units=words&specials=hidden&pin=query-16",
    ),
    Shot(
        name="heads-hebrew", page="hebrew", fragment="view=heads&layer=4&head=9&units=words&specials=hidden"
    ),
    Shot(name="heads-paper", page="bank", fragment="view=heads", size=(760, 1000), paper=True),
    Shot(name="story", page="bank", fragment="view=story&step=5"),
    Shot(name="story-table", page="bank", fragment="view=story&step=2"),
    Shot(name="story-context", page="bank", fragment="view=story&step=8&theme=dark"),
    Shot(name="story-phone", page="bank", fragment="view=story&step=4", size=PHONE, phone=True),
    Shot(
        name="model",
        page="bank",
        fragment="view=model&stat=to_previous&by=most&layer=2&head=11",
        size=(1280, 900),
    ),
    Shot(name="model-dark", page="bank", fragment="view=model&theme=dark&layer=2&head=11"),
    Shot(name="model-phone", page="bank", fragment="view=model", size=PHONE, phone=True),
    Shot(name="calculation", page="bank", fragment=NEURON, size=(1280, 1190)),
    Shot(name="calculation-dark", page="bank", fragment=f"{NEURON}&theme=dark"),
    Shot(name="calculation-phone", page="bank", fragment=NEURON, size=PHONE, phone=True),
    Shot(name="positions", page="bank", fragment="view=positions"),
    Shot(name="positions-dark", page="bank", fragment="view=positions&theme=dark"),
    Shot(name="positions-phone", page="bank", fragment="view=positions", size=PHONE, phone=True),
    Shot(name="movement", page="banks", fragment=""),
    Shot(name="movement-dark", page="banks", fragment="theme=dark"),
    Shot(name="movement-phone", page="banks", fragment="", size=PHONE, phone=True),
    Shot(name="training", page="emergence", fragment="layer=1&head=2", size=(1280, 900)),
    Shot(
        name="training-dark", page="emergence", fragment="theme=dark&layer=1&head=2&at=22", size=(1280, 900)
    ),
    Shot(name="training-phone", page="emergence", fragment="layer=1&head=2&at=22", size=PHONE, phone=True),
    Shot(name="writing", page="writing", fragment=""),
    Shot(name="writing-phone", page="writing", fragment="theme=dark", size=PHONE, phone=True),
    Shot(name="measures", page="measures", fragment=MEASURE, size=(1280, 880)),
    Shot(name="difference", page="difference", fragment="view=difference", size=(1280, 1000)),
    Shot(
        name="difference-head",
        page="difference",
        fragment="view=heads&layer=5&head=11&specials=hidden",
        size=(1280, 960),
    ),
    Shot(
        name="difference-phone",
        page="difference",
        fragment="view=difference&theme=dark",
        size=PHONE,
        phone=True,
    ),
    Shot(
        name="encoder-decoder",
        page="translation",
        fragment="view=heads&kind=cross&layer=1&head=1",
        size=(1280, 900),
    ),
    Shot(
        name="live",
        page="live",
        fragment="view=heads&layer=5&head=6",
        typed=MONEY,
        pressed="Switch off head 5.6",
    ),
    Shot(
        name="live-phone",
        page="live",
        fragment="view=heads&theme=dark",
        size=PHONE,
        phone=True,
        typed=MONEY,
    ),
    Shot(name="answer", page="answer", fragment="word=5&layer=23&head=4", size=(1280, 800)),
    Shot(name="decoder", page="induction", fragment="view=heads", size=(1280, 860)),
)


def write_pages(folder: Path, names: set[str]) -> dict[str, Path]:
    """The pages with these names, as files."""
    model = regard.load()
    pages = {
        "bank": lambda: model.trace(BANK).page(),
        "measures": lambda: model.trace(BANK).page(measures=["value_zeroing", "rollout"]),
        "difference": lambda: model.trace(BANKS[0]).difference_page(model.trace(BANKS[1])),
        "banks": lambda: comparison_page(model.trace(BANKS), "bank"),
        "pair": lambda: model.trace("Time flies like an arrow.", "Fruit flies like a banana.").page(),
        "arabic": lambda: model.trace(ARABIC).page(),
        "hebrew": lambda: model.trace(HEBREW).page(),
        "live": lambda: model.live_page(BANK),
    }
    os.chdir(folder)  # so that the page names a model and no folder of this machine
    files = {name: EXAMPLES / f"{name}.html" for name in names - pages.keys()}
    for name in sorted(names & pages.keys()):
        files[name] = folder / f"{name}.html"
        pages[name]().write(files[name])
    return files


def picture(browser: Browser, file: Path, shot: Shot) -> bytes:
    """A PNG of the page, as a browser shows it."""
    context = browser.new_context(
        viewport={"width": shot.size[0], "height": shot.size[1]},
        device_scale_factor=2 if shot.phone else 1,
        has_touch=shot.phone,
        color_scheme="light",
    )
    page = context.new_page()
    page.goto(f"{file.as_uri()}#{shot.fragment}")
    page.wait_for_timeout(1500)  # thumbnails are drawn when the browser is idle
    if shot.typed:
        page.get_by_label("Type a sentence").fill(shot.typed)
        page.wait_for_timeout(1000)
    if shot.pressed:
        page.get_by_role("button", name=shot.pressed).click()
        page.wait_for_timeout(1000)
    page.evaluate("document.activeElement.blur()")
    if shot.paper:
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.emulate_media(media="print")
        page.wait_for_timeout(300)
    shown = page.screenshot(full_page=shot.paper)
    context.close()
    return shown


def small(png: bytes) -> bytes:
    """The same picture in 256 colours, which a page of few hues has hardly more of."""
    image = Image.open(io.BytesIO(png)).convert("RGB").quantize(256, kmeans=2, dither=Image.Dither.NONE)
    stream = io.BytesIO()
    image.save(stream, "PNG", optimize=True)
    return stream.getvalue()


def main() -> None:
    """Draws the pictures that are asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="beginnings of names; all of them by default")
    parser.add_argument("--to", type=Path, default=IMAGES)
    arguments = parser.parse_args()
    wanted = [s for s in SHOTS if not arguments.names or s.name.startswith(tuple(arguments.names))]
    if not wanted:
        raise SystemExit(f"no picture's name begins so; there are {', '.join(s.name for s in SHOTS)}")
    chromium = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if chromium is None:
        raise SystemExit("chromium-headless-shell: wanted on the PATH, got none; `make system` installs it")
    to = arguments.to.resolve()
    to.mkdir(parents=True, exist_ok=True)
    flags = ["--no-sandbox", "--disable-dev-shm-usage"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        files = write_pages(Path(folder), {shot.page for shot in wanted})
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        for shot in wanted:
            path = to / f"{shot.name}.png"
            path.write_bytes(small(picture(browser, files[shot.page], shot)))
            print(f"{path}  {path.stat().st_size // 1024} KiB", file=sys.stderr)
        browser.close()


if __name__ == "__main__":
    main()
