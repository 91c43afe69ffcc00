"""The widget in a real JupyterLab: its numbers are Python's, both leave each other alone, and how it ends.

One kernel runs the cells of all tests: its start, with what it imports, takes longer than most tests.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from playwright.sync_api import Browser, expect
from playwright.sync_api import Page as BrowserPage

import regard
from integration import head_page
from integration.conftest import Jupyter
from integration.jupyter import SHOWN_S, cell_of, notebook, run_cell, state_of, widget_of
from regard.tracing import Trace
from regard.tracing.comparison import words_alike
from tolerances import WEIGHTS

TEXT, OTHER = "w3 w5 w7 w1 w9 w12", "w3 w7 w1 w2 w2 w9"
LONG = " ".join(f"w{i * i % 23 + 1}" for i in range(2000))
# A key at a time; of a text of 10 tokens nothing after three until a cell lets it; by the clock it is slow.
SLOW = """\
import time
from regard.tracing.pages import _page_measures
from regard.tracing.measures import _values
from regard.views import _live
whole, held, _values._FEW = _page_measures.value_zeroing_blocks, [False], 1
def slowly(trace, *args):
    for place, block in enumerate(whole(trace, *args)):
        while held[0] and place == 3 and len(trace.tokens) == 10:
            time.sleep(0.05)
            yield block[:, :0]
        yield block
