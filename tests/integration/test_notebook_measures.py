"""Measures, differences and long texts in a real JupyterLab, and what becomes of a widget in the end."""

import re
from collections.abc import Iterator
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

TEXT, OTHER = "w3 w5 w7 w1 w9 w12", "w3 w7 w1 w2 w2 w9"
LONG = " ".join(f"w{i * i % 23 + 1}" for i in range(2000))
# A key at a time; of a text of 20 tokens nothing after three until a cell lets it; by the clock it is slow.
SLOW = """\
import time
from regard.tracing.pages import _page_measures
from regard.tracing.measures import _value_zeroing
from regard.views import _live
whole, held, _value_zeroing._FEW = _page_measures.value_zeroing_blocks, [False], 1
def slowly(trace, *args):
    for place, block in enumerate(whole(trace, *args)):
        while held[0] and place == 3 and len(trace.tokens) == 20:
            time.sleep(0.05)
            yield block[:, :0]
        yield block
_page_measures.value_zeroing_blocks = slowly
_live._SLICE, _live.perf_counter = 250, lambda: 1000 * time.perf_counter()"""
MODELS, DECODER, DIFFERENCE, LONG_TEXT, FIRST, AGAIN, WRONG, ENDED, CLOSED, PATCH, SLOWLY, LET_GO = range(12)
CELLS = (
    "import gc, weakref, regard\nclosing = False\n"
    "encoder, decoder = regard.load('bert'), regard.load('llama')",
    f"decoder.trace({TEXT!r})",
    f"decoder.trace({TEXT!r}).widget(against=decoder.trace({OTHER!r}))",
    f"decoder.trace({LONG!r})",
    f"trace = encoder.trace({TEXT!r})\none = trace.widget()\none",
    "one",
    "trace.widget(of=lambda output: output.last_hidden_state)",
    f"ended = encoder.trace({TEXT!r})\nknown, over = weakref.ref(ended), ended.widget()\ndel ended\nover",
    # Closes it when it is run again.
    "over.close() if closing else None\nclosing = True\ngc.collect()\nprint(known() is None)",
    SLOW,
    f"decoder.trace({TEXT!r} + ' w2' * 14)",
    "held[0] = not held[0]",  # holds it at first, and lets it go when it is run again
)

_ARRIVE = """
    const arrive = (source, ask) => new Promise((resolve, reject) => {
        const look = () => { const found = ask(); if (found !== null) resolve(found); };
        setTimeout(() => reject(new Error("no answer")), 30000);
        source.listen(look);
        look();
    });
"""
# The rows and columns of a measure of every head of a layer.
_READ = f"""async (widget, [what, layer, heads, count]) => {{
    const {{ source }} = widget.regard;
    const [kind] = source.kinds;{_ARRIVE}
    const range = (n) => Array.from({{ length: n }}, (_, i) => i);
    const each = (ask) => Promise.all(range(heads).map((head) =>
        Promise.all(range(count).map((i) => arrive(source, () => ask(head, i)).then(Array.from)))));
    return {{
        rows: await each((head, i) => source.row(kind, layer, head, i, what)),
        columns: await each((head, i) => source.column(kind, layer, head, i, what)),
    }};
}}"""


@pytest.fixture(scope="module")
def lab(browser: Browser, jupyter: Jupyter) -> Iterator[BrowserPage]:
    # The last test restarts the kernel.
    with notebook(browser, *jupyter, "measures", CELLS, allowed="Connection lost") as page:
        yield page


def _trace(jupyter: Jupyter, family: str = "llama", text: str = TEXT) -> Trace:
    trace = regard.load(str(jupyter.folder / family)).trace(text)
    assert isinstance(trace, Trace)
    return trace


def _measure(trace: Trace, name: str, layer: int) -> Any:
    if name == "norm":
        return trace.norm_weighted(layer).numpy()
    if name == "value_zeroing":
        return trace.value_zeroing(layer).numpy()[None].repeat(trace.num_heads, 0)
    if name == "rollout":
        return trace.rollout(layer=layer).numpy()[None].repeat(trace.num_heads, 0)
    network = trace.require_model().network
    with torch.no_grad():
        best = int(network(torch.tensor([trace.token_ids]), logits=True).logits[0, -1].argmax())
    return trace.attention_gradients(layer, of=lambda output: output.logits[0, -1, best]).numpy()


