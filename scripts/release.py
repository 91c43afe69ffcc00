"""What a release says and needs: see CONTRIBUTING.md.

    python scripts/release.py check v0.1.0    refuses a tag that version, changelog or addresses deny
    python scripts/release.py notes v0.1.0    prints the changelog's section of this version
    python scripts/release.py recipe FILE     prints a recipe for conda-forge of a source archive

Nothing but the standard library: the workflow runs it before anything is installed.
"""

import hashlib
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def notes(changelog: str, version: str) -> str:
    """The section of a version, without its heading; empty where there is none."""
    found = re.search(rf"^## \[{re.escape(version)}\].*?\n(.*?)(?=^## \[|^\[|\Z)", changelog, re.M | re.S)
    return "" if found is None else found[1].strip()


def faults(tag: str, root: Path = ROOT) -> list[str]:
    """Why this tag can be no release, a line each."""
    version = re.search(r'"(.+)"', (root / "src/regard/_version.py").read_text(encoding="utf-8"))
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = "" if version is None else f"v{version[1]}"
    lines = []
    if tag != wanted:
        lines.append(f"the tag is {tag}, but src/regard/_version.py says {wanted}.")
    if not notes((root / "CHANGELOG.md").read_text(encoding="utf-8"), tag.removeprefix("v")):
        lines.append(f"CHANGELOG.md has no section [{tag.removeprefix('v')}].")
    missing = {"Documentation", "Repository"} - set(project.get("urls", {}))
    lines += [f"[project.urls] of pyproject.toml lacks {name}." for name in sorted(missing)]
    return lines


RECIPE = """\
schema_version: 1

context:
  version: "{version}"

package:
  name: {name}
  version: ${{{{ version }}}}

source:
  url: {repository}/releases/download/v${{{{ version }}}}/{name}-${{{{ version }}}}.tar.gz
  sha256: {sha256}

build:
  number: 0
  noarch: python
  script: python -m pip install . -vv --no-deps --no-build-isolation
  python:
    entry_points:
      - {scripts}

requirements:
  host:
    - python {python}
    - pip
    - hatchling
  run:
    - python {python}
    - {run}

tests:
  - python:
      imports:
        - {name}
  - script:
      - {name} --version

about:
  summary: {description}
  license: {license}
  license_file: LICENSE
"""
CONDA_NAMES = {"torch": "pytorch"}  # where conda-forge has another name than PyPI


def recipe(archive: Path, root: Path = ROOT) -> str:
    """A recipe of rattler-build for a source archive; what it runs on is read from pyproject.toml."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = [re.split(r"(?=[<>=!~])", each, maxsplit=1) for each in project["dependencies"]]
    facts = {each: project[each] for each in ("name", "description", "license")}
    return RECIPE.format(
        **facts,
        repository=project["urls"]["Repository"].removesuffix(".git"),
        version=archive.name.removeprefix(f"{project['name']}-").removesuffix(".tar.gz"),
        sha256=hashlib.sha256(archive.read_bytes()).hexdigest(),
        scripts="\n      - ".join(f"{name} = {place}" for name, place in project["scripts"].items()),
        python=project["requires-python"],
        run="\n    - ".join(f"{CONDA_NAMES.get(name, name)} {version}" for name, version in names),
    )


def main() -> None:
    match sys.argv[1:]:
        case ["check", tag]:
            if found := faults(tag):
                raise SystemExit("\n".join(found))
        case ["notes", tag]:
            print(notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), tag.removeprefix("v")))
        case ["recipe", archive]:
            print(recipe(Path(archive)), end="")
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
