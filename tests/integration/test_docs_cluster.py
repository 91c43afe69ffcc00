"""The commands and the manifest that docs/howto/cluster.md shows are ones that can be given."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from regard.cli._app import app

TEXT = (Path(__file__).parents[2] / "docs/howto/cluster.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def check(command: str) -> dict[str, object]:
    program, name, *arguments = shlex.split(command, comments=True)
    assert (program, name) == ("regard", "embed")
    embed = typer.main.get_command(app).commands["embed"]  # type: ignore[attr-defined]
    return dict(embed.make_context("embed", arguments).params)


def test_commands() -> None:
    lines = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("regard ")]
    assert len(lines) == 5
    assert [check(line)["ray"] for line in lines] == [None, "", "auto", "ray://head:10001", "auto"]


def test_manifest() -> None:
    yaml = pytest.importorskip("yaml")
    [block] = blocks("yaml")
    spec = yaml.safe_load(block)["spec"]
    given = check(spec["entrypoint"])
    cluster = spec["rayClusterSpec"]
    [workers] = cluster["workerGroupSpecs"]
    [container] = workers["template"]["spec"]["containers"]
    cores = int(container["resources"]["limits"]["cpu"])
    threads, count = given["threads"], given["workers"]
    assert isinstance(threads, int)
    assert count == workers["replicas"] * (cores // threads)
    [head] = cluster["headGroupSpec"]["template"]["spec"]["containers"]
    assert head["image"] == container["image"]
    [image] = re.findall(r"FROM rayproject/ray:([\d.]+)-", TEXT)
    assert cluster["rayVersion"] == image
    locked = (Path(__file__).parents[2] / "requirements.lock").read_text()
    assert f"\nray=={image}\n" in locked