@pytest.mark.parametrize("name", ["norm", "value_zeroing", "rollout", "gradient"])
def test_every_number_of_a_measure_is_pythons(lab: BrowserPage, jupyter: Jupyter, name: str) -> None:
    trace = _trace(jupyter)
    shown = widget_of(lab, DECODER)
    for layer in range(trace.num_layers):
        wanted = _measure(trace, name, layer)
        read = shown.evaluate(_READ, [name, layer, trace.num_heads, len(trace.tokens)])
        np.testing.assert_allclose(read["rows"], wanted, rtol=1e-4, atol=WEIGHTS)
        np.testing.assert_allclose(np.swapaxes(read["columns"], 1, 2), wanted, rtol=1e-4, atol=WEIGHTS)


def test_the_picture_switches_between_measures(lab: BrowserPage, jupyter: Jupyter) -> None:
    trace = _trace(jupyter)
    shown = widget_of(lab, DECODER)
    shown.get_by_role("gridcell", name="Layer 1, head 2").click()
    shown.locator('.token[data-side="query"][data-token="4"]').click()
    lab.mouse.move(5, 5)  # what is said of a measure moves the tokens below the pointer
    numbers = shown.locator('.token[data-side="key"] .number')
    for name in ("norm", "rollout", "gradient", "weights"):
        shown.get_by_label("What is drawn").select_option(name)
        wanted = trace.weights(1) if name == "weights" else torch.tensor(_measure(trace, name, 1))
        if name == "gradient":
            expect(shown.locator(".said-drawn")).to_contain_text("of the logit of 'w")
            expect(numbers.nth(2)).to_have_text(_told(float(wanted[2, 4, 2])))
        else:
            # What a token may not look at has no number.
            expect(numbers).to_have_text([f"{value:.4f}" for value in wanted[2, 4, :5].tolist()] + [""])
    shown.locator('.token[data-side="query"][data-token="4"]').click()


def _told(value: float) -> Any:
    text = f"{abs(value):.4f}" if abs(value) >= 0.02 else f"{abs(value):.2e}"
    digits = re.escape(text.split("e")[0])
    return re.compile(rf"^[+−]?{digits}")


def test_a_long_measure_says_how_far_it_is_and_can_be_stopped(lab: BrowserPage, jupyter: Jupyter) -> None:
    trace = _trace(jupyter, text=TEXT + " w2" * 14)
    shown = widget_of(lab, SLOWLY)
    shown.get_by_label("What is drawn").select_option("value_zeroing")
    strip = shown.locator(".strip")
    expect(strip).to_contain_text("Working out value zeroing, layer 0", timeout=SHOWN_S)
    expect(strip.get_by_role("progressbar", name="Worked out")).to_have_attribute("value", "0.15")
    # Others get their answers meanwhile.
    shown.evaluate(
        f"async (widget) => {{ const {{ source }} = widget.regard;{_ARRIVE}"
        "await arrive(source, () => source.row(source.kinds[0], 1, 3, 17)); }"
    )
    expect(strip).to_contain_text("Working out")
    strip.get_by_role("button", name="Stop").click()
    expect(strip).to_contain_text("Stopped: value zeroing, layer 0")
    run_cell(lab, LET_GO)
    expect(shown.locator(".drawn select")).to_have_value("value_zeroing")
    expect(strip).to_contain_text("Stopped")
    strip.get_by_role("button", name="Go on").click()
    # One layer took so long, as the clock says, that the reader is asked about the other's thumbnails.
    expect(strip).to_contain_text("Thumbnails of one more layer take about", timeout=SHOWN_S)
    read = shown.evaluate(_READ, ["value_zeroing", 0, 1, len(trace.tokens)])
    np.testing.assert_allclose(read["rows"][0], trace.value_zeroing(0), rtol=1e-4, atol=WEIGHTS)
    strip.get_by_role("button", name="Work them out").click()
    expect(shown.locator(".grid.drawn")).to_be_visible(timeout=SHOWN_S)
    expect(strip).to_be_hidden()
    shown.get_by_label("What is drawn").select_option("weights")


def test_what_python_refuses_is_said_in_the_widget(lab: BrowserPage) -> None:
    shown = widget_of(lab, WRONG)
    shown.get_by_label("What is drawn").select_option("gradient")
    expect(shown.locator(".strip")).to_contain_text("of must give one floating-point number")
    shown.get_by_label("What is drawn").select_option("weights")
    expect(shown.locator(".strip")).to_be_hidden()


