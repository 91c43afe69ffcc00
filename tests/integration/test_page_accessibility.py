"""axe finds nothing to complain of in any view of any page: light, dark, and as wide as a phone."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import expect

import regard
from integration import head_page
from integration.axe import axe
from regard.concordance import Concordance, build_index
from regard.tracing import Trace, comparison_page
from regard.training import film
from regard.views import Page, render_page
from unit.models.folders import write, write_tokenizer
from unit.training import watched

OpenPage = Callable[..., BrowserPage]

TEXTS = ["w3 w5", "w5 w2 w4"]
PAGES = {
    "movement": ("movement", "heads", "model", "neuron", "positions"),
    "difference": ("difference", "heads", "model"),
    "senses": ("senses", "heads", "model", "neuron", "positions"),
    "pair": ("heads", "story", "model", "neuron", "positions"),
    "decoder": ("heads", "story", "model", "neuron", "positions"),
    "both": ("writing", "heads", "story", "model", "neuron", "positions"),
    "arrays": ("heads", "model"),
    "held": ("heads", "model", "neuron", "positions"),
    "training": ("training", "heads", "model", "neuron", "positions"),
}
DESK, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
LOOKS = {"light": ("light", DESK), "dark": ("dark", DESK), "phone": ("light", PHONE)}
# The contrast of colours takes four times as long as all other rules together: it is looked at where a view
# has colours that it has nowhere else.
COLOURS = {
    "light": {
        "movement": ("movement",),
        "difference": PAGES["difference"],
        "senses": ("senses",),
        "pair": PAGES["pair"],
        "both": ("writing",),
        "held": ("heads",),
        "training": ("training",),
    },
    "dark": {"movement": ("movement",), "difference": PAGES["difference"], "senses": ("senses",)},
}
# A view that is the same on several pages is asked once: the words of a page change neither roles nor names.
ASKED = {
    "movement": ("movement",),
    "difference": PAGES["difference"],
    "senses": ("senses",),
    "pair": PAGES["pair"],
    "decoder": (),  # its states below are asked
    "both": ("writing", "heads"),
    "arrays": ("heads",),
    "held": ("heads", "neuron", "positions"),
    "training": ("training", "heads"),
}
# Its rules find on a phone what they find of the same parts on other pages.
ON_A_PHONE = ("pair", "training")
# What a page begins with, where that is not all that there is to see: in the dark.
SEVERAL = "&also=1.1,0.2,1.0&pin=query-1-2"
NEW_COLOURS = {
    "pair": [
        "view=heads&what=value_zeroing&pin=query-2",
        "view=model&what=norm",
        f"view=heads{SEVERAL}",
        f"view=heads&form=map{SEVERAL}",
        f"view=heads&form=text&together=mean{SEVERAL}",
        "view=heads&form=all&pin=query-2",
    ],
    "both": [
        "view=neuron&kind=cross",
        "view=positions&kind=decoder",
        *(f"view=story&kind=cross&step={step}&pin=query-1" for step in (4, 6)),
    ],
    "training": ["view=training&at=1"],
    "senses": ["view=senses&use=1&sense=2"],
    "decoder": ["view=heads&row=2"],
    "held": ["view=heads&layer=1&head=5"],
}
OLD_COLOURS = {
    "both": ["view=heads&kind=cross&pin=query-1"],
    "difference": ["view=heads&run=1&pin=key-2"],
    "decoder": ["view=model&row=1", "view=neuron&row=2"],
    "held": ["view=heads&also=0.5,1.5", "view=model&layer=1&head=5"],
}
OTHERS = {
    name: [
        (fragment, colours)
        for colours, states in ((True, NEW_COLOURS), (False, OLD_COLOURS))
        for fragment in states.get(name, ())
    ]
    for name in PAGES
    if name in NEW_COLOURS or name in OLD_COLOURS
}
THERE = {"held": ".refusal .button", "decoder view=heads": '[aria-label="Play the rows"]'}


def _model(folder: Path, family: str) -> regard.Model:
    folder.mkdir()
    write_tokenizer(write(folder, family), 31)
    return regard.load(str(folder))


def _some_heads() -> Page:
    """A page that may not take all that it would: layer 1 has no head 5."""
    record = head_page.record(tokens=11, head_dim=97)  # few tokens, which cost axe time, of many numbers
    page = render_page(record, max_mb=len(render_page(record).html.encode()) / 1e6 - 0.01)
    assert 5 not in page.held["encoder", 1]
    assert len(page.held["encoder", 0]) > 1
    return page


def _senses(folder: Path, model: regard.Model) -> Page:
    """Of a word in two groups, in lines of which the page holds six."""
    lines = [f"w3 w{1 + i} w7 w1" if i % 2 else f"w9 w2 w{1 + i} w7 w8" for i in range(14)]
    (folder / "lines.txt").write_text("\n".join(lines), encoding="utf-8")
    build_index([folder / "lines.txt"], folder / "index")
    return Concordance(folder / "index", model).senses("w7", groups=2).page()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of each sort, of models with random weights."""
    folder = tmp_path_factory.mktemp("pages")
    encoder = _model(folder / "encoder", "bert")
    written = {"choice": regard.Beams(3), "min_length": 4, "max_length": 4}
    both = _model(folder / "both", "t5").generate(TEXTS[0], trace="all", **written)
    one, other = encoder.trace(TEXTS)
    pair, decoder = encoder.trace(*TEXTS), _model(folder / "decoder", "gpt2").trace(TEXTS[0])
    assert all(isinstance(each, Trace) for each in (one, other, pair, decoder))
    weights = np.full((2, 3, 4, 4), 0.25)
    made: dict[str, Page] = {
        "movement": comparison_page([one, other], "w5"),
        "difference": one.difference_page(other),
        "senses": _senses(folder, encoder),
        "pair": pair.page(measures=["value_zeroing"]),
        "decoder": decoder.page(),
        "both": both.page(),
        "held": _some_heads(),
        "training": film(watched.run(folder, watch=watched.WATCHED["clm"]).folder),
        "arrays": regard.view(weights, ["[CLS]", "river", "שלום", "<b>x</b>"]),
    }
    for name, page in made.items():
        page.write(folder / f"{name}.html")
    return {name: folder / f"{name}.html" for name in made}


