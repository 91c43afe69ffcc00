"""What the page is given is the trace's own, and what it could not draw exactly is refused."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.core import (
    AttentionInputs,
    Causal,
    Mask,
    Padding,
    Predicate,
    SeededDropout,
    Segments,
    Window,
    attention_weights,
)
from regard.core.errors import InputError, OutputError
from regard.models import Loaded
from regard.positions import Alibi, RelativeBias
from regard.text import Tokenizer
from regard.text._special import SpecialIds
from regard.tracing import Trace, page_record, trace_ids, trace_text
from regard.views import LayerRecord, LiveRun, every_head, find_start, render_page, weight_rows
from regard.views._kernel import widget_facts
from regard.views._records import HeldHeads
from unit.models import tiny
from unit.models.folders import TRACED, network
from unit.tracing.stacks import loaded as of_network
from unit.views.conftest import facts_of

TOKENS = 9


def _with(trace: Trace, **fields: Any) -> Trace:
    """The trace with other fields in the attention of layer 1."""
    first, second = trace.attention()
    second = replace(second, inputs=replace(second.inputs, **fields))
    return replace(trace, encoder=replace(trace.source, attention=(first, second)))


def _differ(layer: LayerRecord, inputs: AttentionInputs) -> float:
    wanted = attention_weights(inputs)[0].detach().numpy()
    rows = np.arange(inputs.q_len)
    return max(
        float(np.abs(weight_rows(layer, head, rows) - wanted[head]).max()) for head in range(layer.heads)
    )


def test_holds_q_k_and_tokens(trace: Trace) -> None:
    record = page_record(trace)
    side = record.encoder
    assert side is not None
    assert (side.text, side.pair, record.model, record.decoder) == (trace_text_of(trace), None, "tiny", None)
    assert record.kinds == ("encoder",)
    for layer, each in enumerate(trace.attention()):
        made = record.layers["encoder"][layer]
        assert np.array_equal(made.q, each.inputs.q[0].numpy())
        assert np.array_equal(made.k, each.inputs.k[0].numpy())
        assert (made.layer, made.scale) == (layer, pytest.approx(5**-0.5))
        assert (made.mask, made.bias, made.softcap, made.sinks) == (None,) * 4
    assert [token.text for token in side.tokens] == trace.tokens
    assert [token.surface for token in side.tokens][3] == "ing"
    assert [token.special for token in side.tokens] == [True] + [False] * 7 + [True]
    assert [token.word for token in side.tokens] == [None, 0, 1, 1, 2, 3, 4, 5, None]
    assert side.words == ("the", "fishing", "bank", "by", "the", "river")


def trace_text_of(trace: Trace) -> str:
    return trace.encoding.texts[0]


@pytest.mark.parametrize("named", [True, False])
def test_says_which_tokens_the_model_read_as_unknown(loaded: Loaded, named: bool) -> None:
    assert loaded.tokenizer is not None
    assert loaded.tokenizer.special_ids.unk is None
    if named:
        known = Tokenizer.from_str(loaded.tokenizer._backend.to_str())
        known._special_ids = SpecialIds(unk=1)
        loaded = replace(loaded, tokenizer=known)
    side = page_record(trace_text(loaded, "the 🍕 by [UNK] ban")).encoder
    assert side is not None
    assert [(token.text, token.surface, token.unknown) for token in side.tokens[1:-1]] == [
        ("the", "the", False),
        ("[UNK]", "🍕", True),
        ("by", "by", False),
        ("[UNK]", "[UNK]", False),  # it was typed so
        ("[UNK]", "ban", True),
    ]
    assert [token.word for token in side.tokens[1:-1]] == [0, 1, 2, None, 6]
    facts = facts_of(trace_text(loaded, "🍕").page())
    assert [token.get("unknown") for token in facts["sides"]["encoder"]["tokens"]] == [None, True, None]


def test_what_it_opens_on_is_looked_for_once(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    record = page_record(trace, story=True)
    bare = page_record(trace)
    assert bare.start is None
    assert record.start == find_start(bare, every_head(bare)) is not None
    some = HeldHeads(heads={("encoder", 1): (2,)}, every=False)
    assert find_start(record, some) == find_start(bare, some) != record.start
    monkeypatch.setattr("regard.views._start._strongest", lambda *_: pytest.fail("it is looked for again"))
    assert facts_of(render_page(record))["start"] == record.start
    [run] = widget_facts([LiveRun(record=record)])
    assert run["facts"]["start"] == record.start


def test_all_positions_are_refused_where_there_are_none(trace: Trace) -> None:
    rotary = trace_ids(of_network(tiny.decoder(), tokenizer=False), [3, 5, 7, 4])
    with pytest.raises(InputError, match="all_positions must be left out: tiny adds no vectors"):
        rotary.page(all_positions=True)
    with pytest.raises(InputError, match="needs the parameters of tiny"):
        replace(trace, loaded=None).page(all_positions=True)
    side = page_record(trace, all_positions=True).encoder
    assert side is not None
    assert side.positions is not None
    table = trace.require_model().network.encoder.embeddings.positions.table  # type: ignore[union-attr]
    assert np.array_equal(np.asarray(side.positions.table), table.numpy())


def test_holds_both_texts(loaded: Loaded) -> None:
    side = page_record(trace_text(loaded, "the bank", "the river")).encoder
    assert side is not None
    assert (side.text, side.pair) == ("the bank", "the river")
    assert [token.sequence for token in side.tokens] == [None, 0, 0, None, 1, 1, None]


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(5))


def _with_infinities() -> torch.Tensor:
    bias = _random(1, 3, TOKENS, TOKENS)
    bias[:, :, :, 2] = float("-inf")
    bias[:, :, 4] = float("-inf")  # a query that may attend to nothing
    return bias


EVERY_SECOND = Predicate(lambda query, key: (query - key) % 2 == 0)
OF_HEADS = Predicate(lambda query, key: (query + key + torch.arange(3)[None, :, None, None]) % 3 > 0)
SEGMENTS = Segments(torch.tensor([[1, 1, 1, 1, 2, 2, 2, 3, 3]]))
REAL = Padding(torch.arange(TOKENS)[None] < 7)

DRAWN: dict[str, dict[str, Any]] = {
    "causal": {"mask": Causal()},
    "causal with an offset": {"mask": Causal(2) & Causal(1)},
    "window": {"mask": Window(2, 1)},
    "causal window": {"mask": Causal() & Window(left=3)},
    "windows": {"mask": Window(4, 2, offset=-1) & Window(2, 3)},
    "padding": {"mask": REAL},
    "two paddings": {"mask": REAL & Padding(torch.arange(TOKENS)[None] != 3)},
    "segments": {"mask": SEGMENTS},
    "segments twice": {"mask": SEGMENTS & Segments(torch.arange(TOKENS)[None] // 2)},
    "any rule": {"mask": EVERY_SECOND},
    "a rule of each head": {"mask": OF_HEADS & EVERY_SECOND},
    "all masks": {"mask": Causal() & Window(left=5) & REAL & SEGMENTS & EVERY_SECOND},
    "relative bias": {"bias": RelativeBias(3, 8, 6)()},
    "relative bias, one way": {"bias": RelativeBias(3, 8, 6, bidirectional=False)(), "mask": Causal()},
    "alibi": {"bias": Alibi(3), "mask": Causal()},
    "dense bias": {"bias": _random(1, 3, TOKENS, TOKENS)},
    "bias of the key": {"bias": _random(1, 1, 1, TOKENS)},
    "bias with -inf": {"bias": _with_infinities(), "mask": REAL},
    "soft cap": {"softcap": 0.7},
    "scale": {"scale": 0.3},
    "sinks": {"sinks": _random(3), "mask": Causal()},
    "other sizes": {
        "q": _random(1, 6, TOKENS, 2),
        "k": _random(1, 2, TOKENS, 2),
        "v": _random(1, 2, TOKENS, 2),
    },
    "everything": {
        "mask": Causal() & REAL,
        "bias": Alibi(3),
        "softcap": 0.9,
        "sinks": _random(3),
        "scale": 0.2,
    },
}


@pytest.mark.parametrize("name", DRAWN)
def test_draws_exactly(trace: Trace, name: str) -> None:
    changed = _with(trace, **DRAWN[name])
    record = page_record(replace(changed, loaded=None))  # of other sizes than any model's
    inputs = changed.attention()[1].inputs
    assert _differ(record.layers["encoder"][1], inputs) < 1e-6
    # And the feature matters here: without it the weights are others, or of other sizes.
    bare = replace(inputs, mask=None, bias=None, softcap=None, scale=None, sinks=None)
    if inputs.sinks is None and name != "other sizes":
        assert _differ(record.layers["encoder"][1], bare) > 1e-4


def test_says_masks_and_biases_in_the_smallest_way(trace: Trace) -> None:
    def made(**fields: Any) -> LayerRecord:
        return page_record(_with(trace, **fields)).layers["encoder"][1]

    mask = made(mask=Causal() & Window(left=3)).mask
    assert mask is not None
    assert (mask.low, mask.high, mask.keys, mask.segments, mask.bits) == (-3, 0, None, None, None)
    assert made(mask=Causal(TOKENS) & Padding(torch.ones(1, TOKENS, dtype=torch.bool))).mask is None
    for bias in (Alibi(3), RelativeBias(3, 8, 6)()):
        line = made(bias=bias).bias
        assert line is not None
        assert line.shape == (3, 2 * TOKENS - 1)
    dense = made(bias=_random(1, 1, TOKENS, TOKENS)).bias
    assert dense is not None
    assert dense.shape == (1, TOKENS, TOKENS)


def test_what_layers_share_is_made_once(trace: Trace) -> None:
    mask: Mask = EVERY_SECOND & Causal()
    bias = RelativeBias(3, 8, 6)()
    both = tuple(
        replace(each, inputs=replace(each.inputs, mask=mask, bias=bias)) for each in trace.attention()
    )
    first, second = page_record(replace(trace, encoder=replace(trace.source, attention=both))).layers[
        "encoder"
    ]
    assert first.mask is second.mask
    assert first.bias is second.bias


@pytest.mark.parametrize("family", TRACED)
def test_draws_every_family(family: str) -> None:
    made = network(family)
    ids = [3, 1, 4, 1, 5, 9, 2]
    trace = trace_ids(
        tiny.loaded(made, family=family), ids, [4, 7, 1, 28] if len(made.prefixes) == 2 else None
    )
    record = page_record(trace)
    assert record.kinds == trace.kinds
    for kind in trace.kinds:
        layers = record.layers[kind]
        assert len(layers) == len(trace.attention(kind))
        for layer, each in zip(layers, trace.attention(kind), strict=True):
            assert _differ(layer, each.inputs) < 1e-6
        assert record.sides(kind)[0].text is None


def test_cross_layers_keep_their_numbers() -> None:
    trace = trace_ids(tiny.loaded(network("t5"), family="t5"), [3, 1], [4])
    decoder = trace.decoder
    assert decoder is not None
    some = replace(decoder, cross_attention=decoder.cross_attention[::2], cross_layers=(0, 2))
    record = page_record(replace(trace, decoder=some))
    assert [layer.layer for layer in record.layers["cross"]] == [0, 2]


@dataclass(frozen=True)
class _Liar:
    """A bias that is a line in some blocks, and another in others."""

    def block(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        line = Alibi(3).block(queries, keys)
        return line + 1.0 * (keys == 0) if len(queries) == 3 else line

    def learned(self) -> tuple[torch.Tensor, ...]:
        return ()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dropout": SeededDropout(0.5, seed=1)}, "the page cannot draw layer 1 exactly: it has dropout"),
        ({"bias": _Liar()}, "the page cannot draw layer 1 exactly: it has weights of head 0 that its q, k"),
    ],
)
def test_refuses_what_the_page_would_draw_wrong(
    trace: Trace, tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    changed = _with(trace, **fields)
    for look in (page_record, Trace.page, lambda each: each.write_page(tmp_path / "page.html")):
        with pytest.raises(InputError, match=message) as caught:
            look(changed)
        assert "trace.weights" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_refuses_matrices_that_do_not_fit(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.tracing.pages._page._MOST_DENSE", 2 * TOKENS * TOKENS + 8)
    for fields, said in (
        (
            {"bias": _random(1, 3, TOKENS, TOKENS)},
            r"a bias that depends on more than the distance \(DenseBias\)",
        ),
        (
            {"mask": OF_HEADS, "bias": _random(1, 1, TOKENS, TOKENS)},
            r"a mask that only a matrix says \(Predicate\)",
        ),
    ):
        with pytest.raises(InputError, match=f"layer 1: it has {said}.*Give a shorter text") as caught:
            page_record(_with(trace, **fields))
        assert "trace.weights" in str(caught.value)


def test_writes_the_page_that_it_renders(trace: Trace, tmp_path: Path) -> None:
    page = trace.write_page(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page.html == trace.page().html
    with pytest.raises(OutputError, match="No such file or directory"):
        trace.write_page(tmp_path / "missing" / "page.html")
