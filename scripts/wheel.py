"""Try a wheel that is installed in an environment of its own: it holds all that it needs, and draws a page.

make wheel                       builds it, installs it into build/wheel/fresh, and runs this
"""

import base64
import gzip
import re
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEXT = "Write a poem about a man fishing on a river bank."
SOURCES_OF_BUNDLES = {".js", ".css"}


def missing(wheel: Path) -> list[str]:
    """The files of src that the wheel lacks; it needs none of those that the page's bundles are made from."""
    held = set(zipfile.ZipFile(wheel).namelist())
    files = [
        file for file in (ROOT / "src" / "regard").rglob("*") if file.is_file() and file.suffix != ".pyc"
    ]
    wanted = {
        str(file.relative_to(ROOT / "src"))
        for file in files
        if "built" in file.parts or not (file.suffix in SOURCES_OF_BUNDLES or file.name.endswith(".d.ts"))
    }
    return sorted(wanted - held)


def main(folder: Path) -> None:
    """Look into the wheel in the folder, then run what is installed beside it, away from the sources."""
    (wheel,) = folder.glob("*.whl")
    if lacking := missing(wheel):
        raise SystemExit(f"{wheel.name} lacks {', '.join(lacking)}")
    fresh = (folder / "fresh" / "bin").resolve()
    where = subprocess.run(
        [fresh / "python", "-c", "import regard; print(regard.__file__)"],
        cwd=folder,
        check=True,
        capture_output=True,
    ).stdout.decode()
    if str(fresh.parent) not in where:
        raise SystemExit(f"regard came from {where.strip()}, not from the wheel")
    page = folder.resolve() / "page.html"
    for command in (
        ["--version"],
        ["look", TEXT, "-o", page, "--no-open"],
        ["explain", TEXT, "--word", "bank"],
    ):
        subprocess.run([fresh / "regard", *command], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    facts = re.search(r'id="regard-facts">(.*?)</script>', page.read_text(encoding="utf-8"))
    if facts is None or TEXT.encode() not in gzip.decompress(base64.b64decode(facts[1])):
        raise SystemExit(f"{page} does not hold the text")
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, page of {page.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
