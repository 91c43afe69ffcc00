"""Activation patching against runs by hand, attribution patching against activation patching."""

from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.core import Taps, memory
from regard.core.errors import InputError
from regard.core.progress import Bar
from regard.models import Output
from regard.tracing import Patching, patch
from tolerances import FP64, assert_close_to_largest
from unit.tracing.stacks import make

CLEAN, CORRUPTED, TARGET = "the river bank by money", "the money bank by fish", "by river"
IDS = {CLEAN: [2, 4, 9, 7, 8, 10, 3], CORRUPTED: [2, 4, 10, 7, 8, 5, 3]}
TARGET_IDS = [2, 2, 8, 9]  # the start token, then the target


def traces(model: regard.Model) -> tuple[regard.Trace, regard.Trace]:
    if len(model.network.prefixes) == 1:
        return model.trace(CLEAN), model.trace(CORRUPTED)
    return model.trace(CLEAN, target=TARGET), model.trace(CORRUPTED, target=TARGET)


def metric(output: Output) -> Tensor:
    """Neither linear nor of one position."""
    state = output.last_hidden_state[0]
    return (state[1, :7] * state[-1, 3:10]).sum().tanh() + state[2, 5]


def measured(model: regard.Model, text: str, taps: Taps | None = None) -> float:
    target = torch.tensor([TARGET_IDS]) if len(model.network.prefixes) == 2 else None
    with torch.no_grad():
        return float(metric(model(torch.tensor([IDS[text]]), decoder_token_ids=target, taps=taps)))


def passing(model: regard.Model, text: str, point: str) -> Tensor:
    seen: list[Tensor] = []
    measured(model, text, Taps({point: seen.append}))
    return seen[0]


CASES: list[tuple[str, str | None, str, str, str, int, int]] = [
    # shape, kind, site, per, tap of layer 1, its axis, its length
    ("encoder", None, "residual", "position", "layers.1.input", 1, 7),
    ("encoder", None, "context", "head", "layers.1.attention.context", 1, 3),
    ("encoder", None, "context", "position", "layers.1.attention.context", 2, 7),
    ("decoder", None, "k", "position", "layers.1.attention.k", 2, 7),
    ("decoder", None, "weights", "head", "layers.1.attention.weights", 1, 5),
    ("both", "encoder", "ffn", "position", "encoder.layers.1.ffn.output", 1, 7),
    ("encoder", None, "neuron", "neuron", "layers.1.ffn.hidden", 2, 17),
    ("both", "cross", "v", "head", "decoder.layers.1.cross_attention.v", 1, 5),
    ("both", "cross", "weights", "head", "decoder.layers.1.cross_attention.weights", 1, 5),
    ("both", "cross", "scores", "position", "decoder.layers.1.cross_attention.scores", 2, 4),
]


@pytest.mark.parametrize(("shape", "kind", "site", "per", "tap", "axis", "length"), CASES)
def test_each_cell_is_a_run_with_one_place_patched(
    models: Any, shape: str, kind: Any, site: Any, per: Any, tap: str, axis: int, length: int
) -> None:
    model = models[shape]
    seen: list[tuple[int, int]] = []
    table = model.patch(
        *traces(model), metric, site=site, kind=kind, per=per, progress=lambda *done: seen.append(done)
    )
    clean = passing(model, CLEAN, tap)
    assert table.clean == pytest.approx(measured(model, CLEAN), rel=1e-12)
    assert table.corrupted == pytest.approx(measured(model, CORRUPTED), rel=1e-12)
    assert table.values.shape == (len(table.layers), length)
    for column in range(length):

        def patch(value: Tensor, column: int = column) -> Tensor:
            patched = value.clone()
            patched.select(axis, column).copy_(clean.select(axis, column))
            return patched

        wanted = measured(model, CORRUPTED, Taps({tap: patch}))
        assert float(table.values[1, column]) == pytest.approx(wanted, rel=1e-9)
    assert table.effect[1].abs().max() > 1e-6
    assert len(table.to_rows()[0]) == 5 - (per != "position")  # with the token, where there is one
    assert seen == [(done, table.values.numel()) for done in range(1, table.values.numel() + 1)]


