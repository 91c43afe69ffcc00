"""The page in a notebook's cell, and what a notebook shows where it cannot be."""

import html
import json
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from regard.core.errors import InputError, MissingExtraError
from regard.views import _assets
from regard.views._kernel import Check, Kernel, Statistics, widget_facts
from regard.views._movement import Movement
from regard.views._picture import HeadPicture
from regard.views._records import AttentionRecord, PageToken
from regard.views._weights import weight_rows

_HINT = "To see it here, install anywidget and run the cell again: pip install 'regard[notebook]'"


def make_widget(
    records: Sequence[AttentionRecord],
    *,
    movement: Movement | None = None,
    statistics: Statistics | None = None,
    check: Check | None = None,
) -> Any:
    """The interactive view as a widget of a notebook, whose numbers Python works out when they are looked at.

    Args:
        records: What to show: one run, or with a movement one of each text.
        movement: One word in all of them.
        statistics: The first run's statistics by kind, asked for when the model view is opened; by default
            the record's own.
        check: What becomes of the first run without a head; None where no model stands behind it.

    Returns:
        An `anywidget.AnyWidget`; its trait `address` is what is chosen, as in a page's address.

    Raises:
        MissingExtraError: anywidget is not installed.
    """
    runs = widget_facts(records, movement, check=check is not None)
    kernel = Kernel(records, statistics=statistics, check=check)
    widget = _widget_class()(facts=json.dumps({"runs": runs}, allow_nan=False, separators=(",", ":")))

    def on_message(_: Any, content: dict[str, Any], __: Any) -> None:
        said, buffers = kernel.answers(content["run"], content["asks"])
        told = {"client": content["client"], "number": content["number"], "answers": said}
        widget.send(told, buffers)

    widget.on_msg(on_message)
    return widget


@cache
def _widget_class() -> Any:
    try:
        import anywidget
        import traitlets
    except ImportError as error:
        raise MissingExtraError(
            "a widget needs anywidget, which is not installed: pip install 'regard[notebook]'"
        ) from error

    class AttentionWidget(anywidget.AnyWidget):
        """The interactive view of attention; `address` holds what is chosen in it."""

        _esm = _assets.module()
        facts = traitlets.Unicode().tag(sync=True)
        address = traitlets.Unicode().tag(sync=True)

    return AttentionWidget


def notebook_bundle(
    text: str, widget: Callable[[], Any], records: Callable[[], Sequence[AttentionRecord]]
) -> dict[str, Any] | tuple[dict[str, Any], dict[str, Any]]:
    """What a notebook displays of something, by MIME type: the widget, with a picture for where it cannot be.

    The picture is of the first head, for nbconvert and for pages that show notebooks without a kernel. Where
    anywidget is not installed, it stands below a line that says so. Outside a notebook there is text alone.

    Args:
        text: What it is, in a line.
        widget: Makes the widget; raises an InputError where it cannot be drawn exactly.
        records: What the picture is of, asked for after the widget.
    """
    if not _in_a_notebook():
        return {"text/plain": text}
    try:
        made = widget()
    except MissingExtraError:
        made = None
    except InputError as error:
        return {"text/plain": f"{text}\n{error}"}
    picture = _picture(records()[0])
    if made is None:
        words = f"<p><code>{html.escape(text)}</code><br>{html.escape(_HINT)}</p>"
        return {"text/plain": f"{text}\n{_HINT}", "text/html": words + (picture or "")}
    data, metadata = made._repr_mimebundle_()
    data["text/plain"] = text
    if picture is not None:
        data["image/svg+xml"] = picture
    return data, metadata


def marimo_object(text: str, widget: Callable[[], Any]) -> Any:
    """What marimo displays of something: the widget, or in words why there is none. Arguments as above."""
    try:
        return widget()
    except (MissingExtraError, InputError) as error:
        return f"{text}\n{error}"


def _in_a_notebook() -> bool:
    """Whether widgets have somebody to talk to: a kernel replaces the stub of `create_comm`."""
    try:
        import comm
    except ImportError:
        return False
    return comm.create_comm.__module__ != "comm"


def _picture(record: AttentionRecord) -> str | None:
    """The first head as an SVG document; None where there are more tokens than can be read."""
    kind = record.kinds[0]
    layer = record.layers[kind][0]
    of_queries, of_keys = record.sides(kind)
    try:
        HeadPicture.check_size(layer.queries, layer.keys)
    except InputError:
        return None
    weights = weight_rows(layer, 0, np.arange(layer.queries))
    keys = tuple(map(_name, of_keys.tokens))
    said = "" if len(record.kinds) == 1 else f"{kind}, "
    return HeadPicture(
        weights=weights,
        queries=tuple(map(_name, of_queries.tokens)),
        keys=keys if weights.shape[1] == len(keys) else (*keys, "sink"),
        title=f"{record.model}: {said}layer {layer.layer}, head 0",
    ).svg()


def _name(token: PageToken) -> str:
    # As the page writes them: WordPiece's "##ing" as it is, of others what stands in the text.
    return token.text if token.surface is None or token.text.startswith("##") else token.surface
