"""Write the project's addresses, [project.urls] of pyproject.toml, into the README.

    .venv/bin/python scripts/addresses.py        after they were set, or changed

`Documentation` is where the site of `make docs` is served, and `Repository` where the project is cloned from.
Until they are set, the README leads to files of the checkout.
"""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# The README's links by name: a file of the checkout, and its page on the site.
LINKS = {
    "live": ("docs/examples/bank.html", "live.html"),
    "examples": ("docs/examples/README.md", "docs/examples/README.html"),
}


def addressed(readme: str, urls: Mapping[str, str]) -> str:
    """The README with these addresses in it."""
    site, repository = urls.get("Documentation", "").rstrip("/"), urls.get("Repository")
    for name, (file, page) in LINKS.items():
        target = f"{site}/{page}" if site else file
        readme = re.sub(rf"^\[{name}\]: .*$", f"[{name}]: {target}", readme, flags=re.MULTILINE)
    clone = f"git clone {repository} regard && cd regard\n" if repository else ""
    return re.sub(r"^(?:git clone .*\n)?(?=make look )", clone, readme, count=1, flags=re.MULTILINE)


def project_urls() -> Mapping[str, str]:
    """What pyproject.toml says."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return dict(project.get("urls", {}))


if __name__ == "__main__":
    file = ROOT / "README.md"
    file.write_text(addressed(file.read_text(encoding="utf-8"), project_urls()), encoding="utf-8")