@pytest.mark.parametrize(
    ("shape", "site", "per", "tap", "size"),
    [
        ("decoder", "head", ("head", "position"), "layers.1.attention.context", (5, 7)),
        ("encoder", "neuron", ("neuron", "position"), "layers.1.ffn.hidden", (17, 7)),
    ],
)
def test_a_part_at_one_position(models: Any, shape: str, site: Any, per: Any, tap: str, size: Any) -> None:
    """One head, or one neuron, at one position; all positions of a linear readout sum to the part alone."""
    model = models[shape]
    table = model.patch(*traces(model), metric, site=site, per=per, layer=[1])
    clean = passing(model, CLEAN, tap)
    assert (table.axes, table.values.shape) == (("layer", *per), (1, *size))
    for part, position in ((0, 6), (size[0] - 1, 2), (2, 5)):

        def patch(value: Tensor, part: int = part, position: int = position) -> Tensor:
            patched = value.clone()
            cell = (0, position, part) if site == "neuron" else (0, part, position)
            patched[cell] = clean[cell]
            return patched

        wanted = measured(model, CORRUPTED, Taps({tap: patch}))
        assert float(table.values[0, part, position]) == pytest.approx(wanted, rel=1e-9)
    row = next(row for row in table.to_rows() if (row[per[0]], row["position"]) == (2, 3))
    assert row["token"] == traces(model)[0].stack(shape).shown[3]
    guess, alone = (
        model.patch(*traces(model), metric, site=site, per=each, method="attribution")
        for each in (per, per[0])
    )
    assert_close_to_largest(guess.effect.sum(dim=2), alone.effect, FP64)


def test_all_of_a_state_patched_is_the_clean_text(models: Any) -> None:
    """The last state, position by position, under a metric that is a sum over positions."""
    model = models["encoder"]
    weights = torch.randn(30, dtype=torch.float64)
    table = model.patch(
        *traces(model), lambda output: (output.last_hidden_state[0] @ weights).sum(), layer=-1
    )
    assert table.layers == (2,)
    assert float(table.recovered.sum()) == pytest.approx(1.0, rel=1e-9)
    text = model.patch(
        CLEAN, CORRUPTED, lambda output: (output.last_hidden_state[0] @ weights).sum(), layer=2
    )
    assert_close_to_largest(text.values, table.values, FP64)


def test_attribution_is_exact_for_a_linear_readout(models: Any) -> None:
    weights = torch.randn(30, dtype=torch.float64)

    def linear(output: Output) -> Tensor:
        return (output.last_hidden_state[0] @ weights).sum()

    for shape, kind in (("encoder", None), ("both", "decoder")):
        model = models[shape]
        guess = model.patch(*traces(model), linear, kind=kind, method="attribution")
        exact = model.patch(*traces(model), linear, kind=kind, layer=-1)
        assert_close_to_largest(guess.values[-1], exact.values[0], FP64)
        assert (guess.clean, guess.corrupted) == pytest.approx((exact.clean, exact.corrupted))
        assert (guess.method, exact.method) == ("attribution", "activation")


@pytest.mark.parametrize(("shape", "kind", "site", "per"), [case[:4] for case in CASES[::2]])
def test_attribution_is_activation_patching_to_first_order(
    shape: str, kind: Any, site: Any, per: Any
) -> None:
    """As two texts come closer by a factor of 10, what is left of the difference falls by one of 100."""
    errors = []
    for step in (1e-2, 1e-3):
        model = make(shape)
        table = model.network.stack(next(iter(model.network.prefixes))).embeddings.tokens.weight
        generator = torch.Generator().manual_seed(5)
        with torch.no_grad():  # pieces 9 and 10 hardly differ now, and 5 hardly from 10
            for piece in (9, 5):
                noise = torch.randn(30, generator=generator, dtype=torch.float64)
                table[piece] = table[10] + step * noise
        arguments: dict[str, Any] = {"site": site, "kind": kind, "per": per}
        guess = patch(model.loaded, *traces(model), metric, method="attribution", **arguments)
        exact = patch(model.loaded, *traces(model), metric, **arguments)
        assert exact.effect.abs().max() > 1e-8
        errors.append(float((guess.effect - exact.effect).abs().max() / exact.effect.abs().max()))
    assert errors[0] < 0.2
    assert errors[1] < errors[0] / 5


