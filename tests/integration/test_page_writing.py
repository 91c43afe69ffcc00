"""The writing view: its numbers are Python's, step by step; the beam as a tree; the alignment."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import expect
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers

import regard
from integration.axe import axe
from integration.head_page import address, state
from regard.decoding import Watched
from regard.text import Chat
from regard.tracing import writing_page
from tolerances import PAGE
from unit.models.folders import write

OpenPage = Callable[..., BrowserPage]

# Words as somebody might write them to break a page.
HOSTILE = ["</script><script>alert(1)</script>", "<b>bold</b>", "שלום", "x" * 150, "{{facts}}", "&amp;"]
PHONE: Any = {"width": 390, "height": 844}


def _written(folder: Path, family: str, **how: Any) -> Watched:
    torch.manual_seed(1)
    words = [*HOSTILE, *(f"w{place}" for place in range(len(HOSTILE), 31))]
    backend = Backend(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="w9"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    folder.mkdir()
    backend.save(str(write(folder, family) / "tokenizer.json"))
    rules: Any = {"min_length": 6, "max_length": 6, "repetition_penalty": 2.0}
    text = f"w7 {HOSTILE[2]} w8 {HOSTILE[0]}"
    return cast(Watched, regard.load(str(folder)).generate(text, trace="all", **how, **rules))


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Watched, Path]:
    """A prompt that is gone on with, by chance: what came need not be among the likeliest."""
    folder = tmp_path_factory.mktemp("drawn")
    written = _written(folder / "m", "gpt2", choice=regard.Sampling(temperature=3.0, seed=5))
    written.write_page(folder / "page.html")
    return written, folder / "page.html"


@pytest.fixture(scope="module")
def translated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Watched, Path]:
    """A translation by beam search."""
    folder = tmp_path_factory.mktemp("translated")
    written = _written(folder / "m", "bart", choice=regard.Beams(3))
    written.write_page(folder / "page.html")
    return written, folder / "page.html"


def _bars(page: BrowserPage, which: str) -> list[tuple[str, float]]:
    rows = page.locator(f".writing-bars.{which} li")
    found = rows.evaluate_all("all => all.map(e => [e.querySelector('.bar-name').textContent, e.title])")
    return [(name, float(part)) for name, part in found]


def _check_steps(page: BrowserPage, written: Watched, heads: list[tuple[int, int]], kind: str) -> None:
    """Every step, with the player: the words that could have come, and what was read in these heads."""
    side = "encoder" if kind == "cross" else "decoder"
    tokens = [token.surface for token in written.trace.stack(side).encoding.tokens]
    for place, step in enumerate(written.steps):
        page.get_by_label("Word that is being written").fill(str(place))
        expect(page.locator(".writing .where bdi")).to_have_text(step.text)
        wanted = [(each.text, each.probability) for each in step.likeliest]
        if step.place >= len(wanted):
            wanted.append((step.text, step.probability))
        found = _bars(page, "next")
        assert [name for name, _ in found] == [name for name, _ in wanted]
        np.testing.assert_allclose([part for _, part in found], [part for _, part in wanted], atol=1e-4)
        taken = page.locator(".writing-bars.next .taken")
        expect(taken).to_have_count(1)
        expect(taken.locator(".bar-name")).to_have_text(step.text)
        query = written.first - 1 + place
        rows = [
            written.trace.weights(layer=layer, head=head, query=query, kind=cast(Any, kind))[0]
            for layer, head in heads
        ]
        row = torch.stack(rows).mean(dim=0)
        best = row.topk(min(5, int((row > 0).sum())))
        read = _bars(page, "read")
        np.testing.assert_allclose([part for _, part in read], best.values, atol=PAGE)
        if len(read) > 1 and best.values[0] - best.values[1] > PAGE:
            assert read[0][0] == tokens[int(best.indices[0])]


def test_steps_are_pythons_in_a_head_a_layer_and_all(
    open_page: OpenPage, drawn: tuple[Watched, Path]
) -> None:
    written, path = drawn
    page = open_page(path, "#layer=1&head=2")
    expect(page.get_by_role("tab", selected=True)).to_have_text("Writing")
    assert any(step.place >= 5 for step in written.steps)
    _check_steps(page, written, [(1, 2)], "decoder")
    page.get_by_label("Its layer").check()
    _check_steps(page, written, [(1, head) for head in range(3)], "decoder")
    page.get_by_label("All heads").check()
    _check_steps(page, written, [(layer, head) for layer in range(2) for head in range(3)], "decoder")
    expect(page.locator(".writing-bars.next + .note")).to_contain_text("It is drawn by chance: Sampling(")


def test_a_translation_its_alignment_and_its_source(
    open_page: OpenPage, translated: tuple[Watched, Path]
) -> None:
    written, path = translated
    assert state(open_page(path, start=True))["kind"] == "cross"
    page = open_page(path, "#kind=cross")
    _check_steps(page, written, [(0, 0)], "cross")
    page.get_by_role("radio", name="Decoder", exact=True).check()
    chosen = state(page)
    _check_steps(page, written, [(chosen["layer"], chosen["head"])], "decoder")
    # No encoder writes: there, and in the cross-attention, is what it read of the source.
    page.get_by_role("radio", name="Decoder → encoder", exact=True).check()
    page.locator(".alignment .note").scroll_into_view_if_needed()
    cells = page.locator(".alignment .matrix-canvases").bounding_box()
    corner = page.locator(".alignment .matrix-rows .token").first.bounding_box()
    assert cells
    assert corner
    step, key = 4, 2
    page.mouse.move(cells["x"] + corner["height"] * (key + 0.5), cells["y"] + corner["height"] * (step + 0.5))
    chosen = {name: state(page)[name] for name in ("layer", "head")}
    row = written.trace.weights(**chosen, query=written.first - 1 + step, kind="cross")[0]
    tip = page.locator(".alignment .running-tip")
    expect(tip).to_contain_text(f"{written.steps[step].text} ← ")
    said = float((tip.text_content() or "").rpartition(": ")[2].removesuffix(" %").removeprefix("<")) / 100
    assert said == pytest.approx(float(row[key]), abs=6e-3)


def test_by_keys_by_clicks_and_by_links(open_page: OpenPage, translated: tuple[Watched, Path]) -> None:
    written, path = translated
    page = open_page(path, "#kind=cross")
    output = page.locator(".writing .steps-bar output")
    page.get_by_label("Word that is being written").focus()
    for key, place in (("Home", 1), ("ArrowRight", 2), ("]", 3), ("[", 2), ("End", len(written.steps))):
        page.keyboard.press(key)
        expect(output).to_contain_text(f"{place} of {len(written.steps)}: ")
    page.locator('.writing .word[data-step="1"]').click()
    expect(output).to_contain_text("2 of ")
    # What is not written yet is not there; the other views show the row that was read.
    shown = page.locator(".written.query .word:visible")
    expect(shown).to_have_count(written.first + 2)
    assert "word=1" in address(page)
    query = written.first
    assert state(page)["pin"] == {"side": "query", "index": query}
    page.get_by_role("button", name="Play the words").click()
    expect(output).to_contain_text("3 of ")
    page.get_by_role("button", name="Pause").click()
    again = open_page(path, f"#{address(page)}")
    assert again.locator(".writing .steps-bar output").inner_text() == output.inner_text()


def test_the_beam_is_a_tree_of_pythons_branches(
    open_page: OpenPage, translated: tuple[Watched, Path]
) -> None:
    written, path = translated
    page = open_page(path)
    words = page.locator(".branch-tree .branch:has(title)")
    expect(words).to_have_count(len(written.branches))
    assert page.locator(".branch-tree path").count() == sum(
        each.parent is not None for each in written.branches
    )
    bold = words.evaluate_all("all => all.filter(e => e.getAttribute('font-weight') === '650').length")
    assert bold == sum(each.won for each in written.branches) == len(written.steps)
    page.locator(".branches summary").click()
    expect(page.locator(".branches tbody tr")).to_have_count(len(written.branches))
    rows = page.locator(".branches tbody tr").all_inner_texts()
    for row, branch in zip(rows, written.branches, strict=True):
        step, text, *_, total, end = row.split("\t")
        assert (int(step), text) == (branch.step + 1, branch.text)
        assert float(total) == pytest.approx(branch.log_probability, abs=6e-4)
        assert ("won" in end, "dropped" in end) == (branch.won, branch.end == "dropped")
    words.last.click()
    expect(page.locator(".writing .steps-bar output")).to_contain_text(f"{len(written.steps)} of ")


def test_on_a_phone_and_on_paper(
    open_page: OpenPage, translated: tuple[Watched, Path], drawn: tuple[Watched, Path]
) -> None:
    """Long words and script in them move nothing; the picture that is saved has the words."""
    for written, path in (translated, drawn):
        page = open_page(path, "#theme=light&kind=cross", viewport=PHONE)
        for place in range(len(written.steps)):
            page.get_by_label("Word that is being written").fill(str(place))
            assert page.evaluate("document.documentElement.scrollWidth") == 390
        assert page.locator(".writing b, .writing script").count() == 0
        page.emulate_media(media="print")
        expect(page.locator(".written").last).to_be_visible()
        with page.expect_download() as download:
            page.emulate_media(media="screen")
            page.get_by_role("button", name="SVG").click()
        saved = Path(download.value.path()).read_text(encoding="utf-8")
        assert "What could come next" in saved
        # Bars as long as on the screen.
        bars = [
            float(width) for width in re.findall(r'width="([\d.]+)"[^>]*fill="rgb\(36, 97, 192\)"', saved)
        ]
        parts = [max(0.007, part) for _, part in _bars(page, "read")]
        assert bars == pytest.approx([bars[0] * part / parts[0] for part in parts], rel=0.02)


def test_lines_go_to_what_was_read(open_page: OpenPage, drawn: tuple[Watched, Path], tmp_path: Path) -> None:
    written, path = drawn
    page = open_page(path, "#layer=1&head=2&word=5")
    row = written.trace.weights(layer=1, head=2, query=written.first + 4)[0]
    assert page.locator(".reading-lines path").count() == min(12, int((row >= 0.02).sum()))
    note = page.locator(".writing-bars.read + .note")
    expect(note).to_have_text(re.compile("% on all others. The row of"))

    # Of so few words all are listed, and stand in one line. Over it the lines are whole: nothing clips them.
    model = regard.load(str(path.parent / "m"))
    model.generate("w15 w16 w17 w18 w19", trace="all", max_length=1).write_page(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html")
    expect(page.locator(".writing-bars.read + .note")).to_have_text(re.compile("^The row of"))
    assert page.locator(".reading-lines").evaluate(
        "svg => { const top = each => each.getBoundingClientRect().top;"
        " const isWhole = getComputedStyle(svg).overflow === 'visible';"
        " const clip = isWhole ? svg.closest('.writing-text') : svg;"
        " return [...svg.children].every(path => top(path) > top(clip)); }"
    )


def test_a_chat_is_drawn_message_by_message(open_page: OpenPage, tmp_path: Path) -> None:
    said = [{"role": "user", "content": "What is the capital of France?"}]
    answer = regard.load("smollm2").chat(said, max_length=20, trace=True)
    answer.write_page(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html")
    expect(page.locator("h1 .badge")).to_have_text(["user", "assistant"])
    expect(page.locator("h1 .part bdi")).to_have_text([said[0]["content"], answer.text])
    messages = page.locator(".written .message")
    expect(messages).to_have_count(2)
    for message, content in zip(messages.all(), (said[0]["content"], answer.text), strict=True):
        words = message.locator(".word:not(.frame)").all_text_contents()
        assert "".join(words).replace(" ", "") == content.replace(" ", "")
        assert message.locator(".word.frame").first.inner_text() == "<|im_start|>"
    one, other = (message.bounding_box() or {} for message in messages.all())
    assert other["y"] >= one["y"] + one["height"]
    assert axe(page).violations == []

    # As a server shows it, which does not keep how it was written.
    chat = cast(Chat, answer.prompt)
    writing_page(regard.load("smollm2").trace(chat), None, chat=chat).write(tmp_path / "served.html")
    page = open_page(tmp_path / "served.html", start=True)
    expect(page.locator(".door > .door-sentence")).to_contain_text(f"user: {said[0]['content']}")
