"""The page of models that are more than a plain encoder: its numbers are the trace's, in every kind."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import expect

import regard
from integration import head_page, tiny
from integration.tiny import TARGET, TEXT, TOKENS
from regard.core import Causal, Padding, Predicate, Segments
from regard.positions import Alibi
from regard.tracing import Trace
from unit.models.folders import write

OpenPage = Callable[..., BrowserPage]
TinyPage = Callable[[str], Path]


def _check(page: BrowserPage, trace: Trace, difference: float) -> None:
    """Every weight of every kind, layer and head, by rows, by columns and step by step."""
    for kind in trace.kinds:
        for layer in page.evaluate("kind => regard.source.layers(kind)", kind):
            wanted = trace.weights(layer, kind=kind).double().numpy()
            rows, columns, steps = (
                np.array(page.evaluate(_READ, [kind, layer, *wanted.shape, what]))
                for what in ("row", "column", "steps")
            )
            assert np.abs(rows - wanted).max() <= difference + 1e-6
            np.testing.assert_allclose(columns.swapaxes(1, 2), rows, rtol=0, atol=1e-12)
            np.testing.assert_allclose(steps, rows[:, :, : steps.shape[2]], rtol=0, atol=1e-12)


# Of the steps, the softmax is done here once more, from the scores and the sink.
_READ = """([kind, layer, heads, queries, keys, what]) => {
    const source = regard.source;
    const range = n => Array.from({ length: n }, (_, i) => i);
    const softmax = ({ scores, sink }) => {
        const all = sink === null ? scores : [...scores, sink];
        const largest = Math.max(...all);
        if (largest === -Infinity) return Array.from(scores, () => 0);
        const powers = Array.from(all, score => Math.exp(score - largest));
        const total = powers.reduce((a, b) => a + b);
        return powers.slice(0, scores.length).map(power => power / total);
    };
    return range(heads).map(head => {
        if (what === "row") return range(queries).map(i => Array.from(source.row(kind, layer, head, i)));
        if (what === "column") return range(keys).map(i => Array.from(source.column(kind, layer, head, i)));
        return range(queries).map(i => softmax(source.steps(kind, layer, head, i)));
    });
}"""


@pytest.mark.parametrize("family", ["t5", "gemma2", "modernbert", "deberta-v2"])
def test_every_weight_is_the_traces(open_page: OpenPage, tiny_page: TinyPage, family: str) -> None:
    trace, difference = tiny.trace(family), tiny.page(family).largest_difference
    assert difference < 1e-3
    page = open_page(tiny_page(family))
    assert tuple(page.evaluate("regard.source.kinds")) == trace.kinds
    _check(page, trace, difference)


def _with(trace: Trace, *fields: dict[str, Any]) -> Trace:
    """A BERT's trace, each of whose layers has other fields too."""
    layers = tuple(
        replace(layer, inputs=replace(layer.inputs, **changes))
        for layer, changes in zip(trace.attention(), fields, strict=True)
    )
    return replace(trace, encoder=replace(trace.source, attention=layers))