def test_a_site_that_the_metric_does_not_depend_on(models: Any) -> None:
    model = models["both"]

    def of_the_encoder(output: Output) -> Tensor:
        assert output.encoder_state is not None
        return output.encoder_state[0, 1].norm()

    for method in ("activation", "attribution"):
        table = model.patch(*traces(model), of_the_encoder, kind="decoder", method=method)  # type: ignore[arg-type]
        assert table.effect.abs().max() < 1e-14  # rows of a batch may be added up in another order


def test_patching_an_edited_model(models: Any) -> None:
    model = models["encoder"]
    table = model.edited(regard.Zero("context", layer=1)).patch(*traces(model), metric, site="context")
    assert table.effect[1].abs().max() < 1e-14  # rows of a batch may be added up in another order
    assert table.effect[0].any()


@pytest.mark.parametrize("shape", ["encoder", "both"])
def test_cells_run_together(models: Any, shape: str) -> None:
    """One by one, in batches that do not come out even, and all at once: the same table."""
    model = models[shape]
    kind: Any = "decoder" if shape == "both" else None
    passes: list[object] = []
    handle = model.network.register_forward_pre_hook(lambda *_: passes.append(1))
    found = []
    for batch in (1, 4, None):
        passes.clear()
        arguments: Any = {"site": "residual", "kind": kind, "batch": batch}
        found.append((model.patch(*traces(model), metric, **arguments), len(passes)))
    handle.remove()
    cells = found[0][0].values.numel()
    assert [count - found[2][1] + 1 for _, count in found] == [cells + 1, -(-(cells + 1) // 4), 1]
    for table, _ in found[1:]:
        assert_close_to_largest(table.values, found[0][0].values, FP64)
    with pytest.raises(InputError, match="batch must be a whole number, at least 1; got 0"):
        model.patch(*traces(model), metric, kind=kind, batch=0)


def test_ids_are_taken_where_texts_are(models: Any) -> None:
    model = models["encoder"]
    table = model.patch(IDS[CLEAN], torch.tensor(IDS[CORRUPTED]), metric, layer=1)
    assert torch.equal(table.values, model.patch(CLEAN, CORRUPTED, metric, layer=1).values)
    one = model.head_importance([IDS[CLEAN], CLEAN], lambda output, index: metric(output))
    assert torch.equal(one, model.head_importance([CLEAN], lambda output, index: metric(output)))
    with pytest.raises(InputError, match="clean must be a text, token ids or a trace; got int"):
        model.patch(3, CORRUPTED, metric)


def test_a_bar_is_shown_where_nobody_asks_for_progress(models: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    monkeypatch.setattr(Bar, "__call__", lambda bar, *done: seen.append(done))
    models["encoder"].patch(CLEAN, CORRUPTED, metric, layer=1)
    models["encoder"].head_importance([CLEAN], lambda output, index: metric(output))
    assert seen == [*((done, 7) for done in range(1, 8)), (1, 1)]


LONGER = "the money bank by the river"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"site": "pattern"}, "site must be one of"),
        ({"per": "head"}, "per must be \"position\" at site 'residual'; got 'head'"),
        (
            {"site": "q", "per": "token"},
            'per must be "position", "head" or ."head", "position". at site \'q\'; got \'token\'',
        ),
        ({"layer": 3}, "layer must be from 0 to 2"),
        ({"kind": "decoder"}, 'kind must be "encoder"'),
        ({"method": "path"}, 'method must be "activation" or "attribution"; got \'path\''),
        ({"corrupted": LONGER}, r"the same number of tokens, .*; the encoder reads 7 and 8"),
        (
            {"metric": lambda output: output.last_hidden_state},
            r"metric must give one number; got torch.float64 of shape \(1, 7, 30\)",
        ),
        ({"metric": lambda output: "many"}, "metric must give one number; got str"),
        ({"metric": lambda output: float("nan")}, "metric must give a finite number; got nan"),
        (
            {"metric": lambda output: 1.0, "method": "attribution"},
            "metric must give a number that the model .*; got float",
        ),
        (
            {"metric": lambda output: metric(output).detach(), "method": "attribution"},
            r"no \.item.*; got torch.float64 of shape \(\)",
        ),
    ],
)
def test_what_cannot_be_patched(models: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        models["encoder"].patch(**{"clean": CLEAN, "corrupted": CORRUPTED, "metric": metric} | arguments)


def test_matrices_that_would_not_fit(models: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1000)
    for method in ("activation", "attribution"):
        arguments: Any = {"site": "scores", "method": method}
        message = r"patching scores of 7 x 7 tokens in \d layers needs .* are free; choose a layer="
        with pytest.raises(InputError, match=message):
            models["encoder"].patch(CLEAN, CORRUPTED, metric, **arguments)


def test_what_depends_on_where_it_runs(models: Any) -> None:
    model = models["both"]
    with pytest.raises(InputError, match="the decoder reads 4 and 3"):
        model.patch(traces(model)[0], model.trace(CORRUPTED, target="by"), metric, kind="encoder")
    with torch.inference_mode(), pytest.raises(InputError, match=r"inside torch\.inference_mode"):
        models["encoder"].patch(CLEAN, CORRUPTED, metric, method="attribution")
    table = models["encoder"].patch(CLEAN, CORRUPTED, lambda output: 1.0, layer=2)
    with pytest.raises(InputError, match=r"metric must differ between the two texts; it is 1.0 of both"):
        _ = table.recovered


def test_layers_without_cross_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make("both")
    names = [name for name in model.network.tap_names() if "layers.1.cross_attention." not in name]
    monkeypatch.setattr(model.network, "tap_names", lambda: names)
    for method in ("activation", "attribution"):
        arguments: Any = {"site": "context", "kind": "cross", "method": method}
        assert model.patch(*traces(model), metric, **arguments).layers == (0, 2)
        assert model.patch(*traces(model), metric, layer=[0, -1], **arguments).layers == (0, 2)
        for layer in (1, slice(None)):
            with pytest.raises(InputError, match=r"layer must be one that has 'context', of 0, 2; got 1\."):
                model.patch(*traces(model), metric, layer=layer, **arguments)


def test_a_table_tells_itself() -> None:
    table = Patching(
        values=torch.zeros(2, 3),
        clean=1.0,
        corrupted=0.25,
        layers=(0, 1),
        site="context",
        kind="cross",
        per="head",
        method="activation",
    )
    assert repr(table) == (
        "Patching(activation at cross context, 2 layers x 3 heads, clean 1, corrupted 0.25)"
    )


def test_what_changes_most_is_printed(models: Any) -> None:
    table = models["encoder"].patch(CLEAN, CORRUPTED, metric)
    title, _, _, titles, first, *_ = lines = str(table).splitlines()
    assert title == "Activation patching at encoder residual."
    assert titles.split() == ["layer", "position", "token", "value", "effect", "recovered"]
    best = max(table.to_rows(), key=lambda row: abs(row["effect"]))
    assert first.split()[:4] == [
        str(best["layer"]),
        str(best["position"]),
        best["token"],
        f"{best['value']:.3f}",
    ]
    assert lines[-1] == f"and {table.values.numel() - 12} cells that change less"
    same = models["encoder"].patch(CLEAN, CORRUPTED, lambda output: 1.0, layer=2)
    assert str(same).splitlines()[4].split()[-2:] == ["+0.000", "-"]


def test_a_sink_stays() -> None:
    from lens_models import FAMILIES

    model = regard.lens(FAMILIES["gpt_oss"]())
    clean, corrupted = (model.trace(token_ids=[11, 12, each, 14, 15]) for each in (13, 16))

    def last(output: Output) -> Tensor:
        assert output.logits is not None
        return output.logits[0, -1, 3]

    table = model.patch(clean, corrupted, last, site="weights", per="position", layer=0)
    edit = regard.Replace("weights", layer=0, query=4, value=clean)
    with torch.no_grad():
        wanted = last(model.edited(edit)(torch.tensor([corrupted.token_ids])))
    assert float(table.values[0, 4]) == pytest.approx(float(wanted), rel=1e-5)
    assert table.effect[0, 4].abs() > 1e-5
    guess = model.patch(clean, corrupted, last, site="weights", per="position", layer=0, method="attribution")
    assert guess.values.shape == (1, 5)