def test_the_difference_is_of_both_traces(lab: BrowserPage, jupyter: Jupyter) -> None:
    one, other = _trace(jupyter), _trace(jupyter, text=OTHER)
    shown = widget_of(lab, DIFFERENCE)
    expect(shown.get_by_role("tab")).to_have_text(["Difference", "Heads", "Model"])
    bits = regard.tracing.divergence(one, other).heads
    cell = shown.get_by_role("gridcell", name=f"Layer 1, head 2: {bits[1, 2]:.4f} bits")
    cell.click()
    expect(shown.locator(".view .where")).to_have_text("Layer 1, head 2")
    read = shown.evaluate(
        f"""async (widget) => {{ const {{ source }} = widget.regard;{_ARRIVE}
        const tokens = source.tokens("decoder", "query");
        const at = tokens.findIndex(({{ text, only }}) => text === "w9" && only === undefined);
        const row = await arrive(source, () => source.row("decoder", 1, 2, at));
        return tokens.map(({{ only }}, i) => [only === undefined, row[i]]); }}"""
    )
    ours, theirs = one.weights(1, 2)[4], other.weights(1, 2)[5]
    wanted = [float(theirs[b] - ours[a]) for a, b in ((0, 0), (2, 1), (3, 2), (4, 5))]
    np.testing.assert_allclose([value for both, value in read if both], wanted, rtol=0, atol=WEIGHTS)
    assert [value for both, value in read if not both] == [0] * 4
    shown.locator('input[name="regard-run"]').nth(2).evaluate("input => input.click()")
    expect(shown.locator('.token[data-side="query"]')).to_have_count(6)
    shown.locator('.token[data-side="query"]').nth(5).click()
    numbers = shown.locator('.token[data-side="key"] .number')
    expect(numbers).to_have_text([f"{value:.4f}" for value in theirs.tolist()])
    expect(shown.get_by_role("tab", name="Causal check")).to_be_visible()


def test_of_two_thousand_tokens_a_row_and_a_column(lab: BrowserPage, jupyter: Jupyter) -> None:
    trace = _trace(jupyter, text=LONG)
    shown = widget_of(lab, LONG_TEXT)
    weights = trace.weights(1, 3)
    read = shown.evaluate(
        f"""async (widget) => {{ const {{ source }} = widget.regard;{_ARRIVE}
        const found = await Promise.all([arrive(source, () => source.row("decoder", 1, 3, 1900)),
            arrive(source, () => source.column("decoder", 1, 3, 7)),
            arrive(source, () => source.row("decoder", 1, 3, 1900, "norm"))]);
        return found.map((values) => Array.from(values)); }}"""
    )
    np.testing.assert_allclose(read[0], weights[1900], rtol=0, atol=WEIGHTS)
    np.testing.assert_allclose(read[1], weights[:, 7], rtol=0, atol=WEIGHTS)
    np.testing.assert_allclose(read[2], trace.norm_weighted(1)[3, 1900], rtol=1e-4, atol=WEIGHTS)
    shown.get_by_role("gridcell", name="Layer 1, head 3").click()
    expect(shown.locator(".grid.drawn")).to_be_visible(timeout=SHOWN_S)
    lab.keyboard.press("Escape")  # lets go of the word that it opened on
    strongest = f"{float(weights.max()):.4f}"
    expect(shown.locator(".top .top-number").first).to_have_text(strongest, timeout=SHOWN_S)


def test_one_widget_in_two_cells_and_another_of_its_trace(lab: BrowserPage) -> None:
    first, again = widget_of(lab, FIRST), widget_of(lab, AGAIN)
    of_another = state_of(lab, WRONG)["head"]
    again.get_by_role("gridcell", name="Layer 1, head 2").click()
    expect(again.locator(".top .top-number").first).to_be_visible()
    expect(first.locator(".where")).to_have_text("Layer 1, head 2")  # they share an address
    expect(first.locator(".top .top-number").first).to_have_text(
        again.locator(".top .top-number").first.inner_text()
    )
    assert state_of(lab, WRONG)["head"] == of_another != 2


def test_a_closed_widget_leaves_the_page_and_the_memory(lab: BrowserPage) -> None:
    said = cell_of(lab, CLOSED).locator(".jp-OutputArea-output")
    expect(said).to_have_text("False")
    expect(widget_of(lab, ENDED)).to_be_visible()
    run_cell(lab, CLOSED)
    expect(said).to_have_text("True")
    expect(cell_of(lab, ENDED).locator(".regard-widget")).to_have_count(0)


def test_a_widget_says_that_its_kernel_is_gone(
    lab: BrowserPage,
) -> None:  # the last: no widget answers after it
    shown = widget_of(lab, DECODER)
    expect(shown.locator(".grid.drawn")).to_be_visible(timeout=SHOWN_S)
    lab.evaluate("() => { jupyterapp.commands.execute('kernelmenu:restart'); }")
    lab.locator(".jp-Dialog button.jp-mod-warn").click()
    expect(shown.locator(".strip")).to_contain_text("Run the cell again", timeout=SHOWN_S)
    expect(lab.locator("#jp-main-statusbar")).to_contain_text("Idle", timeout=SHOWN_S)  # else it ends slowly