def _complaints(page: BrowserPage, part: str | None = None, colours: bool = True) -> list[str]:
    """What axe says of what is on show, or of a part of it, with every rule it has, or all but contrast's."""
    found = axe(page, part, colours=colours)
    assert found.passes > 5
    return [
        f"{each['id']} ({each['impact']}): {each['help']}: {[node['target'] for node in each['nodes'][:4]]}"
        for each in found.violations
    ]


# What is wider than the page, or than the view that scrolls up and down.
_WIDE = """() => ["html", ".shown > *"].filter(
    name => [...document.querySelectorAll(name)].some(each => each.scrollWidth > each.clientWidth))"""


_SIZES = """() => [...new Set([...document.querySelectorAll(".regard *")].filter(
    e => e.checkVisibility() && [...e.childNodes].some(n => n.nodeType === Node.TEXT_NODE && n.data.trim())
  ).map(e => parseFloat(getComputedStyle(e).fontSize)))]"""
FIVE = {12, 13, 14, 17, 25}


def _unfold(page: BrowserPage) -> None:
    """Opens what is folded away: tables and lists."""
    page.locator("main details").evaluate_all(
        "all => all.filter(each => each.checkVisibility()).forEach(each => (each.open = true))"
    )


def _look(page: BrowserPage, name: str, look: str) -> None:
    """Asks of every view of a page; in the dark, where only colours are others, of those that have some."""
    theme, size = LOOKS[look]
    colours = COLOURS.get(look, {}).get(name, ())  # a phone has those of the light page
    page.set_viewport_size(size)
    _go(page, f"layer=0&head=0&theme={theme}&pin=query-1")
    head_page.drawn(page)
    found = []
    for view in colours if look == "dark" else PAGES[name]:
        page.locator(f'[role="tab"][data-view="{view}"]').click()
        expect(page.get_by_role("tabpanel")).to_be_visible()
        _unfold(page)
        if view in ASKED[name] and (look != "phone" or name in ON_A_PHONE):
            part = None if view == ASKED[name][0] else "main"  # what is around the views is the same
            found += [f"{view}: {each}" for each in _complaints(page, part, view in colours)]
        assert page.evaluate(_WIDE) == [], (look, view)
        assert set(page.evaluate(_SIZES)) <= FIVE, (look, view)
        page.locator(".menu").evaluate_all(
            "all => all.forEach(each => (each.open = false))"
        )  # they lie over tabs
    page.locator(".header .exact > summary").click()
    expect(page.locator(".header .menu-body")).to_be_visible()
    if look == "light" or name in ("difference", "pair"):  # it is the same on the others
        found += [f"header: {each}" for each in _complaints(page, ".header", bool(colours))]
    page.locator(".header .exact > summary").click()
    # Of all views together, each of which axe sees alone.
    assert page.locator("main").count() == page.get_by_role("heading", level=1).count() == 1
    expect(page.get_by_role("main").get_by_role("tabpanel")).to_be_visible()
    ids = page.locator("[id]").evaluate_all("all => all.map(e => e.id)")
    assert len(set(ids)) == len(ids)
    assert not found, "\n".join((look, *found))


