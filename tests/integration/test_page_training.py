"""The page of a training: a slider over the traced steps, for every view, and when heads got names."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from playwright.sync_api import Browser, expect
from playwright.sync_api import Page as BrowserPage

from integration import head_page, test_cli
from integration.test_cli import Run, refused
from integration.test_page_film import saved_film
from regard.tracing import Trace
from regard.training import film, read_journal
from regard.views import Subject, render_page
from tolerances import PAGE
from unit.training import watched

OpenPage = Callable[..., BrowserPage]
STEPS = (0, 4, 8, 12)

run = test_cli.run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    watched.run(folder, watch=watched.WATCHED["clm"])
    return folder / "run"


def turn(page: BrowserPage, place: int) -> None:
    page.get_by_label("Step of the training").fill(str(place))


def said(page: BrowserPage) -> str:
    return page.locator(".training-bar output").inner_text()


def test_every_step_has_the_numbers_of_its_trace(
    run: Run, open_page: OpenPage, trained: Path, tmp_path: Path
) -> None:
    path = tmp_path / "film.html"
    done = run("look", str(trained), "--no-open", "-o", str(path), "--json")
    assert json.loads(done.out)["path"] == str(path)
    page = open_page(path, "#at=1")
    expect(page.get_by_role("tab", selected=True)).to_have_text("Training")
    assert head_page.state(page)["at"] == 1
    losses = {line["step"]: line["loss"] for line in read_journal(trained) if "loss" in line}
    for place, step in enumerate(STEPS):
        trace = Trace.open(trained / "watch" / "1" / f"step-{step:08}.safetensors")
        turn(page, place)
        since = [losses[each] for each in range(step - 3, step + 1) if each in losses]
        assert said(page) == (f"step {step}, loss {fmean(since):.2f}" if since else "untrained")
        for layer, head in ((0, 0), (1, 2)):
            for query in (0, 7):
                found = page.evaluate(f"Array.from(regard.weightsRow({layer}, {head}, {query}))")
                wanted = trace.weights(layer, head)[query].numpy()
                assert np.abs(np.array(found) - wanted).max() < PAGE
        entropy = trace.statistics().mean("entropy")[1, 2]
        expect(page.get_by_role("gridcell", name="Layer 1, head 2")).to_have_attribute(
            "aria-label", re.compile(f"Entropy {entropy:.3f}$")
        )
        # The words: the cosine of the last "bank" to the first at this step.
        page.locator(".training-tokens button").filter(has_text="bank").last.click()
        vectors = trace.embeddings().double()
        one, other = (vectors[token] for token in (11, 3))
        wanted_cosine = float(one @ other / one.norm() / other.norm())
        near = dict(
            zip(
                page.locator(".training-near bdi").all_inner_texts(),
                page.locator(".training-near li > :last-child").all_inner_texts(),
                strict=True,
            )
        )
        assert any(abs(float(value) - wanted_cosine) < 0.006 for value in near.values())


def test_the_keys_play_it_in_every_view(open_page: OpenPage, run: Run, trained: Path, tmp_path: Path) -> None:
    run("look", str(trained), "2", "--no-open", "-o", str(tmp_path / "film.html"))
    page = open_page(tmp_path / "film.html")
    expect(page.locator("h1")).to_contain_text("a loan")
    assert said(page).startswith("step 12,")
    page.keyboard.press(",")
    assert said(page).startswith("step 8,")
    assert "at=2" in page.url
    page.get_by_role("button", name="Open this head").click()
    expect(page.get_by_role("tab", selected=True)).to_have_text("Heads")
    head_page.token(page, "query", 2).click()
    before = head_page.numbers(page, "key")
    assert any(before)
    turn(page, 0)
    assert said(page) == "untrained"
    assert head_page.numbers(page, "key") != before
    page.keyboard.press("p")
    expect(page.locator(".training-bar output")).to_contain_text("step 12,")
    page.get_by_role("tab", name="Model").click()
    page.keyboard.press("Tab")
    page.keyboard.press(",")
    assert said(page).startswith("step 8,")


def test_a_head_is_named_since_the_step_from_which_on_it_keeps_its_name(
    open_page: OpenPage, tmp_path: Path
) -> None:
    # Of head 0.1 at four steps; it loses its first name again.
    names = ["positional", None, "positional", "positional"]

    def record(name: str | None) -> object:
        layers: list[list[list[dict[str, object]]]] = [[[] for _ in range(6)] for _ in range(2)]
        layers[0][1] = [{"name": name, "effect": 0.5}] if name else []
        patterns = [{"name": "positional", "says": "It looks one back."}]
        entropy = np.full((2, 6), 0.5, np.float32)
        return replace(
            head_page.record(),
            names={"said": "", "patterns": patterns, "kinds": {"encoder": layers}},
            statistics={"encoder": {"entropy": entropy}},
        )

    ones = [[1.0] * head_page.TOKENS] * 4
    facts = {
        "steps": [0, 5, 9, 14],
        "traced": 7,
        "losses": [None, 2.0, 1.0, 0.5],
        "words": {"encoder": {"to_end": ones, "between": None}},
    }
    film = render_page(*map(record, names), subject=Subject("training", facts))  # type: ignore[arg-type]
    film.write(tmp_path / "film.html")
    page = open_page(tmp_path / "film.html")
    expect(page.locator(".training-events button")).to_have_text([re.compile(r"step 9\s*0\.1 positional")])
    expect(page.locator(".training-bar > .note")).to_have_text("4 of 7 traced steps, for room")
    page.locator(".training-events button").click()
    assert (head_page.state(page)["at"], head_page.state(page)["head"]) == (2, 1)
    expect(page.locator(".training-history")).to_contain_text("positional since step 9. It looks one back.")
    expect(page.locator(".training-near")).to_be_hidden()


def test_what_a_run_has_not_is_refused(run: Run, trained: Path) -> None:
    assert "--live must be left out with a run" in refused(run("look", str(trained), "--live"), 2)
    assert "2 'a loan'; got text '3'" in refused(run("look", str(trained), "3"), 2)


def test_its_steps_are_a_film(open_page: OpenPage, browser: Browser, trained: Path, tmp_path: Path) -> None:
    film(trained).write(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", "#view=training")
    played = saved_film(page, browser, tmp_path / "training.webm")
    assert min(played["width"], played["height"]) > 100
    assert played["apart"] > 100
