"""The site of `make docs`: links lead somewhere, nothing comes from outside, every public name is there."""

import importlib
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import addresses
import docs
import pytest
import reference
from playwright.sync_api import Browser, expect

from integration.live_models import live_model
from regard.cli._app import app
from regard.decoding import Sampling
from unit.test_surface import PACKAGES

LOADS = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}


@pytest.fixture(scope="module")
def described() -> reference.Reference:
    return reference.Reference()


@pytest.fixture(scope="module")
def index(described: reference.Reference, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    return docs.build(
        folder,
        described,
        lambda: live_model(folder / "bert", "bert").live_page("a man"),
        lambda: live_model(folder / "llama", "llama").live_page("a man", beside="writes.bin"),
    )


class Page(HTMLParser):
    """The ids of a page, where it leads, and what it loads."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.leads: list[str] = []
        self.loads: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        self.ids.add(named.get("id", ""))
        if tag == "a" and "href" in named:
            self.leads.append(named["href"])
        if LOADS.get(tag, "") in named:
            self.loads.append(named[LOADS[tag]])


read = cache(Page)


def test_links_lead_somewhere_and_nothing_comes_from_outside(index: Path) -> None:
    files = [
        file for file in index.parent.rglob("*.html") if "examples" not in file.parts and file.stem != "404"
    ]
    pages = {file: read(file) for file in files}
    assert len(pages) > 40
    for file, page in pages.items():
        assert not [address for address in page.loads if urlsplit(address).netloc], file
        for address in {*page.leads, *page.loads}:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            assert target.is_file(), (file, address)
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].ids, (file, address)


def test_the_picture_of_the_home_page_becomes_the_live_page(index: Path, browser: Browser) -> None:
    page = browser.new_page()
    page.goto(index.as_uri())
    page.locator('a[href="live.html"] > img').click()
    door = page.frame_locator("iframe.live-frame")
    expect(door.get_by_label("Type a sentence")).to_have_value("a man", timeout=60_000)
    expect(door.locator(".door-said")).to_contain_text("In one of")
    page.close()


def test_the_home_page_leads_to_a_model_that_writes(index: Path, browser: Browser) -> None:
    page = browser.new_page()
    page.goto(index.as_uri())
    page.get_by_role("link", name="Or see a model write").click()
    expect(page.locator(".door-said")).to_contain_text("comes next", timeout=60_000)
    expect(page.get_by_role("button", name="Load the model")).to_be_visible()
    assert (index.parent / "writes.bin").stat().st_size > 1000
    page.close()


def test_the_readme_has_the_projects_addresses() -> None:
    text = (docs.ROOT / "README.md").read_text(encoding="utf-8")
    urls = addresses.project_urls()
    assert addresses.addressed(text, urls) == text, "scripts/addresses.py writes them"
    for name, (file, page) in addresses.LINKS.items():
        assert f"[{name}]" in text.replace(f"[{name}]: ", "")
        assert (docs.ROOT / file).is_file()
        there = {"Documentation": "https://a.example/regard/", "Repository": "https://b.example/regard.git"}
        changed = addresses.addressed(text, there)
        assert f"\n[{name}]: https://a.example/regard/{page}\n" in changed
        assert "\ngit clone https://b.example/regard.git regard && cd regard\nmake look" in changed
        assert addresses.addressed(addresses.addressed(changed, there), urls) == text


def test_a_tag_publishes_the_folder_that_make_docs_builds() -> None:
    workflow = (docs.ROOT / ".github/workflows/site.yml").read_text(encoding="utf-8")
    for said in ('tags: ["v*"]', "run: make docs\n", "path: build/site\n", "actions/deploy-pages"):
        assert said in workflow


def test_language_models_find_the_pages(index: Path) -> None:
    text = (index.parent / "llms.txt").read_text(encoding="utf-8")
    assert text.startswith("# regard\n\n> Self-attention made visible")
    found = re.findall(r"^- \[([^]]+)\]\(([^)]+)\): (.+)$", text, re.MULTILINE)
    assert len(found) == len(re.findall(r"^- ", text, re.MULTILINE)) > 60
    assert [address for _, address, _ in found if not (index.parent / address).is_file()] == []
    assert "## The course" in text


def test_every_public_name_and_every_command_is_described(
    index: Path, described: reference.Reference
) -> None:
    folder = index.parent / "docs" / "reference"
    ids = {file.name: read(file).ids for file in folder.glob("*.html")}
    for package in PACKAGES:
        for name in importlib.import_module(package).__all__:
            if not name.startswith("_"):
                file, _, anchor = described.places[f"{package}.{name}"].partition("#")
                assert anchor in ids[file.replace(".md", ".html")], (package, name)
    assert {"regard.Trace.weights", "regard.Trace.open"} <= ids["Trace.html"]
    assert "regard.Trace.attention_of" not in ids["Trace.html"]  # nor in dir(trace)
    commands = {each.name for each in (*app.registered_commands, *app.registered_groups)}
    assert len(commands) > 20
    assert {f"regard-{command}" for command in commands} <= ids["command-line.html"]


def test_a_signature_tells_the_limits_of_its_fields() -> None:
    told = reference._signature(Sampling, "Sampling")
    assert "    top_k: int | None = None,  # at least 1\n" in told
    assert "    temperature: float = 1.0,  # above 0\n" in told
    assert "Annotated" not in told


def test_the_search_works_on_pages_that_are_opened_from_disk(index: Path, browser: Browser) -> None:
    page = browser.new_page()
    page.set_default_timeout(120_000)  # a browser beside other tests
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(index.as_uri())
    page.locator(".md-search__button").click()
    page.keyboard.type("value zeroing")
    page.get_by_text("value_zeroing").first.wait_for()
    page.close()
    assert not [url for url in asked if not url.startswith("file:")]
