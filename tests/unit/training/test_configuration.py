"""Settings from files and from what is typed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regard.core.arguments import built
from regard.core.errors import InputError
from regard.data import Csv
from regard.training import Settings, as_mapping, as_toml, read_settings

FILE = """
steps = 20
[optimiser]
lr = 1e-3
betas = [0.9, 0.95]
[model]
d_model = 8
"""


def test_what_is_typed_goes_over_the_file_and_the_file_over_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(FILE)
    changes = ["optimiser.lr=3e-4", "model.activation=relu", "batch.form=packed", "optimiser.clip=none"]
    settings = read_settings("clm", file=tmp_path / "a.toml", changes=changes, steps=30, epochs=None)
    assert (settings.steps, settings.optimiser.lr, settings.optimiser.betas) == (30, 3e-4, (0.9, 0.95))
    assert settings.model == {"d_model": 8, "activation": "relu"}
    assert (settings.batch.form, settings.optimiser.clip, settings.batch.rows) == ("packed", None, 32)
    assert built("", as_mapping(settings), Settings) == settings
    changes = ["data.csv.escape=\\", r"data.csv.delimiter=\t", "data.csv.header=false", "data.text=1"]
    data = read_settings("clm", changes=changes).data
    assert (data.csv, data.text) == (Csv(escape="\\", delimiter="\t", header=False), "1")
    assert built("", as_mapping(settings), Settings) == settings


@pytest.mark.parametrize(
    ("name", "content", "change", "given"),
    [
        ("a.toml", "", (), {"optimiser": {"clip": None}}),
        ("a.toml", "", ("optimiser.clip=none",), {}),
        ("a.toml", "[optimiser]\nclip = 'none'", (), {}),
        ("a.json", '{"optimiser": {"clip": null}}', (), {}),
        ("a.json", '{"optimiser": {"clip": null}}', (), {"optimiser": {"lr": 1e-3}, "steps": None}),
    ],
)
def test_none_is_a_value_of_a_section(
    tmp_path: Path, name: str, content: str, change: tuple[str, ...], given: dict[str, Any]
) -> None:
    """The default of clip is 1, so that None cannot stand for it."""
    (tmp_path / name).write_text(content)
    settings = read_settings("clm", file=tmp_path / name, changes=change, **given)
    assert settings.optimiser.clip is None
    (tmp_path / "again.toml").write_text(as_toml(settings))
    assert read_settings("clm", file=tmp_path / "again.toml") == settings
    assert read_settings("clm", steps=None).optimiser.clip == 1.0


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("optimiser.lear=1", "optimiser.lear is not a setting; did you mean optimiser.lr?"),
        ("batchs.rows=1", "batchs is not a setting; did you mean batch"),
        ("zzz=1", "zzz is not a setting; there are average, "),
        ("batch.rows=many", "batch.rows must be a whole number; got 'many'"),
        ("optimiser.lr=nan", "optimiser.lr must be a finite number; got nan"),
        (
            "batch.form=pack",
            "batch.form must be one of rows, packed, blocks; got 'pack'. Did you mean 'packed'?",
        ),
        ("optimiser.name=sgd", "optimiser.name must be one of adamw, muon; got 'sgd'"),
        ("optimiser.betas=[0.9]", "optimiser.betas must be a list of 2; got [0.9]"),
        ("batch=3", "batch must be a table of settings; got 3"),
        ("data.valid=none", "data.valid must be a list; got None"),
        ("batch.rows.deep=3", "batch.rows must be a whole number"),
        (
            "model.attention=linear model.attention.rank=3",
            "set must name a setting in a section: model.attention is 'linear' already, and has no settings",
        ),
        ("steps", "set must be KEY=VALUE, such as optimiser.lr=0.001; got 'steps'"),
        ("objective=mlm", "objective must be 'clm'"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(change: str, told: str) -> None:
    with pytest.raises(InputError) as error:
        read_settings("clm", changes=change.split())
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.toml", "steps = ", "config must be TOML"),
        ("a.json", "[1]", "config must hold a table of settings"),
        ("gone.toml", None, "config must be a file that can be read"),
        ("b.toml", "objective = 'mlm'", "objective must be 'clm'"),
    ],
)
def test_a_broken_file_is_refused(tmp_path: Path, name: str, content: str | None, told: str) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=told):
        read_settings("clm", file=tmp_path / name)
