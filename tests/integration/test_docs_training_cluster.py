"""The commands that docs/howto/training_cluster.md shows are ones that can be given."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
from torch.distributed.run import parse_args

from regard.cli._app import app

TEXT = (Path(__file__).parents[2] / "docs/howto/training_cluster.md").read_text(encoding="utf-8")


def check(arguments: list[str]) -> int:
    """How many processes a machine gets; fails unless torchrun and regard both know all options."""
    started = parse_args(arguments)
    assert started.module
    program, *given = [started.training_script, *started.training_script_args]
    assert (program, given[:2]) == ("regard", ["train", "clm"])
    command = typer.main.get_command(app).commands["train"].commands["clm"]  # type: ignore[attr-defined]
    params = command.make_context("clm", given[2:]).params
    assert params["data"]
    assert params["output"]
    return int(started.nproc_per_node)


def test_commands() -> None:
    lines = re.findall(r"^torchrun (.*)$", TEXT, re.MULTILINE)
    assert [check(shlex.split(line, comments=True)) for line in lines] == [2, 8, 8, 8]


def test_manifest() -> None:
    yaml = pytest.importorskip("yaml")
    [block] = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    pod = yaml.safe_load(block)["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["command"][0] == "torchrun"
    assert check(container["command"][1:]) == container["resources"]["limits"]["nvidia.com/gpu"]
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}