def _go(page: BrowserPage, fragment: str) -> None:
    page.evaluate("to => { window.isLeft = true; location.hash = to; }", f"specials=shown&{fragment}")
    if "run=" in fragment:  # the page is loaded anew
        page.wait_for_function("() => !window.isLeft && window.regard?.ready")


# All looks and states of a page in one window: axe is read once, and slow at first.
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing(open_page: OpenPage, pages: dict[str, Path], name: str) -> None:
    page = open_page(pages[name], "#theme=light&pin=query-1", viewport=DESK)
    assert page.get_by_role("tab").evaluate_all("all => all.map(e => e.dataset.view)") == list(PAGES[name])
    for look in LOOKS:
        if look != "dark" or name in COLOURS["dark"]:
            _look(page, name, look)

    page.set_viewport_size(DESK)
    for fragment, colours in OTHERS.get(name, ()):
        _go(page, f"theme=dark&{fragment}")
        view = fragment.partition("&")[0].removeprefix("view=")
        expect(page.get_by_role("tab", selected=True)).to_have_attribute("data-view", view)
        expect(page.get_by_role("tabpanel")).to_be_visible()
        head_page.drawn(page)
        for place, element in THERE.items():
            if f"{name} {fragment}".startswith(place):
                expect(page.locator(element)).to_be_visible()
        assert _complaints(page, "main", colours) == [], fragment


def test_a_word_that_the_model_does_not_know_is_said_to_be_so(open_page: OpenPage, tmp_path: Path) -> None:
    record = head_page.record()
    cls, pizza, *_ = record.encoder.tokens
    pizza = replace(pizza, text="[UNK]", surface="🍕", unknown=True)
    plain = replace(pizza, surface=None, unknown=False)
    parts = [replace(plain, surface="日", bytes=f"<0x{byte:X}>", word=2) for byte in "日".encode()]
    digits = [replace(plain, text=each, word=3) for each in "360"]
    encoder = replace(
        record.encoder, text="🍕 日 360", tokens=(cls, pizza, *parts, *digits), words=("", "🍕", "日", "360")
    )
    path = tmp_path / "page.html"
    render_page(replace(record, encoder=encoder)).write(path)
    page = open_page(path, "#pin=query-1&layer=1")
    for side in ("Queries", "Keys"):
        option = page.get_by_role("listbox", name=side).get_by_role("option", name="🍕 unknown to the model")
        expect(option.locator(".read-as")).to_have_text("[UNK]")
        expect(option).to_have_accessible_description("token 1")
        assert option.locator(".unknown").evaluate("e => getComputedStyle(e).borderTopStyle") == "dashed"
    expect(page.locator(".panel-title")).to_contain_text("[UNK] 🍕")
    expect(page.locator("h1 .unknown-word")).to_have_text("🍕")
    # Not 360, which is read in full, if digit by digit.
    expect(page.locator(".not-known")).to_have_text(
        "The model does not know 🍕: it reads [UNK] there. "
        "The model has no token for 日: it reads byte by byte."
    )
    assert _complaints(page) == []
    expect(page.get_by_role("listbox", name="Keys").get_by_role("option", name="<0xE6>")).to_be_visible()
    page.get_by_role("tab", name="Calculation").click()
    expect(page.locator(".neuron-row").nth(1)).to_contain_text("[UNK] 🍕")


def test_axe_finds_nothing_in_the_help(open_page: OpenPage, pages: dict[str, Path]) -> None:
    page = open_page(pages["pair"], viewport=PHONE)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    assert _complaints(page) == []
