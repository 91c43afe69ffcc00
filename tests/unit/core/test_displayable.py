"""Results as tables: rows by hand, and what they become."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.core.displayable import Tabular
from regard.core.errors import InputError
from regard.scaling import Cost, Scaling
from regard.tracing import DirectAttribution, Forecast, IntegratedGradients, Patching
from regard.views import CurvePicture, Panel, Series

PATCHED = Patching(
    values=torch.tensor([[1.0, 3.0], [2.0, 0.5]]),
    clean=5.0,
    corrupted=1.0,
    layers=(3, "embedding"),
    site="residual",
    kind="encoder",
    per="position",
    method="activation",
)
DIRECT = DirectAttribution(
    positions=(7,),
    value=torch.tensor(10.0),
    embedding=torch.tensor(1.0),
    heads=(torch.tensor([2.0, 3.0]),),
    cross_heads=(),
    attention_bias=torch.tensor([0.5]),
    ffn=torch.tensor([4.0]),
    norm_bias=torch.tensor(0.0),
    head_bias=torch.tensor(-0.5),
    edited=torch.tensor(0.0),
)
GRADIENTS = IntegratedGradients(
    tokens=("a", "bank"),
    attributions=torch.tensor([0.25, -1.0]),
    by_entry=torch.zeros(2, 3),
    value=1.0,
    baseline_value=1.75,
    error=0.0,
)
COST = Cost(
    name="fused", seconds=(0.5, 1.5), peak=(), error=0.0, exponent=None, memory_exponent=None, crossing=None
)
SCALED = Scaling(lengths=(16, 32), heads=2, head_dim=8, causal=False, threads=1, tokens=16, costs=(COST,))
CURVES = CurvePicture(
    title="t", along="steps", panels=[Panel(title="loss", series=[Series(name="run", points=[(1, 3.0)])])]
)


@pytest.mark.parametrize(
    ("result", "count", "row"),
    [
        (PATCHED, 4, {"layer": 3, "position": 1, "value": 3.0, "effect": 2.0}),
        (DIRECT, 8, {"position": 7, "part": "head", "layer": 0, "head": 1, "value": 3.0}),
        (DIRECT, 8, {"position": 7, "part": "ffn", "layer": 0, "head": None, "value": 4.0}),
        (GRADIENTS, 2, {"position": 1, "token": "bank", "attribution": -1.0}),
        (Forecast(kept=3, peak=5), 1, {"kept": 3, "peak": 5}),
        (SCALED, 2, {"attention": "fused", "tokens": 32, "seconds": 1.5, "peak": None}),
        (CURVES, 1, {"panel": "loss", "series": "run", "steps": 1, "value": 3.0}),
    ],
)
def test_a_row_of_each(result: Tabular, count: int, row: dict[str, Any], tmp_path: Path) -> None:
    rows = result.to_rows()
    assert len(rows) == count
    assert row in rows
    frame, arrow = result.to_pandas(), result.to_arrow() if result is not PATCHED else None
    assert list(frame.columns) == list(row)
    assert arrow is None or arrow.to_pylist() == rows
    result.write(tmp_path / "table.csv")
    assert (tmp_path / "table.csv").read_text().splitlines()[0] == ",".join(row)


def test_one_verb_for_every_format(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = SCALED.to_rows()
    for ending in ("json", "jsonl", "parquet", "tsv", "JSON"):
        SCALED.write(tmp_path / f"table.{ending}")
    assert json.loads((tmp_path / "table.json").read_text()) == rows
    assert (tmp_path / "table.JSON").read_bytes() == (tmp_path / "table.json").read_bytes()
    assert [json.loads(line) for line in (tmp_path / "table.jsonl").read_text().splitlines()] == rows
    assert parquet.read_table(tmp_path / "table.parquet").to_pylist() == rows
    assert (tmp_path / "table.tsv").read_text("utf-8-sig").splitlines()[0] == "\t".join(rows[0])
    with pytest.raises(InputError, match=r"^output must end in \.csv, .* or \.parquet; got 'table\.txt'\.$"):
        SCALED.write(tmp_path / "table.txt")


def test_a_picture_of_curves_is_a_picture_or_a_table_by_the_ending(tmp_path: Path) -> None:
    CURVES.write(tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text() == CURVES.svg()
    CURVES.write(tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text()) == CURVES.to_rows()


def test_the_former_names_say_the_new_one(tmp_path: Path) -> None:
    with pytest.warns(DeprecationWarning, match="to_file is write now"):
        CURVES.to_file(tmp_path / "a.csv")
    with pytest.warns(DeprecationWarning, match="save is write now"):
        CURVES.save(tmp_path / "a.svg")
    assert len(list(tmp_path.iterdir())) == 2


def test_the_parts_of_a_logit_add_up_in_its_table() -> None:
    assert DIRECT.to_pandas()["value"].sum() == float(DIRECT.total) == 10.0


def test_cells_lie_along_axes() -> None:
    found = PATCHED.to_xarray()
    ordered = replace(PATCHED, layers=("input", 1)).to_xarray()
    assert ordered["layer"].values.tolist() == ["input", 1]  # pandas would sort them
    assert found["effect"].sel(layer=3).values.tolist() == [0.0, 2.0]
    assert found["value"].sel(layer="embedding", position=1).item() == 0.5
    assert SCALED.to_xarray()["seconds"].dims == ("attention", "tokens")
    with pytest.raises(InputError, match=r"^IntegratedGradients has no axes; take to_pandas\(\)\.$"):
        GRADIENTS.to_xarray()


def test_heads_lie_along_axes() -> None:
    model = regard.load()
    trace = model.trace("The cat sat on the mat.")
    found = trace.statistics().to_xarray()["entropy"]
    assert found.dims == ("layer", "head")
    assert found.sel(layer=3, head=5).item() == pytest.approx(float(trace.statistics().mean("entropy")[3, 5]))
    heads = model.heads("The cat sat on the mat.", layer=2).to_xarray()
    assert dict(heads.sizes) == {"kind": 1, "layer": 1, "head": 12}
