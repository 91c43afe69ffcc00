"""What is in the file: the policy, the data, and nothing that a token could have put there."""

import base64
import gzip
import hashlib
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import examples_renew
import numpy as np
import pytest

from regard.views import AttentionRecord, PageToken, _assets, render_page
from regard.views._contents import round_up
from regard.views._live import LiveRecord, LiveWeights, ServedRecord
from unit.views.conftest import encoder_record, facts_of, steps_of

STATIC = Path(__file__).parents[3] / "src/regard/views/static"  # a wheel has its bundles alone

MakeRecord = Callable[..., AttentionRecord]

HOSTILE = (
    "</script><img src=x onerror=alert(1)>",
    "<!--<script>",
    "{{script}}",
    "nul\0nul",
    "\u202eevil",
    "שלום",
    "🙂",
    "\ud800",
    "&lt;\u2028'\"",
)


class _Reader(HTMLParser):
    """Elements with their attributes, and the raw text inside each script and style."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[str] = []
        self.open = False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.inside.append("")
        self.open = True

    def handle_endtag(self, tag: str) -> None:
        self.open = False

    def handle_data(self, data: str) -> None:
        if self.open:
            self.inside[-1] += data

    def all(self, tag: str, **attributes: str) -> list[str]:
        return [
            text
            for (name, attrs), text in zip(self.elements, self.inside, strict=True)
            if name == tag and all(attrs.get(key) == value for key, value in attributes.items())
        ]


def test_policy_names_the_script_and_the_style_by_hash(make_record: MakeRecord) -> None:
    html = render_page(make_record()).html
    reader = _Reader(html)
    policy = next(a["content"] for tag, a in reader.elements if a.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert policy.index("default-src") < html.index("<script")
    runs = [
        text
        for (tag, a), text in zip(reader.elements, reader.inside, strict=True)
        if tag == "script" and "type" not in a
    ]
    assert len(runs) == 1
    packed = [reader.all("script", id=f"regard-{name}")[0] for name in ("script", "style")]
    script, style = (_assets.unpacked(text).encode() for text in packed)
    loader, early, script, style = (
        f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'"
        for text in (runs[0].encode(), reader.all("style")[0].encode(), script, style)
    )
    assert f"script-src {loader} {script}; style-src {early} {style};" in policy


def test_file_names_no_address_and_no_handler(make_record: MakeRecord) -> None:
    html = render_page(make_record()).html
    assert "://" not in html
    for _, attributes in _Reader(html).elements:
        assert not [name for name in attributes if name == "style" or name.startswith("on")]
        assert attributes.get("src") is None
        assert attributes.get("href") in (None, "data:,")


def test_hostile_text_changes_no_markup_and_comes_back_whole(make_record: MakeRecord) -> None:
    plain = _Reader(render_page(make_record()).html).elements
    tokens = tuple(PageToken(text=HOSTILE[i % len(HOSTILE)], sequence=0) for i in range(7))
    for text in HOSTILE:
        html = render_page(make_record(text=text, pair=text, model=text, tokens=tokens)).html
        html.encode("utf-8")
        assert [tag for tag, _ in _Reader(html).elements] == [tag for tag, _ in plain]
        assert not set("<>&") & set(_Reader(html).all("script", id="regard-facts")[0])
        facts = facts_of(html)
        side = facts["sides"]["encoder"]
        assert side["text"] == side["pair"] == facts["model"] == text
        assert [token["text"] for token in side["tokens"]] == [token.text for token in tokens]


def test_data_comes_back_to_the_bit(make_record: MakeRecord) -> None:
    record = make_record(k=np.random.default_rng(2).standard_normal((2, 1, 7, 5), dtype=np.float32))
    page = render_page(record)
    facts, reader = facts_of(page.html), _Reader(page.html)
    layers = facts["kinds"]["encoder"]["layers"]
    assert [(each["layer"], each["heads"], each["kvHeads"], each["headDim"]) for each in layers] == [
        (0, 3, 1, 5),
        (1, 3, 1, 5),
    ]
    for each, layer in zip(layers, record.layers["encoder"], strict=True):
        for name, values in (("q", layer.q), ("k", layer.k)):
            raw = base64.b64decode(reader.all("script", id=f"regard-{each[name]['values']}")[0])
            integers = np.frombuffer(raw, "<i2").reshape(len(values), 7, 5)
            step = steps_of(page, each[name]["steps"]).reshape(len(values), 1, 5)
            np.testing.assert_allclose(integers * step, values, atol=float(step.max()) * 0.501)


def test_stated_difference_is_in_the_file(make_record: MakeRecord) -> None:
    page = render_page(make_record())
    facts = facts_of(page.html)
    assert facts["difference"] == page.largest_difference
    assert facts["encoding"] == page.encoding == "int16"


def test_512_tokens_of_6_layers_stay_under_8_megabytes() -> None:
    rng = np.random.default_rng(4)
    shape = (6, 12, 512, 32)
    tokens = tuple(PageToken(text=f"token{i}", sequence=0, word=i) for i in range(512))
    q, k = (rng.standard_normal(shape, dtype=np.float32) for _ in range(2))
    record = encoder_record(text="x " * 512, model="m", tokens=tokens, q=q, k=k, scale=32**-0.5)
    page = render_page(record)
    assert page.encoding == "int16"
    assert len(page.html.encode()) < 8_000_000


@pytest.mark.parametrize(
    ("value", "wanted"), [(0.0, 2.4e-07), (3.11e-5, 3.2e-05), (9.99e-4, 1e-3), (0.5, 0.51), (2.9e-7, 5.3e-7)]
)
def test_difference_is_rounded_up(value: float, wanted: float) -> None:
    assert round_up(value) == pytest.approx(wanted, rel=1e-12)
    assert round_up(value) >= value


@pytest.mark.parametrize(
    "source", [_assets.script(), _assets.script(usual=True), _assets.script(live=True), _assets.worker()]
)
def test_script_stays_inside_its_element_and_its_means(source: str) -> None:
    assert not re.search(r"</script|<!--", source, re.IGNORECASE)
    # A page may have its weights in a file beside it, and keep them; others may ask nobody (`policy`).
    source = source.replace("fetch(this.url)", "", 1).replace("caches.open", "", 2)
    for forbidden in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "fetch(",
        "XMLHttpRequest",
        "import(",
        "localStorage",
        "sessionStorage",
        "indexedDB",
        "cookie",
        "caches",
        "BroadcastChannel",
    ):
        assert forbidden not in source


def test_a_served_page_asks_its_server_alone() -> None:
    assert _assets.served().replace("fetch(this.url)", "", 1).count("fetch(") == 1
    assert ServedRecord(model="m").policy == "; connect-src 'self'"


@pytest.mark.parametrize(("beside", "asks"), [(None, False), ("model.bin", True)])
def test_a_live_page_asks_for_its_weights_alone(beside: str | None, asks: bool) -> None:
    weights = LiveWeights()
    page = LiveRecord(
        description={},
        weights=weights,
        tokenizer={},
        stored=(),
        texts=1,
        weight=0,
        embedding=1,
        beside=beside,
    )
    assert ("connect-src 'self'" in page.policy) == asks
    assert ("no network request" in page.asks) != asks


def test_it_is_minified() -> None:
    assert "\n//" not in _assets.script()
    assert len(_assets.script()) < 0.6 * sum(
        len(file.read_text(encoding="utf-8")) for file in STATIC.glob("**/*.js") if "built" not in file.parts
    )


def test_an_example_is_renewed_without_its_model(make_record: MakeRecord) -> None:
    """The page that is made now, around the facts and blocks of an older one, whose facts were in base64."""
    page = render_page(make_record()).html

    def in_base64(match: re.Match[str]) -> str:
        plain = gzip.compress(_assets.unpacked(match[2]).encode())
        return f"{match[1]}{base64.b64encode(plain).decode()}</script>"

    older = re.sub(r'(id="regard-facts">)(.*?)</script>', in_base64, page).replace(
        "This page works", "It works"
    )
    assert examples_renew.renewed(older) == page
