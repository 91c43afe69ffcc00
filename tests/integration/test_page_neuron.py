"""The neuron view: every number between q and the result, against Python's, and the ways to come to it."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import expect

from integration import head_page, tiny
from integration.tiny import TOKENS
from regard.core import Additive, Causal, Cosine, Padding, Scorer, reference_attention
from regard.positions import Alibi
from regard.tracing import Trace
from regard.views import AttentionRecord, LayerRecord, PageToken, Side, value_contexts
from unit.views.conftest import write_page

OpenPage = Callable[..., BrowserPage]
TinyPage = Callable[[str], Path]


def _value(text: str) -> float:
    return float(text.replace("−", "-").replace("∞", "inf"))


def _figure(page: BrowserPage, name: str) -> float:
    return _value(page.locator(f'[data-figure="{name}"]').first.inner_text())


def _row(page: BrowserPage, key: int, name: str) -> float:
    return _value(page.locator(f"#regard-key-{key} .of-{name}").inner_text())


def _rows(page: BrowserPage, name: str) -> Any:
    expect(page.locator(".neuron-row").first).to_be_attached()  # drawn before the next frame
    return np.array([_value(text) for text in page.locator(f".neuron-row .of-{name}").all_inner_texts()])


def _close(shown: Any, wanted: Any) -> None:
    np.testing.assert_allclose(shown, wanted, rtol=1e-3, atol=1e-3)


def _check(page: BrowserPage, trace: Trace, kind: Any, layer: int, head: int, query: int, key: int) -> None:
    """What the page writes of one weight, against the trace."""
    inputs = trace.attention_of(layer, kind).inputs.head(head)
    q, k, v = (each[0, 0].detach().double().numpy() for each in (inputs.q, inputs.k, inputs.v))
    weights = trace.weights(layer, head, kind=kind, query=query)[0].numpy()
    scores = trace.scores(layer, head, kind=kind, query=query)[0].numpy()
    context = trace.context(layer, head, kind=kind, query=query)[0].numpy()
    _close(_figure(page, "product"), q[query] @ k[key])
    if inputs.factor == 1:  # T5: multiplying by 1 is no step
        expect(page.locator(".step-scale, .of-scaled")).to_have_count(0)
    else:
        _close(_figure(page, "scaled"), q[query] @ k[key] * inputs.factor)
    _close(_figure(page, "weight"), weights[key])
    _close(_rows(page, "product"), q[query] @ k.T)
    shown = [_value(text) for text in page.locator(".neuron-row .neuron-weight").all_inner_texts()]
    _close(shown, weights)
    _close(_figure(page, "score"), scores[key])
    page.get_by_text("All numbers as tables").click()
    tables = page.locator(".neuron-tables table")
    expect(tables.nth(2).locator("tbody tr").first).to_be_attached()  # tables are filled once they are open
    cells = "rows => rows.map(r => Array.from(r.cells).map(c => c.innerText))"
    terms = tables.nth(1).locator("tbody tr").evaluate_all(cells)
    numbers = np.array([[_value(text) for text in row] for row in terms])
    _close(numbers[:, 1:], np.stack((q[query], k[key], q[query] * k[key]), axis=1))
    results = tables.nth(2).locator("tbody tr").evaluate_all(cells)
    numbers = np.array([[_value(text) for text in row] for row in results])
    _close(numbers[:, 1:], np.stack((v[key], weights[key] * v[key], context), axis=1))
    keys = tables.nth(0).locator("tbody tr").evaluate_all(cells)
    _close([_value(row[-1]) for row in keys], weights)
    _close([_value(row[-2]) for row in keys], scores)
    page.get_by_text("All numbers as tables").click()
    dim = page.evaluate("Number(document.querySelector('[data-field=vdim]').value)")
    _close(_figure(page, "result"), context[dim])


@pytest.mark.parametrize("family", ["bert", "gemma2", "t5"])
def test_every_number_is_the_traces(open_page: OpenPage, tiny_page: TinyPage, family: str) -> None:
    trace = tiny.trace(family)
    assert tiny.page(family).values == "all"
    page = open_page(tiny_page(family))
    stated = page.evaluate("regard.facts.values.difference")
    assert 0 < stated < 1e-3
    for kind in trace.kinds:
        head = trace.attention(kind)[1].inputs.num_heads - 1
        head_page.go(page, f"#view=neuron&kind={kind}&layer=1&head={head}&pin=query-4&key=3")
        _check(page, trace, kind, 1, head, 4, 3)
        note = page.locator(".step-product .note", has_text="after rotation: each was turned by its position")
        expect(note).to_have_count(1 if family == "gemma2" else 0)
        for layer in range(len(trace.attention(kind))):
            wanted = trace.context(layer, kind=kind).double().numpy()
            shown = page.evaluate(_CONTEXTS, [kind, layer, *wanted.shape[:2]])
            assert np.abs(np.array(shown) - wanted).max() <= stated + 1e-5 * np.abs(wanted).max()
    _check_equations(page, trace.kinds[0])


_CONTEXTS = """([kind, layer, heads, queries]) => {
    const range = n => Array.from({ length: n }, (_, i) => i);
    const context = (h, i) => Array.from(regard.source.steps(kind, layer, h, i).context);
    return range(heads).map(h => range(queries).map(i => context(h, i)));
}"""


def _with(trace: Trace, **fields: Any) -> Trace:
    """The trace with other fields in every layer, and the contexts that they give."""
    layers = []
    for each in trace.attention():
        inputs = replace(each.inputs, **fields)
        layers.append(replace(each, inputs=inputs, context=reference_attention(inputs).context[0]))
    return replace(trace, encoder=replace(trace.source, attention=tuple(layers)))


@pytest.mark.parametrize(
    ("scorer", "score", "factors"),
    [
        (
            Additive(torch.tensor([[1.0, -2.0, 3.0, 0.5, -0.25]]).repeat(3, 1)),
            "v_a · tanh(q + k)",
            ("v_a", "tanh(q + k)"),
        ),
        (Cosine(temperature=0.5), "cos(q, k)", ("q / |q|", "k / |k|")),
    ],
    ids=["additive", "cosine"],
)
def test_the_formula_of_another_scorer(
    open_page: OpenPage, tmp_path: Path, scorer: Scorer, score: str, factors: tuple[str, str]
) -> None:
    trace = _with(tiny.trace("bert"), scorer=scorer)
    trace.write_page(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", "#view=neuron&layer=1&head=2&pin=query-5&key=3")
    weights = trace.weights(1, 2)[5].numpy()
    shown = [_value(text) for text in page.locator(".neuron-row .neuron-weight").all_inner_texts()]
    _close(shown, weights)
    e = trace.explain(5, 1, 2)
    _close(_rows(page, "product"), e.scores)
    _close(_figure(page, "product"), e.scores[3])
    expect(page.locator(".step-product .equation")).to_contain_text(f"{score} = ")
    head = page.locator(".step-product thead th").all_inner_texts()
    assert head == ["dim", *factors, f"{factors[0]} × {factors[1]}"]
    page.get_by_text("All numbers as tables").click()
    terms = page.locator(".neuron-tables table").nth(1).locator("tbody tr")
    expect(terms.first).to_be_attached()
    cells = terms.evaluate_all("rows => rows.map(r => Array.from(r.cells).map(c => c.innerText))")
    numbers = np.array([[_value(text) for text in row] for row in cells])
    _close(numbers[:, 1:], np.stack((e.left, e.right[3], e.left * e.right[3]), axis=1))


def test_cap_bias_mask_and_sink_are_steps(open_page: OpenPage, tmp_path: Path) -> None:
    trace = _with(
        tiny.trace("bert"),
        mask=Causal() & Padding(torch.arange(TOKENS)[None] < 8),
        bias=Alibi(3),
        softcap=0.5,
        sinks=torch.tensor([1.0, -2.0, 3.0]),
    )
    trace.write_page(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", "#view=neuron&layer=1&head=2&pin=query-5&key=3")
    inputs = trace.attention()[1].inputs.head(2)
    product = float(inputs.q[0, 0, 5] @ inputs.k[0, 0, 3])
    capped = 0.5 * np.tanh(product * inputs.factor / 0.5)
    bias = -2 * Alibi(3).slopes[2]
    _close(_figure(page, "capped"), capped)
    _close(_figure(page, "bias"), bias)
    _close(_figure(page, "biased"), capped + bias)
    _close(_figure(page, "score"), capped + bias)
    _close(_row(page, 3, "capped"), capped)
    _close(_row(page, 3, "bias"), bias)
    expect(page.locator(".step-bias")).to_contain_text("at distance −2")
    weights = trace.weights(1, 2, query=5)[0].tolist()
    _close(_figure(page, "weight"), weights[3])
    _close(_value(page.locator("#regard-key-10 .neuron-weight").inner_text()), weights[10])
    _close(_value(page.locator("#regard-key-10 .of-score").inner_text()), 3.0)
    expect(page.locator("#regard-key-10")).to_contain_text("no key")
    page.locator("#regard-key-7").click()
    assert page.locator('[data-figure="score"]').inner_text() == "−∞"
    expect(page.locator(".step-mask")).to_contain_text("6 of 10 keys")
    assert _figure(page, "weight") == 0
    page.locator("#regard-key-10").click()
    _close(_figure(page, "weight"), weights[10])
    _close(_figure(page, "score"), 3.0)
    # The bar of 100 %: of keys that weigh something, each as wide as its weight; a click works another out.
    shares = page.locator(".share[data-key]")
    assert shares.count() == sum(weight > 0 for weight in weights)
    grown = shares.evaluate_all("all => all.map(e => Number(e.style.flexGrow))")
    _close(grown, [weight for weight in weights if weight > 0])
    shares.first.click()
    assert page.evaluate("regard.state().key") == 0


def test_a_query_that_sees_nothing(open_page: OpenPage, tmp_path: Path) -> None:
    _with(tiny.trace("bert"), mask=Causal(-3)).write_page(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", "#view=heads&pin=query-1")
    expect(page.locator(".sum")).to_have_text("This query may attend to nothing: the mask hides every key.")
    assert set(head_page.numbers(page, "key")) == {""}
    head_page.go(page, "#view=neuron&pin=query-1")
    expect(page.locator(".step-softmax")).to_contain_text("forbids every key")
    expect(page.locator(".neuron-weight").first).to_be_attached()
    assert set(page.locator(".neuron-weight").all_inner_texts()) == {"0.0000"}


_STEPS = """async ([kind, queries, keys]) => {
    const there = (hash) => new Promise((done) => {
        addEventListener("hashchange", () => setTimeout(done), { once: true });
        location.hash = hash;
    });
    const texts = (root, of) => Array.from(root.querySelectorAll(of), (e) => e.innerText);
    const found = { equations: [], tables: [] };
    for (let query = 0; query < queries; query += 1)
        for (let key = 0; key < keys; key += 1) {
            await there(`view=neuron&kind=${kind}&layer=1&head=1&pin=query-${query}&key=${key}`);
            const root = document.querySelector(".neuron-worked");
            found.equations.push(...texts(root, ".equation"));
            found.tables.push(...Array.from(root.querySelectorAll(".terms"), (table) => ({
                rows: Array.from(table.tBodies[0].rows, (row) => texts(row, "td")),
                total: table.nextElementSibling.querySelector(".work-figure").innerText,
            })));
        }
    return found;
}"""


def _calculator(text: str) -> float:
    """What the left side of a printed equation gives."""
    plain = re.sub(
        r"√(\d+)", r"math.sqrt(\1)", text.replace("×", "*").replace("−", "-").replace("∞", "math.inf")
    )
    plain = plain.replace("exp(", "math.exp(").replace("tanh(", "math.tanh(")
    assert re.fullmatch(r"[\d\s.()*/+e-]*", re.sub(r"math\.(sqrt|exp|tanh|inf)", "", plain)), text
    return float(eval(plain, {"math": math}))


def _rounded(shown: str, worked_out: float) -> bool:
    """Whether a number rounds to what is shown."""
    digits, _, power = shown.replace("−", "-").partition("e")
    if "∞" in digits:
        return math.isinf(worked_out)
    unit = 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))
    return abs(_value(shown) - worked_out) <= unit * 0.5 + 1e-12


def test_equations_of_an_odd_scale_hold_as_printed(open_page: OpenPage, path: Path) -> None:
    """One that is no root, and numbers far apart."""
    _check_equations(open_page(path), "encoder")


def _check_equations(page: BrowserPage, kind: str) -> None:
    found = page.evaluate(_STEPS, [kind, 3, 7])
    assert len(found["equations"]) >= 3 * 21
    wrong = [
        text
        for text in found["equations"]
        if not text.startswith(("sum over", "q · k", "result"))
        for left, _, right in [text.rpartition(" = ")]
        if not _rounded(right, _calculator(left))
    ]
    assert not wrong, wrong
    assert len(found["tables"]) == 2 * 21
    for table in found["tables"]:
        numbers = [[_value(text) for text in row if text] for row in table["rows"]]
        assert _rounded(table["total"], sum(row[-1] for row in numbers)), table
        for row, texts in zip(numbers, table["rows"], strict=True):
            assert len(row) == 1 or _rounded(texts[-2], row[0] * row[1]), texts


# --- what stands on the page and what does not


def _record(**fields: Any) -> AttentionRecord:
    rng = np.random.default_rng(3)
    q, k = 2 * rng.standard_normal((2, 6, 7, 5), dtype=np.float32)
    v = rng.standard_normal((3, 7, 4), dtype=np.float32)
    layer = LayerRecord(layer=0, q=q, k=k[:3], v=v, scale=0.4)
    tokens = tuple(PageToken(text=f"t{i}", sequence=0) for i in range(7))
    side = Side(text="t", tokens=fields.get("tokens", tokens), words=fields.get("words", ()))
    return AttentionRecord(model="m", encoder=side, layers={"encoder": (layer, replace(layer, layer=1))})


def test_values_of_chosen_heads_alone(
    open_page: OpenPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.views._page.MOST_BYTES", 0)
    record = _record()
    assert write_page(record, tmp_path / "none.html").values == "none"
    written = write_page(record, tmp_path / "some.html", values=[("encoder", 1, 5)])
    assert written.values == "some"
    page = open_page(tmp_path / "some.html", "#view=neuron&layer=1&head=4&pin=query-2")  # shares v with 5
    dim = page.evaluate("Number(document.querySelector('[data-field=vdim]').value)")
    layer = record.layers["encoder"][1]
    assert layer.v is not None
    wanted = value_contexts(layer, layer.v, 4, np.array([2]))[0]
    assert abs(_figure(page, "result") - wanted[dim]) < 1e-3
    expect(page.locator(".step-values")).to_contain_text("values of some heads")
    head_page.go(page, "#view=neuron&layer=0&head=4&pin=query-2")
    _check_missing(page, "0.4")
    _check_missing(open_page(tmp_path / "none.html", "#view=neuron&layer=1&head=4&pin=query-2"), "1.4")


def _check_missing(page: BrowserPage, head: str) -> None:
    expect(page.locator(".step-missing")).to_contain_text(f"--values {head}")
    expect(page.locator('[data-figure="result"]')).to_have_count(0)
    expect(page.locator(".strip-weighted")).to_have_count(0)


def test_a_layer_whose_values_do_not_give_the_contexts_has_none(open_page: OpenPage, tmp_path: Path) -> None:
    trace = tiny.trace("bert")
    first, second = trace.attention()
    wrong = replace(second, context=second.context + 0.1)
    replace(trace, encoder=replace(trace.source, attention=(first, wrong))).write_page(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", "#view=neuron&layer=1&head=0&pin=query-2")
    expect(page.locator(".step-missing")).to_contain_text("do not give what the model itself computed")
    head_page.go(page, "#view=neuron&layer=0&head=0&pin=query-2")
    expect(page.locator('[data-figure="result"]')).to_have_count(1)


# --- the ways in, and around


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_page(_record(), tmp_path / "page.html")
    return tmp_path / "page.html"


def test_why_from_the_list_a_row_and_a_column(open_page: OpenPage, path: Path) -> None:
    page = open_page(path, "#layer=1&head=2")
    item = page.locator(".top li").first
    weight = item.locator(".top-number").inner_text()
    item.get_by_role("button", name=re.compile("^Why")).click()
    assert "view=neuron" in page.url
    worked = page.locator(".worked-number")
    expect(worked).to_be_visible()
    assert f"{100 * float(worked.inner_text()):.0f} %" == weight
    expect(page.get_by_role("tab", selected=True)).to_have_text("Calculation")
    page.get_by_role("button", name="Show in the head view").click()
    expect(page.locator(".headview")).to_be_visible()
    chosen = "[regard.state().view, regard.state().pin.index, regard.state().key]"

    head_page.go(page, "#view=heads&layer=1&head=2&pin=query-3")
    row = [float(text) for text in head_page.numbers(page, "key")]
    key = int(np.argmax(row))
    head_page.token(page, "key", key).locator(".number").click()
    assert page.evaluate(chosen) == ["neuron", 3, key]
    expect(worked).to_have_text(f"{row[key]:.4f}")

    head_page.go(page, "#view=heads&layer=0&head=1&pin=key-3")
    weight = head_page.numbers(page, "query")[5]
    head_page.token(page, "query", 5).locator(".number").click()
    assert page.evaluate(chosen) == ["neuron", 5, 3]
    expect(worked).to_have_text(weight)


def test_by_keyboard_and_pointer(open_page: OpenPage, path: Path) -> None:
    page = open_page(path, "#view=neuron&layer=1&head=2&pin=query-3&key=4&dim=2")
    page.get_by_role("listbox", name="Keys").focus()
    for key in ("ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    assert page.evaluate("[regard.state().key, regard.state().dim]") == [5, 3]
    expect(page.locator('.neuron-row[aria-selected="true"]')).to_have_attribute("id", "regard-key-5")
    expect(page.locator(".neuron-list")).to_have_attribute("aria-activedescendant", "regard-key-5")
    for key, wanted in (("Home", 0), ("End", 6), ("ArrowUp", 5)):
        page.keyboard.press(key)
        assert page.evaluate("regard.state().key") == wanted
    assert head_page.address(page).endswith("&pin=query-3&key=5&dim=3")
    slider = page.get_by_label("Dimension of q and k")
    expect(slider).to_be_hidden()  # most people need no other than the largest
    page.get_by_text("Dimension 3 of q and k, ").click()
    slider.focus()
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("regard.state().dim") == 2
    expect(page.get_by_label("Dimension of q and k")).to_be_focused()

    head_page.go(page, "#view=neuron&layer=1&head=2&pin=query-3&key=4")
    steps = page.evaluate(
        "(s => ({ q: Array.from(s.q), k: Array.from(s.k), v: Array.from(s.v), c: Array.from(s.context) }))"
        "(regard.source.steps('encoder', 1, 2, 3))"
    )
    readout = page.locator(".neuron-readout")
    strip = page.locator("#regard-key-1 .strip-product")
    box = strip.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 5)  # the third of five
    expect(readout).to_contain_text("Dimension 2, “t1”")
    numbers = [_value(each) for each in re.findall(r"[−\d][\d.]*\d|\d", readout.inner_text())]
    _close(numbers[-3:], [steps["q"][2], steps["k"][7], steps["q"][2] * steps["k"][7]])
    page.locator(".strip-context").hover(position={"x": 2, "y": 5})
    expect(readout).to_contain_text("Result, dimension 0")
    _close(_value(readout.inner_text().rstrip(".").split()[-1]), steps["c"][0])
    # An address that names nothing.
    head_page.go(page, "#view=neuron&layer=1&head=2&pin=query-99&key=99&dim=77&vdim=x")
    row = page.evaluate("Array.from(regard.weightsRow(1, 2, 0))")
    expect(page.locator(".worked-number")).to_have_text(f"{max(row):.4f}")


def test_a_word_of_several_pieces(open_page: OpenPage, tmp_path: Path) -> None:
    words = (0, 1, 1, 2, 3, 3, 3)
    tokens = tuple(PageToken(text=f"t{i}", sequence=0, word=word) for i, word in enumerate(words))
    record = _record(tokens=tokens, words=("one", "two", "three", "four"))
    write_page(record, tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", "#view=neuron&layer=1&head=2&units=words&pin=query-1&key=4")
    weights = np.array(page.evaluate("[1, 2].map(i => Array.from(regard.weightsRow(1, 2, i)))"))
    _close(_figure(page, "word"), weights[:, 4:7].sum(axis=1).mean())
    expect(page.locator(".worked-word")).to_contain_text("The query two is 2 tokens")
    page.locator('.piece[data-side="query"][data-token="2"]').click()
    assert page.evaluate("[regard.state().pin.index, regard.state().key]") == [2, 4]
    page.locator('.piece[data-side="key"][data-token="6"]').click()
    assert page.evaluate("[regard.state().pin.index, regard.state().key]") == [2, 6]
    _close(_figure(page, "weight"), weights[1, 6])


def test_hostile_and_right_to_left_tokens_are_text(open_page: OpenPage, tmp_path: Path) -> None:
    texts = ("<img src=x onerror=alert(1)>", "שלום", "</script>", "", "\u202e", "t5", "t6")
    record = _record(tokens=tuple(PageToken(text=text, sequence=0) for text in texts))
    write_page(record, tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", "#view=neuron&pin=query-0&key=2")
    expect(page.locator(".worked-title + .note")).to_contain_text("<img src=x onerror=alert(1)>")
    assert page.locator(".neuron img").count() == 0
    assert page.locator("#regard-key-1 bdi").get_attribute("dir") == "auto"


def test_numbers_that_come_later(open_page: OpenPage, path: Path) -> None:
    page = open_page(path, "#layer=1&head=2&pin=query-3")
    page.evaluate(
        """() => {
            const now = regard.source.steps.bind(regard.source);
            regard.source.steps = (...what) => (window.come ? now(...what) : null);
        }"""
    )
    page.get_by_role("tab", name="Calculation").click()
    expect(page.get_by_text("The numbers are on their way.").last).to_be_visible()
    page.evaluate("window.come = true; regard.source.listeners.forEach(each => each())")
    expect(page.locator(".worked-number")).to_be_visible()


@pytest.mark.parametrize(("theme", "width"), [("light", 390), ("dark", 1366)])
def test_no_overflow_in_any_theme_or_width(open_page: OpenPage, path: Path, theme: str, width: int) -> None:
    page = open_page(
        path, f"#view=neuron&theme={theme}&pin=query-2", viewport={"width": width, "height": 800}
    )
    expect(page.locator(".worked-number")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    inked = "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(Boolean)"
    assert page.locator(".strip-product canvas").first.evaluate(inked)


def test_rows_in_view_are_kept_and_others_go(open_page: OpenPage, tmp_path: Path) -> None:
    rng = np.random.default_rng(31)
    q, k = rng.standard_normal((2, 1, 1009, 3), dtype=np.float32)
    layer = LayerRecord(layer=0, q=q, k=k, v=k, scale=1.0)
    side = Side(text="long", tokens=tuple(PageToken(text=f"t{i}", sequence=0) for i in range(1009)))
    write_page(AttentionRecord(model="m", encoder=side, layers={"encoder": (layer,)}), tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", "#view=neuron&pin=query-3&key=0")
    rows = page.locator(".neuron-row")
    expect(rows.first).to_be_attached()
    expect(page.locator(".step-mask")).to_have_count(0)  # nothing is masked
    listed = page.locator(".neuron-list")
    first = rows.evaluate_all("all => all.map(e => ((e.kept = true), e.id))")
    assert len(first) < 100
    listed.evaluate("e => (e.scrollTop = 2 * e.querySelector('.neuron-row').offsetHeight)")
    last = page.locator(f"#{first[-1]} + .neuron-row")
    expect(last).to_be_attached()
    # Two rows on, the first ones are near enough to stay: the same elements.
    assert rows.evaluate_all("all => all.filter(e => e.kept).map(e => e.id)") == first
    listed.evaluate("e => (e.scrollTop = e.scrollHeight)")
    expect(page.locator("#regard-key-1008")).to_be_attached()
    expect(page.locator("#regard-key-0")).not_to_be_attached()
    assert rows.count() < 100
    listed.evaluate("e => (e.scrollTop = 0)")
    expect(page.locator("#regard-key-1008")).not_to_be_attached()
    assert rows.evaluate_all("all => all.map(e => e.id).sort()") == sorted(first)
    head_page.go(page, "#view=neuron&pin=query-5&key=900")
    expect(page.locator("#regard-key-900")).to_be_visible()
    assert rows.count() < 80
    weight = page.evaluate("regard.weightsRow(0, 0, 5)[900]")
    assert _value(page.locator(".worked-number").inner_text()) == pytest.approx(weight, rel=0.01, abs=5e-5)


def test_what_wrote_the_key_is_told_where_the_page_knows_it(
    open_page: OpenPage, poem: Trace, poem_path: Path
) -> None:
    page = open_page(poem_path, "#view=neuron&layer=5&head=11&pin=query-1&key=3")
    found = poem.why(5, 11, 1, 3)
    best = sorted(found.key_parts, key=lambda part: -part.value)[:3]
    told = page.locator(".step-reasons")
    expect(told.locator("li")).to_have_text([f"{part} +{part.value:.2f}" for part in best])
    expect(told).to_contain_text(f"Of +{found.value:.2f}")
    page.get_by_label("Layer").select_option("4")
    expect(told).to_have_count(0)