_page_measures.value_zeroing_blocks = slowly
_live._SLICE, _live.perf_counter = 250, lambda: 1000 * time.perf_counter()"""
(
    ENCODER,
    DECODER,
    GIVEN,
    SET,
    READ,
    NOT_DRAWN,
    WRITTEN,
    MEASURED,
    DIFFERENCE,
    LONG_TEXT,
    FIRST,
    AGAIN,
    WRONG,
    ENDED,
    CLOSED,
    PATCH,
    SLOWLY,
    LET_GO,
    TYPED,
    WRITES,
    PAGE,
) = range(21)
CELLS = (
    f"import gc, weakref, regard\nencoder = regard.load('bert')\nencoder.trace({TEXT!r})",
    f"decoder = regard.load('llama')\nshown = decoder.trace({TEXT!r}).widget()\nshown",
    "import numpy as np\n"
    "regard.view(np.full((1, 2, 3, 3), 1 / 3), ['<img src=x onerror=alert(1)>', 'b', 'c'], name='mine')",
    "shown.address = '#layer=1&head=2&units=words'",
    "print(shown.address)",
    f"encoder.trace({TEXT!r}, keep='residual')",
    f"decoder.generate({TEXT!r}, max_length=3, trace=True)",
    f"decoder.trace({TEXT!r})",
    f"decoder.trace({TEXT!r}).widget(against=decoder.trace({OTHER!r}))",
    # Nothing at first: its test is slow, and runs it again.
    f"long = decoder.trace({LONG!r}) if 'long' in globals() else None\nlong",
    f"trace = encoder.trace({TEXT!r})\none = trace.widget()\none",
    "one",
    "trace.widget(of=lambda output: output.last_hidden_state)",
    f"ended = encoder.trace({TEXT!r})\nknown, over = weakref.ref(ended), ended.widget()\ndel ended\nover",
    # Closes it when it is run again.
    "over.close() if 'closing' in globals() else None\nclosing = True\ngc.collect()\nprint(known() is None)",
    SLOW,
    f"decoder.trace({TEXT!r} + ' w2' * 4)",
    "held[0] = not held[0]",  # holds it at first, and lets it go when it is run again
    f"encoder.trace({TEXT!r})",
    f"decoder.trace({TEXT!r})",
    f"encoder.trace({TEXT!r}).page()",
)


def _trace(folder: Path, family: str, text: str = TEXT) -> Trace:
    trace = regard.load(str(folder / family)).trace(text)
    assert isinstance(trace, Trace)
    return trace


@pytest.fixture(scope="module")
def folder(jupyter: Jupyter) -> Path:
    return jupyter.folder


@pytest.fixture(scope="module")
def lab(browser: Browser, jupyter: Jupyter) -> Iterator[BrowserPage]:
    # The last test restarts the kernel.
    with notebook(browser, *jupyter, "shown", CELLS, allowed="Connection lost") as page:
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


def test_the_front_door_is_typed_into(lab: BrowserPage, folder: Path) -> None:
    cell_of(lab, TYPED).scroll_into_view_if_needed()
    shown = cell_of(lab, TYPED).locator(".regard-widget")
    words, field = shown.locator(".door > .door-sentence .door-word"), shown.get_by_label("Type a sentence")
    expect(words).to_have_text(TEXT.split())
    field.fill("")
    expect(shown.locator(".strip")).to_contain_text("text is empty")
    field.fill(OTHER)
    expect(words).to_have_text(OTHER.split())
    expect(field).to_be_focused()
    expect(shown.locator(".strip")).to_be_hidden()
    shown.get_by_role("button", name="What if not?").click()
    state = shown.evaluate("widget => widget.regard.state()")
    trace, answer = _trace(folder, "bert", OTHER), shown.locator(".answer-without")
    apart = 1 - words_alike([trace])
    expect(answer).to_contain_text(f"Two different words here are {apart:.2f} apart.")
    shown.get_by_label("without this head").check()
    moved = 1 - trace.ablation(state["layer"], state["head"]).cosine
    expect(answer).to_contain_text(f"a full one is {max(moved.max(), 0.05 * apart):.2f}.")


def test_a_page_says_what_it_knows_without_a_model(lab: BrowserPage, folder: Path) -> None:
    cell_of(lab, PAGE).scroll_into_view_if_needed()
    shown = cell_of(lab, PAGE).locator(".regard-widget")
    shown.get_by_role("button", name="What if not?").click()
    state, answer = shown.evaluate("widget => widget.regard.state()"), shown.locator(".answer-without")
    apart = 1 - words_alike([_trace(folder, "bert")])
    expect(answer).to_contain_text(f"Two different words here are {apart:.2f} apart.")
    shown.get_by_label("without this head").check()
    moved = 1 - _trace(folder, "bert").ablation(state["layer"], state["head"]).cosine
    expect(answer).to_contain_text(f"a full one is {max(moved.max(), 0.05 * apart):.2f}.")


def test_a_decoder_writes(lab: BrowserPage, folder: Path) -> None:
    cell_of(lab, WRITES).scroll_into_view_if_needed()
    shown = cell_of(lab, WRITES).locator(".regard-widget")
    bars, field = shown.locator(".writer > .writer-bars button"), shown.get_by_label("Type a sentence")
    model, text = regard.load(str(folder / "llama")), TEXT

    def check() -> None:
        with torch.no_grad():
            logits = model(torch.tensor([model.tokenizer.encode(text).token_ids])).logits
        assert logits is not None
        shares = [f"{100 * each:.1f}" for each in logits[0, -1].double().softmax(0).topk(5).values.tolist()]
        expect(shown.locator(".writer > .writer-bars .writer-share")).to_contain_text(shares)

    expect(bars).to_have_count(5)
    check()
    for _ in range(2):
        place = next(at for at in range(5) if bars.nth(at).is_enabled())
        said = bars.nth(place).locator("bdi").inner_text()
        bars.nth(place).click()
        expect(field).to_have_value(re.compile(f"{re.escape(text)} ?{re.escape(said.strip())}"))
        text = field.input_value()
        check()
    # All views follow when nobody has typed for a moment.
    count = len(model.trace(text).tokens)
    lab.wait_for_function(
        "([widget, count]) => widget.regard.source.tokens('decoder', 'query').length === count",
        arg=[shown.element_handle(), count],
    )
    expect(shown.locator(".writer > .writer-bars button")).to_have_count(5)
    shown.get_by_role("slider", name="Temperature").fill("0")
    shown.get_by_role("button", name="Go on").click()
    expect(field).not_to_have_value(text)
    if shown.get_by_role("button", name="Stop").count():
        shown.get_by_role("button", name="Stop").click()
    expect(shown.get_by_role("button", name="Go on")).to_be_visible()
    shown.get_by_role("button", name="What if not?").click()
    expect(shown.locator(".answer-without .writer-bar").first).to_be_visible()
    # Its template is that of a chat: the question stands in it, and is answered.
    field.fill("w5")
    shown.get_by_role("button", name="Ask it as a chat").click()
    expect(field).to_have_value(re.compile("^w1 w5 w2 +w"))
    shown.get_by_role("button", name="Stop").click()
    expect(shown.get_by_role("button", name="Go on")).to_be_visible()
    field.fill("")
    expect(shown.locator(".strip")).to_contain_text("text is empty")


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
    expect(shown.locator(".top .top-number").first).to_have_text(head_page.percent(float(max(wanted))))
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
    run_cell(lab, SET)
    shown = widget_of(lab, DECODER)
    expect(shown.locator(".where")).to_have_text("Layer 1, head 2")
    assert state_of(lab, DECODER)["units"] == "words"
    shown.get_by_role("gridcell", name="Layer 0, head 4").click()
    run_cell(lab, READ)
    expect(cell_of(lab, READ).locator(".jp-OutputArea-output")).to_contain_text("layer=0&head=4")


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


def test_why_a_head_looks_there_is_asked_of_any_head(lab: BrowserPage, folder: Path) -> None:
    trace = _trace(folder, "llama")
    for head in range(2):
        query, key = divmod(int(trace.weights(1, head)[1:].argmax()), len(trace.tokens))
        told = widget_of(lab, DECODER).evaluate(
            f"""async (widget, [kind, layer, head, query, key]) => {{
                const {{ source }} = widget.regard;{_ARRIVE}
                await arrive(source, () => source.whyOf(kind, layer, head));
                return source.why({{ kind, layer, head }}, query, key);
            }}""",
            ["decoder", 1, head, query + 1, key],
        )
        found = trace.why(1, head, query + 1, key)
        assert told["total"] == pytest.approx(found.value, abs=0.0051)
        best = max(found.key_parts, key=lambda part: part.value * (1 if found.value >= 0 else -1))
        assert told["parts"][0]["said"] == str(best.writer)


def test_arrays_have_no_causal_check_and_their_tokens_are_text(lab: BrowserPage) -> None:
    shown = widget_of(lab, GIVEN)
    assert shown.get_by_role("tab").all_inner_texts() == ["Heads", "Model"]
    expect(shown.locator('.token[data-side="query"]').first).to_contain_text("<img src=x")
    shown.locator('.token[data-side="query"]').nth(1).click()
    expect(shown.locator('.token[data-side="key"] .number')).to_have_text(["0.3333"] * 3)


def test_a_text_that_is_written_is_seen_step_by_step(lab: BrowserPage, folder: Path) -> None:
    written = regard.load(str(folder / "llama")).generate(TEXT, max_length=3, trace=True)
    shown = widget_of(lab, WRITTEN)
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
    expect(cell_of(lab, NOT_DRAWN).locator(".jp-OutputArea-output")).to_contain_text("Trace(")
    assert cell_of(lab, NOT_DRAWN).locator(".regard-widget").count() == 0


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


# --- measures, differences, long texts, and the end of a widget

_ARRIVE = """
    const arrive = (source, ask) => new Promise((resolve, reject) => {
        const look = () => { const found = ask(); if (found !== null) resolve(found); };
        setTimeout(() => reject(new Error("no answer")), 30000);
        source.listen(look);
        look();
    });