REAL = Padding(torch.arange(TOKENS)[None] < 8)
ODD: dict[str, dict[str, Any]] = {
    "segments": {"mask": Segments(torch.arange(TOKENS)[None] // 4)},
    "any rule": {"mask": Predicate(lambda query, key: (query - key) % 3 != 1)},
    "a rule of each head": {
        "mask": Predicate(lambda query, key: (query + key + torch.arange(3)[:, None, None])[None] % 3 > 0)
    },
    "rows without keys": {"mask": Causal(-3)},
    "sinks alone": {"sinks": torch.tensor([1.0, -2.0, 3.0]), "mask": Causal(-3)},
    "all": {"mask": Causal() & REAL, "bias": Alibi(3), "softcap": 0.5, "sinks": torch.zeros(3), "scale": 0.4},
    "dense": {"bias": 3 * torch.randn(1, 3, TOKENS, TOKENS, generator=torch.Generator().manual_seed(3))},
    "far out": {"bias": -1e9 * (torch.arange(TOKENS) == 2).float().expand(1, 1, TOKENS, TOKENS)},
}


@pytest.mark.parametrize("names", list(zip(list(ODD)[::2], list(ODD)[1::2], strict=True)), ids=", ".join)
def test_whatever_the_weights_depend_on(open_page: OpenPage, tmp_path: Path, names: tuple[str, ...]) -> None:
    trace = _with(tiny.trace("bert"), *(ODD[name] for name in names))
    written = trace.write_page(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html")
    _check(page, trace, written.largest_difference)


_token = head_page.token


_numbers = head_page.numbers


def _four(weights: Any) -> list[str]:
    return [f"{weight:.3f}" for weight in weights]


def _shown(numbers: Sequence[str]) -> list[str]:
    return [f"{float(number):.3f}" for number in numbers]


def test_kinds_are_chosen_and_have_their_own_tokens(open_page: OpenPage, tiny_page: TinyPage) -> None:
    trace = tiny.trace("bart")
    page = open_page(tiny_page("bart"))
    start = page.evaluate("regard.source.facts.start")
    starts = {each["kind"]: each for each in (start, *start["others"])}
    sides = {"encoder": (10, 10), "decoder": (5, 5), "cross": (5, 10)}
    heads = {"encoder": (2, 3), "decoder": (3, 5), "cross": (3, 5)}
    for kind in ("cross", "decoder", "encoder"):
        page.locator(f'input[value="{kind}"]').check()
        assert head_page.state(page)["kind"] == kind
        assert _is_at(page, starts[kind])
        expect(page.locator(".grid-cell")).to_have_count(heads[kind][0] * heads[kind][1])
        for side, count in zip(("query", "key"), sides[kind], strict=True):
            expect(page.locator(f'.token[data-side="{side}"]')).to_have_count(count)
        last = heads[kind][0] - 1, heads[kind][1] - 1
        page.get_by_role("gridcell", name=f"Layer {last[0]}, head {last[1]}").click()
        _token(page, "query", 2).hover()
        row = trace.weights(*last, kind=kind, query=2)[0].tolist()  # type: ignore[arg-type]
        expect(_token(page, "key", 0).locator(".number")).not_to_be_empty()
        shown = [float(each or 0) for each in _numbers(page, "key")]  # what the mask hides has none
        assert np.abs(np.array(shown) - row).max() < 1e-3
    expect(page.locator(".sentence")).to_contain_text(f"Encoder reads{TEXT}")
    expect(page.locator(".sentence")).to_contain_text(f"Decoder reads{TARGET}")
    for fragment, kind in (("kind=cross", "cross"), ("kind=decoder", "decoder"), ("", start["kind"])):
        page.evaluate("hash => location.hash = hash", fragment)
        page.wait_for_function("kind => regard.state().kind === kind", arg=kind)
        assert _is_at(page, starts[kind])


def _is_at(page: BrowserPage, start: dict[str, Any]) -> bool:
    state = head_page.state(page)
    found = (state["layer"], state["head"], state["pin"])
    return found == (start["layer"], start["head"], {"side": "query", "index": start["pin"]})


def test_a_link_opens_the_kind_and_a_wrong_layer_is_mended(open_page: OpenPage, tmp_path: Path) -> None:
    trace = tiny.trace("t5")
    decoder = trace.decoder
    assert decoder is not None
    some = replace(decoder, cross_attention=decoder.cross_attention[::2], cross_layers=(0, 2))
    replace(trace, decoder=some).write_page(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", "#kind=cross&layer=2&head=1&pin=query-1")
    assert head_page.address(page) == "kind=cross&layer=2&head=1&pin=query-1"
    row = trace.weights(2, 1, kind="cross", query=1)[0].tolist()
    assert _shown(_numbers(page, "key")) == _four(row)
    assert page.locator("[role=rowheader]").all_inner_texts() == ["Layer\n0", "Layer\n2"]
    page.locator('[role="gridcell"][tabindex="0"]').focus()
    page.keyboard.press("ArrowUp")
    assert page.evaluate("regard.state().layer") == 0
    head_page.go(page, "#kind=cross&layer=1&head=1&pin=query-9")
    state = page.evaluate("regard.state()")
    assert (state["layer"], state["head"], state["pin"]) == (0, 1, None)


def test_a_sink_is_a_column_of_its_own(open_page: OpenPage, tmp_path: Path) -> None:
    trace = _with(tiny.trace("bert"), *2 * [{"sinks": torch.tensor([1.0, -2.0, 3.0])}])
    trace.write_page(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", "#layer=1&head=2&pin=query-4")
    assert page.locator('.token[data-side="key"]').count() == TOKENS + 1
    assert page.locator('.token[data-side="query"]').count() == TOKENS
    row = trace.weights(1, 2, query=4)[0].tolist()
    assert len(row) == TOKENS + 1
    assert _shown(_numbers(page, "key")) == _four(row)
    expect(page.locator(".token.sink")).to_have_text(f"sink{row[-1]:.4f}")
    _token(page, "key", TOKENS).click()
    expect(_token(page, "query", 0).locator(".number")).not_to_be_empty()
    assert _shown(_numbers(page, "query")) == _four(trace.weights(1, 2)[:, -1].tolist())


def test_token_ids_without_a_text(open_page: OpenPage, tmp_path: Path) -> None:
    write(tmp_path, "gpt2")
    regard.load(str(tmp_path)).trace(token_ids=[3, 1, 4]).write_page(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html")
    expect(page.locator(".sentence")).to_have_text("3 token ids, without a text")
    assert page.locator('.token[data-side="key"] .text').all_inner_texts() == ["3", "1", "4"]
