"""A page in the browser: how soon it can be used, and how much work a frame is while somebody points at it.

The work of a frame is what the page's main thread does for it: its events, and from its first animation
callback to the end of style, layout and paint, which a message that was posted in the callback marks, for it
arrives after them. Rasterising and compositing are other threads' work, except that of a canvas without a
graphics card, which is in it. One move of the pointer at a time, as Chromium gives it to the page; of its
frames the longest counts.
"""

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Browser, Page

_METER = """() => {
    if (window.framesSince) return;
    const frames = [], starts = new Map(), channel = new MessageChannel();
    let events = 0, start = 0;
    for (const name of ["pointerout", "pointerover", "pointermove", "wheel", "scroll"]) {
        addEventListener(name, () => starts.set(name, performance.now()), { capture: true, passive: true });
        addEventListener(name, () => { events += performance.now() - starts.get(name); }, { passive: true });
    }
    channel.port1.onmessage = () => {
        frames.push(performance.now() - start + events);
        events = 0;
    };
    const frame = () => {
        start = performance.now();
        channel.port2.postMessage(0);
        requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
    window.framesSince = () => new Promise(resolve => {
        let left = 3;
        const wait = () => {
            left -= 1;
            if (left > 0) requestAnimationFrame(wait);
            else setTimeout(() => resolve(frames.splice(0)));
        };
        requestAnimationFrame(wait);
    });
}"""

# The middles of what is in view of the elements of a kind.
_PLACES = """selector => [...document.querySelectorAll(selector)]
    .map(element => element.getBoundingClientRect())
    .map(box => [box.x + box.width / 2, box.y + box.height / 2])
    .filter(([x, y]) => document.elementFromPoint(x, y)?.closest(selector))"""


@dataclass(frozen=True, kw_only=True)
class Work:
    """Milliseconds of work in a frame."""

    median: float
    p95: float


# Lines of the first head with nothing pinned, so that a row is drawn when somebody points at it.
_LINES = "#view=heads&layer=0&head=0&specials=shown&form=lines"


def opened(browser: Browser, path: Path, fragment: str = _LINES) -> Page:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(path.as_uri() + fragment)
    page.wait_for_function("window.regard && regard.ready")  # its script is unpacked first
    return page


def interactive_ms(browser: Browser, path: Path, repeats: int) -> tuple[float, float]:
    """Milliseconds until the page listens, and from a pointer event to its redrawn row."""
    ready, row = [], []
    for _ in range(repeats):
        page = opened(browser, path)
        ready.append(page.evaluate("performance.getEntriesByName('regard-interactive')[0].startTime"))
        row.append(
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
        page.close()
    return statistics.median(ready), statistics.median(row)


def hover_heads(browser: Browser, path: Path, moves: int = 100) -> Work:
    """The head view, while the pointer goes down the queries in view."""
    page = opened(browser, path)
    page.locator(".grid.drawn").wait_for()
    places = page.evaluate(_PLACES, '.token[data-side="query"] .chip')
    found = _measured(page, (lambda at=at: page.mouse.move(*at) for at in _round(places, moves)))
    page.close()
    return found


def hover_wall(browser: Browser, path: Path, moves: int = 100) -> tuple[Work, Work]:
    """The model view, while the pointer goes from head to head, and while the wheel turns."""
    page = opened(browser, path, "#view=model")
    page.locator(".wall.drawn").wait_for()
    places = page.evaluate(_PLACES, ".wall-picture")
    hover = _measured(page, (lambda at=at: page.mouse.move(*at) for at in _round(places, moves)))
    page.mouse.move(*places[0])
    turns = [100 if turn // 12 % 2 == 0 else -100 for turn in range(moves)]
    scroll = _measured(page, (lambda by=by: page.mouse.wheel(0, by) for by in turns))
    page.close()
    return hover, scroll


def _round(places: list[tuple[float, float]], moves: int) -> Iterable[tuple[float, float]]:
    return (places[i % len(places)] for i in range(moves))


def _measured(page: Page, moves: Iterable[Callable[[], Any]]) -> Work:
    page.evaluate(_METER)
    page.evaluate("framesSince()")
    longest = []
    for number, move in enumerate(moves):
        move()
        frames = page.evaluate("framesSince()")
        if number >= 3:  # the first ones compile
            longest.append(max(frames))
    return Work(median=float(np.median(longest)), p95=float(np.percentile(longest, 95)))
