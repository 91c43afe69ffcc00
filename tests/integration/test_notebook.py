"""The widget in a real JupyterLab: its numbers are Python's, and the two do not disturb each other."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from playwright.sync_api import Browser, expect
from playwright.sync_api import Page as BrowserPage

import regard
from integration.conftest import Jupyter
from integration.jupyter import SHOWN_S, cell_of, notebook, run_cell, state_of, widget_of
from regard.tracing import Trace
from tolerances import WEIGHTS

TEXT = "w3 w5 w7 w1 w9 w12"
CELLS = (
    "import regard\nencoder = regard.load('bert')\nencoder.trace({text!r})",
    "decoder = regard.load('llama')\nshown = decoder.trace({text!r}).widget()\nshown",
    "import numpy as np\n"
    "regard.view(np.full((1, 2, 3, 3), 1 / 3), ['<img src=x onerror=alert(1)>', 'b', 'c'], name='mine')",
    "shown.address = '#layer=1&head=2&units=words'",
    "print(shown.address)",
    "encoder.trace({text!r}, keep='residual')",
    "decoder.generate({text!r}, max_length=3, trace=True)",
)
ENCODER, DECODER, GIVEN = range(3)


def _trace(folder: Path, family: str) -> Trace:
    trace = regard.load(str(folder / family)).trace(TEXT)
    assert isinstance(trace, Trace)
    return trace


@pytest.fixture(scope="module")
def folder(jupyter: Jupyter) -> Path:
    return jupyter.folder


@pytest.fixture(scope="module")
def lab(browser: Browser, jupyter: Jupyter) -> Iterator[BrowserPage]:
    cells = [cell.format(text=TEXT) for cell in CELLS]
    with notebook(browser, *jupyter, "shown", cells) as page:
        for number in range(3):
            cell_of(page, number).locator(".regard").wait_for(timeout=SHOWN_S)
        yield page


# Everything that a view may ask of a source, of every head: as it comes from the kernel.
_READ = """async (widget, [kind, layer, heads, queries, keys]) => {
    const { source } = widget.regard;
    const arrive = (ask) => new Promise((resolve, reject) => {
        const look = () => { const found = ask(); if (found !== null) resolve(found); };
        setTimeout(() => reject(new Error("no answer")), 30000);
        source.listen(look);
        look();
    });
    const finite = (values) => values ? values.map((x) => Math.max(x, -1e9)) : null;
    const range = (n) => Array.from({ length: n }, (_, i) => i);
    const each = (count, ask) => Promise.all(range(heads).map((head) =>
        Promise.all(range(count).map((i) => arrive(() => ask(head, i)).then((row) => Array.from(row))))));
    return {
        rows: await each(queries, (head, i) => source.row(kind, layer, head, i)),
        columns: await each(keys, (head, i) => source.column(kind, layer, head, i)),
        scores: await each(queries, (head, i) => finite(source.steps(kind, layer, head, i)?.scores)),
        contexts: await each(queries, (head, i) => source.steps(kind, layer, head, i)?.context ?? null),
        statistics: await arrive(() => source.statistics(kind)),
    };
}"""


@pytest.mark.parametrize(
    ("number", "family", "kind"), [(ENCODER, "bert", "encoder"), (DECODER, "llama", "decoder")]
)
def test_every_number_is_pythons(lab: BrowserPage, folder: Path, number: int, family: str, kind: Any) -> None:
    trace = _trace(folder, family)
    for layer in range(trace.num_layers):
        wanted = trace.weights(layer).double().numpy()
        read = widget_of(lab, number).evaluate(_READ, [kind, layer, *wanted.shape])
        np.testing.assert_allclose(read["rows"], wanted, rtol=0, atol=WEIGHTS)
        np.testing.assert_allclose(np.swapaxes(read["columns"], 1, 2), wanted, rtol=0, atol=WEIGHTS)
        scores = np.maximum(trace.scores(layer).double().numpy(), -1e9)
        np.testing.assert_allclose(read["scores"], scores, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(read["contexts"], trace.context(layer), rtol=0, atol=1e-5)
    entropy = trace.statistics().mean("entropy").numpy()
    np.testing.assert_allclose(read["statistics"]["entropy"], entropy, rtol=1e-4, atol=1e-5)


def test_a_click_shows_a_row_and_leaves_the_other_widgets_alone(lab: BrowserPage, folder: Path) -> None:
    trace = _trace(folder, "bert")
    shown = widget_of(lab, ENCODER)
    others = [state_of(lab, number) for number in (DECODER, GIVEN)]
    shown.get_by_role("gridcell", name="Layer 1, head 2").click()
    shown.locator('.token[data-side="query"][data-token="2"]').click()
    numbers = shown.locator('.token[data-side="key"] .number')
    wanted = [f"{weight:.4f}" for weight in trace.weights(1, 2)[2].tolist()]
    expect(numbers).to_have_text(wanted)
    expect(shown.locator(".top .top-number").first).to_have_text(max(wanted))
    assert state_of(lab, ENCODER)["pin"] == {"side": "query", "index": 2}
    assert [state_of(lab, number) for number in (DECODER, GIVEN)] == others
    assert "#" not in lab.url


def test_keys_are_the_widgets_while_it_has_them(lab: BrowserPage) -> None:
    shown = widget_of(lab, ENCODER)
    cells = lab.locator(".jp-Notebook .jp-CodeCell").count()
    shown.get_by_role("gridcell", name="Layer 0, head 0").click()
    for key in ("ArrowRight", "ArrowDown", "Enter", "b", "a", "d", "d", "m"):
        lab.keyboard.press(key)
    state = state_of(lab, ENCODER)
    # A takes a whole layer; B, D and M, which make, delete and change cells, do nothing.
    assert (state["layer"], state["head"], len(state["also"])) == (1, 1, 3)
    assert lab.locator(".jp-Notebook .jp-CodeCell").count() == cells
    assert lab.locator(".jp-Notebook .jp-MarkdownCell").count() == 0
    shown.get_by_role("gridcell", name="Layer 1, head 0").click()
    lab.keyboard.press("?")
    expect(shown.get_by_role("dialog")).to_contain_text("widget.address")
    lab.keyboard.press("Escape")
    expect(shown.get_by_role("dialog")).to_be_hidden()


def test_python_reads_and_sets_what_is_chosen(lab: BrowserPage) -> None:
    run_cell(lab, 3)
    shown = widget_of(lab, DECODER)
    expect(shown.locator(".where")).to_have_text("Layer 1, head 2")
    assert state_of(lab, DECODER)["units"] == "words"
    shown.get_by_role("gridcell", name="Layer 0, head 4").click()
    run_cell(lab, 4)
    expect(cell_of(lab, 4).locator(".jp-OutputArea-output")).to_contain_text("layer=0&head=4")


def test_the_calculation_the_story_and_the_model_view(lab: BrowserPage, folder: Path) -> None:
    trace = _trace(folder, "bert")
    shown = widget_of(lab, ENCODER)
    shown.get_by_role("tab", name="Calculation").click()
    shown.locator(".neuron-controls").get_by_label("Layer").select_option("1")
    shown.locator(".neuron-controls").get_by_label("Head").select_option("1")
    shown.locator(".neuron-controls").get_by_label("Query", exact=True).select_option("3")
    expect(shown.locator(".neuron-row .neuron-weight").first).to_be_visible()
    wanted = [f"{weight:.4f}" for weight in trace.weights(1, 1)[3].tolist()]
    expect(shown.locator(".neuron-row .neuron-weight")).to_have_text(wanted)
    shown.get_by_role("tab", name="Story").click()
    for step, there in ((5, ".story-portion"), (7, ".story-heads svg"), (8, ".story-drawn li")):
        shown.locator(f'[data-step="{step}"]').click()
        expect(shown.locator(there).first).to_be_attached()
    shown.get_by_role("tab", name="Model").click()
    expect(shown.locator(".wall.drawn")).to_be_visible()
    entropy = float(trace.statistics().mean("entropy")[1][1])
    expect(shown.get_by_role("gridcell", name="Layer 1, head 1")).to_contain_text(f"{entropy:.3f}")
    shown.get_by_role("tab", name="Heads").click()


def test_the_causal_check_is_that_of_an_edit(lab: BrowserPage, folder: Path) -> None:
    model = regard.load(str(folder / "llama"))
    trace = model.trace(TEXT)
    edited = model.edited(regard.Zero("head", layer=1, head=4))
    after = edited.trace(TEXT)
    logits = edited(torch.tensor([trace.token_ids])).logits[0]
    h, other = trace.embeddings(), after.embeddings()
    moved = ((other - h).norm(dim=1) / h.norm(dim=1)).tolist()
    shown = widget_of(lab, DECODER)
    shown.get_by_role("tab", name="Causal check").click()
    shown.locator(".check-top").get_by_label("Layer").select_option("1")
    shown.locator(".check-top").get_by_label("Head").select_option("4")
    expect(shown.locator(".check-said")).to_contain_text("not run yet")
    shown.get_by_role("button", name="Run without this head").click()
    rows = shown.locator(".check-table tbody tr")
    expect(rows).to_have_count(len(moved))
    read = [float(text) for text in rows.locator(".figure-of").all_inner_texts()]
    np.testing.assert_allclose(read, moved, rtol=0, atol=1e-4)
    likeliest = logits.double().softmax(dim=1).max(dim=1)
    tops = [row.split("\t")[-1] for row in rows.all_inner_texts()]
    np.testing.assert_allclose([float(top.split()[-1]) for top in tops], likeliest.values.tolist(), atol=1e-4)
    vocabulary = json.loads((folder / "llama/tokenizer.json").read_text())["model"]["vocab"]
    assert [vocabulary[top.split()[0]] for top in tops] == likeliest.indices.tolist()
    shown.get_by_role("tab", name="Heads").click()


def test_arrays_have_no_causal_check_and_their_tokens_are_text(lab: BrowserPage) -> None:
    shown = widget_of(lab, GIVEN)
    assert shown.get_by_role("tab").all_inner_texts() == ["Heads", "Model"]
    expect(shown.locator('.token[data-side="query"]').first).to_contain_text("<img src=x")
    shown.locator('.token[data-side="query"]').nth(1).click()
    expect(shown.locator('.token[data-side="key"] .number')).to_have_text(["0.3333"] * 3)


def test_a_text_that_is_written_is_seen_step_by_step(lab: BrowserPage, folder: Path) -> None:
    written = regard.load(str(folder / "llama")).generate(TEXT, max_length=3, trace=True)
    shown = widget_of(lab, 6)
    expect(shown.get_by_role("tab", selected=True)).to_have_text("Writing")
    shown.get_by_label("All heads").check()
    for place, step in enumerate(written.steps):
        shown.get_by_label("Word that is being written").fill(str(place))
        expect(shown.locator(".writing .where bdi")).to_have_text(step.text)
        rows = [written.trace.weights(layer)[:, written.first - 1 + place] for layer in range(2)]
        best = torch.cat(rows).mean(dim=0).topk(5).values.tolist()
        bars = shown.locator(".writing-bars.read li")
        expect(bars).to_have_count(5)
        found = [float(part) for part in bars.evaluate_all("all => all.map((e) => e.title)")]
        assert found == pytest.approx(best, abs=1e-4)


def test_a_trace_that_cannot_be_drawn_says_why(lab: BrowserPage) -> None:
    expect(cell_of(lab, 5).locator(".jp-OutputArea-output")).to_contain_text("Trace(")
    assert cell_of(lab, 5).locator(".regard-widget").count() == 0


def test_styles_stay_where_they_are(lab: BrowserPage) -> None:
    rules = lab.evaluate(
        "() => [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]).map((rule) => rule.cssText)"
    )
    assert len(rules) > 1000  # the notebook's own
    assert not [rule for rule in rules if ".regard" in rule or ".wall .grid-cell" in rule]
    assert lab.evaluate("() => document.querySelectorAll('#regard-view').length") == 0
    family = widget_of(lab, ENCODER).locator(".brand").evaluate("e => getComputedStyle(e).fontFamily")
    assert family.startswith("system-ui")


def test_it_follows_the_notebooks_theme(lab: BrowserPage) -> None:
    root = widget_of(lab, ENCODER).locator(".regard")
    expect(root).to_have_attribute("data-theme", "light")
    background = root.evaluate("e => getComputedStyle(e).backgroundColor")
    _theme(lab, "JupyterLab Dark")
    expect(root).to_have_attribute("data-theme", "dark")
    assert root.evaluate("e => getComputedStyle(e).backgroundColor") != background
    widget_of(lab, ENCODER).get_by_role("button", name="Theme: auto").click()  # light, whatever is around
    expect(root).to_have_attribute("data-theme", "light")
    expect(widget_of(lab, DECODER).locator(".regard")).to_have_attribute("data-theme", "dark")
    _theme(lab, "JupyterLab Light")


def _theme(page: BrowserPage, name: str) -> None:
    page.evaluate("theme => jupyterapp.commands.execute('apputils:change-theme', { theme })", name)
