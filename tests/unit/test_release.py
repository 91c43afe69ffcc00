"""What a release checks and writes, and that the workflows try what the project says that it supports."""

import hashlib
import re
import tomllib
from pathlib import Path

import pytest
import release

ROOT = release.ROOT
WORKFLOWS = ROOT / ".github" / "workflows"
CHANGELOG = """\
# Changelog

## [Unreleased]

* A.

## [0.2.0] - 2026-12-01

### Added

* B.

## [0.1.0]

* C.
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "src/regard").mkdir(parents=True)
    (tmp_path / "src/regard/_version.py").write_text('__version__ = "0.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    urls = (
        '[project.urls]\nDocumentation = "https://a.example"\nRepository = "https://b.example/regard.git"\n'
    )
    (tmp_path / "pyproject.toml").write_text(re.sub(r"^\[project\.urls\]\n", urls, text, flags=re.M), "utf-8")
    return tmp_path


def test_takes_the_section_of_a_version() -> None:
    assert release.notes(CHANGELOG, "0.2.0") == "### Added\n\n* B."
    assert release.notes(CHANGELOG, "0.1.0") == "* C."
    assert release.notes(CHANGELOG, "0.1") == ""


def test_refuses_a_tag_that_the_project_denies(project: Path) -> None:
    assert release.faults("v0.2.0", project) == []
    wrong = release.faults("v0.3.0", project)
    assert wrong == [
        "the tag is v0.3.0, but src/regard/_version.py says v0.2.0.",
        "CHANGELOG.md has no section [0.3.0].",
    ]
    file = project / "pyproject.toml"
    file.write_text(re.sub(r"^Repository = .*\n", "", file.read_text("utf-8"), flags=re.M), "utf-8")
    assert release.faults("v0.2.0", project) == ["[project.urls] of pyproject.toml lacks Repository."]


def test_a_recipe_needs_what_the_project_needs(project: Path) -> None:
    archive = project / "regard-0.2.0.tar.gz"
    archive.write_bytes(b"an archive")
    text = release.recipe(archive, project)
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    run = text.split("  run:\n")[1].split("\n\n")[0]
    assert run.count("    - ") == len(needs) + 1
    assert "    - pytorch >=2.10\n    - numpy >=" in run
    assert f"sha256: {hashlib.sha256(b'an archive').hexdigest()}\n" in text
    assert 'version: "0.2.0"\n' in text
    assert (
        "url: https://b.example/regard/releases/download/v${{ version }}/regard-${{ version }}.tar.gz\n"
        in text
    )


def test_workflows_try_each_version_of_python_that_is_named() -> None:
    named = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text("utf-8"))
    tried = re.search(r"python: \[(.+)\]", (WORKFLOWS / "tests.yml").read_text("utf-8"))
    assert tried is not None
    assert set(named) <= set(re.findall(r"3\.\d+", tried[1]))


def test_workflows_call_scripts_that_are_there() -> None:
    called = {
        name
        for file in WORKFLOWS.glob("*.yml")
        for name in re.findall(r"\s((?:scripts|\.ci)/[\w.]+)", file.read_text("utf-8"))
    }
    assert called >= {"scripts/release.py", ".ci/run"}
    assert [name for name in called if not (ROOT / name).is_file()] == []
