"""The widget in a real JupyterLab: its numbers are Python's, and the two do not disturb each other."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from playwright.sync_api import Browser, Locator, expect
from playwright.sync_api import Page as BrowserPage

import regard
from integration.jupyter import TOKEN, jupyterlab, write_notebook
from regard.tracing import Trace
from tolerances import WEIGHTS
from unit.models.folders import write, write_tokenizer

TEXT = "w3 w5 w7 w1 w9 w12"
SHOWN_S = 60_000
CELLS = (
    "import regard\nencoder = regard.load('bert')\nencoder.trace({text!r})",
    "decoder = regard.load('llama')\nshown = decoder.trace({text!r}).widget()\nshown",
    "import numpy as np\n"
    "regard.view(np.full((1, 2, 3, 3), 1 / 3), ['<img src=x onerror=alert(1)>', 'b', 'c'], name='mine')",
    "shown.address = '#layer=1&head=2&units=words'",
    "print(shown.address)",
    "encoder.trace({text!r}, keep='residual')",
)
ENCODER, DECODER, GIVEN = range(3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lab") / "work"
    torch.manual_seed(0)
    for family in ("bert", "llama"):
        (folder / family).mkdir(parents=True)
        write_tokenizer(write(folder / family, family), 31)
    write_notebook(folder / "shown.ipynb", [cell.format(text=TEXT) for cell in CELLS])
    return folder


def _trace(folder: Path, family: str) -> Trace:
    trace = regard.load(str(folder / family)).trace(TEXT)
    assert isinstance(trace, Trace)
    return trace


@pytest.fixture(scope="module")
def lab(browser: Browser, folder: Path) -> Iterator[BrowserPage]:
    """The notebook with all its cells run. Fails on errors in the console, and on requests elsewhere."""
    troubles: list[str] = []
    with jupyterlab(folder) as address:
        context = browser.new_context(viewport={"width": 1400, "height": 1000})
        page = context.new_page()
        page.on(
            "console",
            lambda message: troubles.append(message.text) if message.type in ("warning", "error") else None,
        )
        page.on("pageerror", lambda error: troubles.append(f"script: {error}"))
        page.on("dialog", lambda dialog: troubles.append(f"dialog: {dialog.message}"))
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith((address, "data:", "blob:"))
                else troubles.append(f"request: {request.url}")
            ),
        )
        page.goto(f"{address}/lab/tree/shown.ipynb?token={TOKEN}&reset")
        page.locator(".jp-Notebook .jp-CodeCell").first.wait_for(timeout=SHOWN_S)
        expect(page.locator("#jp-main-statusbar")).to_contain_text("Idle", timeout=SHOWN_S)
        page.evaluate("() => { jupyterapp.commands.execute('notebook:run-all-cells'); }")
        for number in range(3):
            _cell(page, number).locator(".regard").wait_for(timeout=SHOWN_S)
        expect(_cell(page, 5).locator(".jp-OutputArea-output")).to_be_visible(timeout=SHOWN_S)
        yield page
        context.close()
    assert troubles == []


def _cell(page: BrowserPage, number: int) -> Locator:
    return page.locator(".jp-Notebook .jp-CodeCell").nth(number)


def _run(page: BrowserPage, number: int) -> None:
    """Runs a cell, which must print something."""
    cell = _cell(page, number)
    count = cell.locator(".jp-InputArea-prompt").first.inner_text()
    cell.locator(".jp-InputArea-prompt").first.click()
    page.keyboard.press("Shift+Enter")
    expect(cell.locator(".jp-InputArea-prompt").first).not_to_have_text(count)
    expect(cell.locator(".jp-InputArea-prompt").first).not_to_have_text("[*]:")


def _widget(page: BrowserPage, number: int) -> Locator:
    widget = _cell(page, number).locator(".regard-widget")
    widget.scroll_into_view_if_needed()
    return widget


def _state(page: BrowserPage, number: int) -> dict[str, Any]:
    state: dict[str, Any] = _widget(page, number).evaluate("widget => widget.regard.state()")
    return state | {"hover": None}  # scrolling moves widgets below the pointer


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
        read = _widget(lab, number).evaluate(_READ, [kind, layer, *wanted.shape])
        np.testing.assert_allclose(read["rows"], wanted, rtol=0, atol=WEIGHTS)
        np.testing.assert_allclose(np.swapaxes(read["columns"], 1, 2), wanted, rtol=0, atol=WEIGHTS)
        scores = np.maximum(trace.scores(layer).double().numpy(), -1e9)
        np.testing.assert_allclose(read["scores"], scores, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(read["contexts"], trace.context(layer), rtol=0, atol=1e-5)
    entropy = trace.statistics().mean("entropy").numpy()
    np.testing.assert_allclose(read["statistics"]["entropy"], entropy, rtol=1e-4, atol=1e-5)


def test_a_click_shows_a_row_and_leaves_the_other_widgets_alone(lab: BrowserPage, folder: Path) -> None:
    trace = _trace(folder, "bert")
    widget = _widget(lab, ENCODER)
    others = [_state(lab, number) for number in (DECODER, GIVEN)]
    widget.get_by_role("gridcell", name="Layer 1, head 2").click()
    widget.locator('.token[data-side="query"][data-token="2"]').click()
    numbers = widget.locator('.token[data-side="key"] .number')
    wanted = [f"{weight:.4f}" for weight in trace.weights(1, 2)[2].tolist()]
    expect(numbers).to_have_text(wanted)
    expect(widget.locator(".top .top-number").first).to_have_text(max(wanted))
    assert _state(lab, ENCODER)["pin"] == {"side": "query", "index": 2}
    assert [_state(lab, number) for number in (DECODER, GIVEN)] == others
    assert "#" not in lab.url


def test_keys_are_the_widgets_while_it_has_them(lab: BrowserPage) -> None:
    widget = _widget(lab, ENCODER)
    cells = lab.locator(".jp-Notebook .jp-CodeCell").count()
    widget.get_by_role("gridcell", name="Layer 0, head 0").click()
    for key in ("ArrowRight", "ArrowDown", "b", "a", "d", "d", "m", "Enter"):
        lab.keyboard.press(key)
    state = _state(lab, ENCODER)
    # A takes a whole layer; B, D and M, which make, delete and change cells, do nothing.
    assert (state["layer"], state["head"], len(state["also"])) == (1, 1, 3)
    assert lab.locator(".jp-Notebook .jp-CodeCell").count() == cells
    assert lab.locator(".jp-Notebook .jp-MarkdownCell").count() == 0
    widget.get_by_role("gridcell", name="Layer 1, head 0").click()
    lab.keyboard.press("?")
    expect(widget.get_by_role("dialog")).to_contain_text("widget.address")
    lab.keyboard.press("Escape")
    expect(widget.get_by_role("dialog")).to_be_hidden()


def test_python_reads_and_sets_what_is_chosen(lab: BrowserPage) -> None:
    _run(lab, 3)
    widget = _widget(lab, DECODER)
    expect(widget.locator(".where")).to_have_text("Layer 1, head 2")
    assert _state(lab, DECODER)["units"] == "words"
    widget.get_by_role("gridcell", name="Layer 0, head 4").click()
    _run(lab, 4)
    expect(_cell(lab, 4).locator(".jp-OutputArea-output")).to_contain_text("layer=0&head=4")


def test_the_calculation_and_the_model_view(lab: BrowserPage, folder: Path) -> None:
    trace = _trace(folder, "bert")
    widget = _widget(lab, ENCODER)
    widget.get_by_role("tab", name="Calculation").click()
    widget.locator(".neuron-controls").get_by_label("Layer").select_option("1")
    widget.locator(".neuron-controls").get_by_label("Head").select_option("1")
    widget.locator(".neuron-controls").get_by_label("Query", exact=True).select_option("3")
    expect(widget.locator(".neuron-row .neuron-weight").first).to_be_visible()
    wanted = [f"{weight:.4f}" for weight in trace.weights(1, 1)[3].tolist()]
    expect(widget.locator(".neuron-row .neuron-weight")).to_have_text(wanted)
    widget.get_by_role("tab", name="Model").click()
    expect(widget.locator(".wall.drawn")).to_be_visible()
    entropy = float(trace.statistics().mean("entropy")[1][1])
    expect(widget.get_by_role("gridcell", name="Layer 1, head 1")).to_contain_text(f"{entropy:.3f}")
    widget.get_by_role("tab", name="Heads").click()


def test_the_causal_check_is_that_of_an_edit(lab: BrowserPage, folder: Path) -> None:
    model = regard.load(str(folder / "llama"))
    trace = model.trace(TEXT)
    with model.edit(regard.Zero("head", layer=1, head=4)) as edited:
        after = edited.trace(TEXT)
        logits = edited(torch.tensor([trace.token_ids])).logits[0]
    h, other = trace.embeddings(), after.embeddings()
    moved = ((other - h).norm(dim=1) / h.norm(dim=1)).tolist()
    widget = _widget(lab, DECODER)
    widget.get_by_role("tab", name="Causal check").click()
    widget.locator(".check-top").get_by_label("Layer").select_option("1")
    widget.locator(".check-top").get_by_label("Head").select_option("4")
    expect(widget.locator(".check-said")).to_contain_text("not run yet")
    widget.get_by_role("button", name="Run without this head").click()
    rows = widget.locator(".check-table tbody tr")
    expect(rows).to_have_count(len(moved))
    read = [float(text) for text in rows.locator(".figure-of").all_inner_texts()]
    np.testing.assert_allclose(read, moved, rtol=0, atol=1e-4)
    likeliest = logits.double().softmax(dim=1).max(dim=1)
    tops = [row.split("\t")[-1] for row in rows.all_inner_texts()]
    np.testing.assert_allclose([float(top.split()[-1]) for top in tops], likeliest.values.tolist(), atol=1e-4)
    vocabulary = json.loads((folder / "llama/tokenizer.json").read_text())["model"]["vocab"]
    assert [vocabulary[top.split()[0]] for top in tops] == likeliest.indices.tolist()
    widget.get_by_role("tab", name="Heads").click()


def test_arrays_have_no_causal_check_and_their_tokens_are_text(lab: BrowserPage) -> None:
    widget = _widget(lab, GIVEN)
    assert widget.get_by_role("tab").all_inner_texts() == ["Heads", "Model"]
    expect(widget.locator('.token[data-side="query"]').first).to_contain_text("<img src=x")
    widget.locator('.token[data-side="query"]').nth(1).click()
    expect(widget.locator('.token[data-side="key"] .number')).to_have_text(["0.3333"] * 3)


def test_a_trace_that_cannot_be_drawn_says_why(lab: BrowserPage) -> None:
    expect(_cell(lab, 5).locator(".jp-OutputArea-output")).to_contain_text("Trace(")
    assert _cell(lab, 5).locator(".regard-widget").count() == 0


def test_styles_stay_where_they_are(lab: BrowserPage) -> None:
    rules = lab.evaluate(
        "() => [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]).map((rule) => rule.cssText)"
    )
    assert len(rules) > 1000  # the notebook's own
    assert not [rule for rule in rules if ".regard" in rule or ".wall-cell" in rule]
    assert lab.evaluate("() => document.querySelectorAll('#regard-view').length") == 0
    family = _widget(lab, ENCODER).locator(".brand").evaluate("e => getComputedStyle(e).fontFamily")
    assert family.startswith("system-ui")


def test_it_follows_the_notebooks_theme(lab: BrowserPage) -> None:
    root = _widget(lab, ENCODER).locator(".regard")
    expect(root).to_have_attribute("data-theme", "light")
    background = root.evaluate("e => getComputedStyle(e).backgroundColor")
    _theme(lab, "JupyterLab Dark")
    expect(root).to_have_attribute("data-theme", "dark")
    assert root.evaluate("e => getComputedStyle(e).backgroundColor") != background
    _widget(lab, ENCODER).get_by_role("button", name="Theme: auto").click()  # light, whatever is around
    expect(root).to_have_attribute("data-theme", "light")
    expect(_widget(lab, DECODER).locator(".regard")).to_have_attribute("data-theme", "dark")
    _theme(lab, "JupyterLab Light")


def _theme(page: BrowserPage, name: str) -> None:
    page.evaluate("theme => jupyterapp.commands.execute('apputils:change-theme', { theme })", name)
