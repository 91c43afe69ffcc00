"""The page that searches a server's concordance."""

import re

from regard.views import _assets
from regard.views._assets import digest
from regard.views._blocks import as_json


def usages_page(index: str) -> str:
    """The HTML of a page that asks its server, at v1/usages/search, for the uses of words.

    Args:
        index: the name of the index, which the page shows.

    Example:
        >>> "connect-src 'self'" in usages_page("brown")
        True
    """
    style, script = _assets.usages_style(), _assets.usages_script()
    parts = {
        "policy": (
            f"default-src 'none'; script-src '{digest(script)}'; style-src '{digest(style)}'; "
            "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"
        ),
        "style": style,
        "script": script,
        "facts": as_json({"index": index}),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _assets.read("usages/page.html"))
