"""Draw the pictures of the documentation, from real traces in a real browser.

    .venv/bin/python scripts/pictures.py

Needs what `make test` installs, Chromium among it.
"""

import os
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

import regard

DOCS = Path(__file__).parent.parent / "docs"
BANK = "Write a poem about a man fishing on a river bank."


def main() -> None:
    """Write docs/look.png: "bank" looks at "fishing" and "river"."""
    flags = ["--no-sandbox", "--disable-dev-shm-usage"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        page_file = Path(folder) / "look.html"
        regard.load().trace(BANK).write_page(page_file)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        page = browser.new_page(viewport={"width": 1200, "height": 740})
        page.goto(f"{page_file.as_uri()}#layer=5&head=11&pin=query-11&specials=hidden&theme=light")
        page.wait_for_timeout(2000)  # the thumbnails are drawn when the browser is idle
        page.screenshot(path=DOCS / "look.png")
        browser.close()


if __name__ == "__main__":
    main()
