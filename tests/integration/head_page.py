"""A small page of random heads, and what its tests read off the head view."""

import base64
import re
from typing import Any

import numpy as np
from playwright.sync_api import Page as BrowserPage

from regard.views import AttentionRecord, PageToken
from unit.views.conftest import encoder_record

LAYERS, HEADS, HEAD_DIM = 2, 6, 5
# What tests of one thing begin with: it stays what it is whatever a page opens on.
PLAIN = {"layer": "0", "head": "0", "specials": "shown"}
WORDS = ("[CLS]", "time", "fl", "##ies", "[SEP]", "fruit", "bananas", "[SEP]")
SEQUENCES = (None, 0, 0, 0, None, 1, 1, None)
PIECES = (None, 0, 1, 1, None, 2, 3, None)
TOKENS = len(WORDS)


def record(
    *,
    pair: bool = False,
    kv_heads: int = HEADS,
    tokens: int = TOKENS,
    head_dim: int = HEAD_DIM,
    size: float = 2,
    offset: float = 0,
) -> AttentionRecord:
    rng = np.random.default_rng(11)
    items = tuple(
        PageToken(
            text=WORDS[i % TOKENS],
            special=SEQUENCES[i % TOKENS] is None,
            sequence=SEQUENCES[i % TOKENS] if pair or SEQUENCES[i % TOKENS] is None else 0,
            word=None if PIECES[i % TOKENS] is None else i - (WORDS[i % TOKENS] == "##ies"),
        )
        for i in range(tokens)
    )
    return encoder_record(
        text="time flies",
        pair="fruit bananas" if pair else None,
        model="random",
        tokens=items,
        q=size * rng.standard_normal((LAYERS, HEADS, tokens, head_dim), dtype=np.float32),
        k=offset + size * rng.standard_normal((LAYERS, kv_heads, tokens, head_dim), dtype=np.float32),
        scale=head_dim**-0.5,
    )


def weights(record: AttentionRecord, layer: int, head: int) -> Any:
    """Python's weights (queries, keys), in float64, written out from the definition."""
    of = record.layers["encoder"][layer]
    kv_head = head // (len(of.q) // len(of.k))
    scores = of.scale * (of.q[head].astype(float) @ of.k[kv_head].astype(float).T)
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def plain(fragment: str = "") -> str:
    """The fragment of an address, with the first head and special tokens, unless it says otherwise."""
    return "&".join(
        (fragment or "#", *(f"{name}={value}" for name, value in PLAIN.items() if f"{name}=" not in fragment))
    )


def go(page: BrowserPage, fragment: str = "") -> None:
    """Leads an open page to another of its addresses, which costs less than opening it anew."""
    page.evaluate(
        """fragment => new Promise((done) => {
            if (fragment === location.hash) throw new Error("it is there already");
            addEventListener("hashchange", () => setTimeout(done), { once: true });
            location.hash = fragment;
        })""",
        plain(fragment),
    )


def token(page: BrowserPage, side: str, index: int) -> Any:
    return page.locator(f'.token[data-side="{side}"][data-token="{index}"]')


def drawn(page: BrowserPage) -> None:
    """Waits until what has changed is drawn: lines, bars and numbers are, before the next frame."""
    page.evaluate(
        "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))"
    )


def numbers(page: BrowserPage, side: str) -> list[str]:
    drawn(page)
    return page.locator(f'.token[data-side="{side}"] .number').all_inner_texts()


def shown(page: BrowserPage, side: str) -> list[int]:
    found = page.locator(f'.token[data-side="{side}"]')
    return [int(index) for index in found.evaluate_all("all => all.map(e => e.dataset.token)")]


def state(page: BrowserPage) -> dict[str, Any]:
    state: dict[str, Any] = page.evaluate("regard.state()")
    return state


def address(page: BrowserPage) -> str:
    """What the page's address says, but for the special tokens, which tests see unless they hide them."""
    return page.url.partition("#")[2].replace("&specials=shown", "")


def ink(page: BrowserPage, canvas: str) -> Any:
    """How opaque each pixel of a canvas is, 0 to 255: (height, width)."""
    drawn(page)
    width, height, sent = page.locator(canvas).evaluate(
        """canvas => {
            const { width, height } = canvas;
            // Read from a copy: Chromium warns of a canvas that is read twice.
            const copy = new OffscreenCanvas(width, height).getContext("2d");
            copy.drawImage(canvas, 0, 0);
            const { data } = copy.getImageData(0, 0, width, height);
            let sent = ""; // a list of a million numbers would take Playwright seconds
            for (let at = 3; at < data.length; at += 4) sent += String.fromCharCode(data[at]);
            return [width, height, btoa(sent)];
        }"""
    )
    return np.frombuffer(base64.b64decode(sent), np.uint8).reshape(height, width).astype(int)


def has_class(name: str) -> re.Pattern[str]:
    """A class among others."""
    return re.compile(rf"(^|\s){name}(\s|$)")


def token_of_text(page: BrowserPage, index: int) -> Any:
    """A word of the running text, which stands for query and key."""
    return page.locator(f'.running [data-token="{index}"]')


def percent(weight: float) -> str:
    """A weight as lists have it."""
    return "< 1 %" if 0 < weight < 0.005 else f"{int(100 * weight + 0.5)} %"


def listed(page: BrowserPage) -> list[float]:
    """The numbers of the list, in full: they are the titles of its per cents."""
    return [float(each) for each in page.locator(".top-number").evaluate_all("all => all.map(e => e.title)")]
