"""A still replacement for the view: a picture of its first head, or a table for a long text."""

from html import escape

import numpy as np

from regard.core.errors import InputError
from regard.core.printable import excerpt
from regard.views._layer_record import LayerRecord
from regard.views._picture import HeadPicture
from regard.views._records import AttentionRecord, PageToken
from regard.views._weights import weight_rows

_STRONGEST = 10
_BLOCK = 1 << 22  # weights worked out together
_MOST_NAME = 40


def still(text: str, record: AttentionRecord, hint: str) -> str:
    """A record's first head as HTML: a picture up to 128 tokens, and beyond it the strongest weights.

    `text` says in a line what it is, and `hint` what the reader can do for more; its lines are lines. Without
    scripts, styles of its own, or anything to load.
    """
    kind = record.kinds[0]
    layer = record.layers[kind][0]
    of_queries, of_keys = record.sides(kind)
    queries, keys = (tuple(map(_name, side.tokens)) for side in (of_queries, of_keys))
    said = "" if len(record.kinds) == 1 else f"{kind}, "
    title = f"{record.model}: {said}layer {layer.layer}, head 0"
    try:
        HeadPicture.check_size(layer.queries, layer.keys)
    except InputError:
        shown = _table(title, layer, queries, keys)
    else:
        weights = weight_rows(layer, 0, np.arange(layer.queries))
        columns = keys if weights.shape[1] == len(keys) else (*keys, "sink")
        svg = HeadPicture(weights=weights, queries=queries, keys=columns, title=title).svg()
        shown = svg[svg.index("<svg") :]  # without the declaration of a file
    return f"<p><code>{escape(text)}</code><br>{'<br>'.join(map(escape, hint.splitlines()))}</p>{shown}"


def _table(title: str, layer: LayerRecord, queries: tuple[str, ...], keys: tuple[str, ...]) -> str:
    rows = "".join(
        f"<tr><td>{escape(excerpt(queries[query], _MOST_NAME))} <small>{query}</small></td>"
        f"<td>{escape(excerpt(keys[key], _MOST_NAME))} <small>{key}</small></td><td>{weight:.4f}</td></tr>"
        for weight, query, key in _strongest(layer)
    )
    return (
        f"<table><caption>{escape(title)}: its strongest weights</caption><thead><tr><th>query</th>"
        f"<th>key</th><th>weight</th></tr></thead><tbody>{rows}</tbody></table>"
    )


def _strongest(layer: LayerRecord) -> list[tuple[float, int, int]]:
    found: list[tuple[float, int, int]] = []
    step = max(1, _BLOCK // layer.keys)
    for start in range(0, layer.queries, step):
        block = np.arange(start, min(layer.queries, start + step))
        weights = weight_rows(layer, 0, block)[:, : layer.keys]
        for place in np.argsort(-weights, axis=None, kind="stable")[:_STRONGEST]:
            row, key = np.unravel_index(place, weights.shape)
            found.append((float(weights[row, key]), int(block[row]), int(key)))
    return sorted(found, key=lambda each: -each[0])[:_STRONGEST]


def _name(token: PageToken) -> str:
    # As the page writes them: WordPiece's "##ing" as it is, of others what stands in the text.
    return token.text if token.surface is None or token.text.startswith("##") else token.surface