"""
# The rows and columns of a measure of every head of a layer.
_READ_MEASURE = f"""async (widget, [what, layer, heads, count]) => {{
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
def test_every_number_of_a_measure_is_pythons(lab: BrowserPage, folder: Path, name: str) -> None:
    trace = _trace(folder, "llama")
    shown = widget_of(lab, MEASURED)
    for layer in range(trace.num_layers):
        wanted = _measure(trace, name, layer)
        read = shown.evaluate(_READ_MEASURE, [name, layer, trace.num_heads, len(trace.tokens)])
        np.testing.assert_allclose(read["rows"], wanted, rtol=1e-4, atol=WEIGHTS)
        np.testing.assert_allclose(np.swapaxes(read["columns"], 1, 2), wanted, rtol=1e-4, atol=WEIGHTS)


def test_the_picture_switches_between_measures(lab: BrowserPage, folder: Path) -> None:
    trace = _trace(folder, "llama")
    shown = widget_of(lab, MEASURED)
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


def test_a_long_measure_says_how_far_it_is_and_can_be_stopped(lab: BrowserPage, folder: Path) -> None:
    trace = _trace(folder, "llama", TEXT + " w2" * 4)
    shown = widget_of(lab, SLOWLY)
    shown.get_by_label("What is drawn").select_option("value_zeroing")
    strip = shown.locator(".strip")
    expect(strip).to_contain_text("Working out value zeroing, layer 1", timeout=SHOWN_S)
    expect(strip.get_by_role("progressbar", name="Worked out")).to_have_attribute("value", "0.3")
    # Others get their answers meanwhile.
    shown.evaluate(
        f"async (widget) => {{ const {{ source }} = widget.regard;{_ARRIVE}"
        "await arrive(source, () => source.row(source.kinds[0], 1, 3, 7)); }"
    )
    expect(strip).to_contain_text("Working out")
    strip.get_by_role("button", name="Stop").click()
    expect(strip).to_contain_text("Stopped: value zeroing, layer 1")
    run_cell(lab, LET_GO)
    expect(shown.locator(".drawn select")).to_have_value("value_zeroing")
    expect(strip).to_contain_text("Stopped")
    strip.get_by_role("button", name="Go on").click()
    # One layer took so long, as the clock says, that the reader is asked about the other's thumbnails.
    expect(strip).to_contain_text("Thumbnails of one more layer take about", timeout=SHOWN_S)
    read = shown.evaluate(_READ_MEASURE, ["value_zeroing", 1, 1, len(trace.tokens)])
    np.testing.assert_allclose(read["rows"][0], trace.value_zeroing(1), rtol=1e-4, atol=WEIGHTS)
    strip.get_by_role("button", name="Work them out").click()
    expect(shown.locator(".grid.drawn")).to_be_visible(timeout=SHOWN_S)
    expect(strip).to_be_hidden()
    shown.get_by_label("What is drawn").select_option("weights")


def test_what_python_refuses_is_said_in_the_widget(lab: BrowserPage) -> None:
    shown = widget_of(lab, WRONG)
    shown.get_by_label("What is drawn").select_option("gradient")
    expect(shown.locator(".strip")).to_contain_text("of must give one number")
    shown.get_by_label("What is drawn").select_option("weights")
    expect(shown.locator(".strip")).to_be_hidden()


def test_the_difference_is_of_both_traces(lab: BrowserPage, folder: Path) -> None:
    one, other = _trace(folder, "llama"), _trace(folder, "llama", OTHER)
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


@pytest.mark.slow
def test_of_two_thousand_tokens_a_row_and_a_column(lab: BrowserPage, folder: Path) -> None:
    trace = _trace(folder, "llama", LONG)
    run_cell(lab, LONG_TEXT)
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
    strongest = head_page.percent(float(weights.max()))
    expect(shown.locator(".top .top-number").first).to_have_text(strongest, timeout=SHOWN_S)


def test_one_widget_in_two_cells_and_another_of_its_trace(lab: BrowserPage) -> None:
    first, again = widget_of(lab, FIRST), widget_of(lab, AGAIN)
    of_another = state_of(lab, WRONG)["head"]
    again.get_by_role("gridcell", name="Layer 1, head 1").click()
    expect(again.locator(".top .top-number").first).to_be_visible()
    expect(first.locator(".where")).to_have_text("Layer 1, head 1")  # they share an address
    expect(first.locator(".top .top-number").first).to_have_text(
        again.locator(".top .top-number").first.inner_text()
    )
    assert state_of(lab, WRONG)["head"] == of_another != 1


def test_a_closed_widget_leaves_the_page_and_the_memory(lab: BrowserPage) -> None:
    said = cell_of(lab, CLOSED).locator(".jp-OutputArea-output")
    expect(said).to_have_text("False")
    expect(widget_of(lab, ENDED)).to_be_visible()
    run_cell(lab, CLOSED)
    expect(said).to_have_text("True")
    expect(cell_of(lab, ENDED).locator(".regard-widget")).to_have_count(0)


# The last: no widget answers after it.
def test_a_widget_says_that_its_kernel_is_gone(lab: BrowserPage) -> None:
    shown = widget_of(lab, MEASURED)
    expect(shown.locator(".grid.drawn")).to_be_visible(timeout=SHOWN_S)
    lab.evaluate("() => { jupyterapp.commands.execute('kernelmenu:restart'); }")
    lab.locator(".jp-Dialog button.jp-mod-warn").click()
    expect(shown.locator(".strip")).to_contain_text("Run the cell again", timeout=SHOWN_S)
    expect(lab.locator("#jp-main-statusbar")).to_contain_text("Idle", timeout=SHOWN_S)  # else it ends slowly
