"""Put the page's present code around the numbers of pages that are there.

    .venv/bin/python scripts/examples_renew.py docs/examples/induction.html ...

An example whose model takes minutes to train keeps its numbers so, and shows them as the page does now.
"""

import base64
import gzip
import json
import re
import sys
from pathlib import Path

from regard.views import _assets
from regard.views._page import wrapped

# From the facts to the loader, which is the only script without a type.
DATA = re.compile(r'<script type="application/gzip" id="regard-facts">.*?(?=\n<script>)', re.DOTALL)
HEAD = re.compile(r"<title>.*?(?=\n<link)", re.DOTALL)
FACTS = re.compile(r'(<script type="application/gzip" id="regard-[a-z0-9-]*facts">)(.*?)</script>')
SEVERAL = {"movement", "compared", "training", "writing", "senses"}


def renewed(page: str) -> str:
    """The same numbers in a page as it is made now."""
    found = DATA.search(page)
    if found is None:
        raise SystemExit("a page must be a file that regard wrote, without a model in it.")
    facts = [_unpacked(match[2]) for match in FACTS.finditer(found[0])]
    each = iter(facts)
    data = FACTS.sub(lambda match: f"{match[1]}{_assets.packed(next(each))}</script>", found[0])
    head = HEAD.search(page)
    assert head is not None
    told = json.loads(facts[0])
    script = _assets.script(usual=not SEVERAL & told.keys() and len(told["kinds"]) == 1)
    return wrapped(data, script, head=head[0])


def _unpacked(text: str) -> str:
    """Facts as pages have them; older ones have them in base64."""
    try:
        return _assets.unpacked(text)
    except (ValueError, OSError):
        return gzip.decompress(base64.b64decode(text)).decode()


def main() -> None:
    """Renews the pages in place."""
    for path in map(Path, sys.argv[1:]):
        path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
