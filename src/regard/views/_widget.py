"""The page in a notebook's cell, and what a notebook shows where it cannot be."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from html import escape
from typing import Any

import numpy as np

from regard.core.errors import InputError, MissingExtraError, RegardError
from regard.core.extras import missing
from regard.core.wording import excerpt, visible
from regard.views import _assets
from regard.views._blocks import Facts
from regard.views._kernel import Kernel, widget_facts
from regard.views._layer_record import LayerRecord, weight_rows
from regard.views._live import LiveRun
from regard.views._picture import HeadPicture
from regard.views._records import AttentionRecord, PageToken, Subject

_HINT = "To see it here, install anywidget and run the cell again: pip install anywidget"
_STRONGEST = 10
_BLOCK = 1 << 22  # weights worked out together
_MOST_NAME = 40


def make_widget(runs: Sequence[LiveRun], subject: Subject | None = None) -> Any:
    """The interactive view as a notebook widget; Python computes its numbers on demand.

    Args:
        runs: What to show: one run, or those that the subject is of.
        subject: What it is about besides; not a training.

    Returns:
        An `anywidget.AnyWidget`; its trait `address` is what is chosen, as in a page's address. Its `close()`
        ends the view and lets go of the runs.

    Raises:
        MissingExtraError: anywidget is not installed.
    """
    widget = _widget_class()(facts=_packed(widget_facts(runs, subject)))
    widget.kernel, widget.again, widget.writes = Kernel(runs), runs[0].again, runs[0].writes
    return widget


def _packed(runs: Sequence[Facts]) -> str:
    return json.dumps({"runs": runs}, allow_nan=False, separators=(",", ":"))


@cache
def _widget_class() -> Any:
    try:
        # Only where a widget is made: notebooks need not have it.
        import anywidget
        import traitlets
    except ImportError as error:
        raise missing("a widget needs", error, "anywidget") from error

    class AttentionWidget(anywidget.AnyWidget):
        """The interactive view of attention; `address` holds what is chosen in it."""

        _esm = _assets.module()
        facts = traitlets.Unicode().tag(sync=True)
        address = traitlets.Unicode().tag(sync=True)
        kernel: Kernel | None = None
        again: Callable[[str], LiveRun] | None = None
        writes: Callable[[str, dict[str, Any]], Mapping[str, Any]] | None = None

        def __init__(self, **traits: Any) -> None:
            super().__init__(**traits)
            self.on_msg(type(self)._on_message)

        def _on_message(self, content: dict[str, Any], _: Any) -> None:
            if self.kernel is None:
                return
            # Another text, or a question about this one.
            if "text" in content and self.again is not None:
                self._read(content, self.again)
                return
            said, buffers = self.kernel.answers(content["run"], content["asks"])
            reply = {"client": content["client"], "number": content["number"], "answers": said}
            self.send(reply, buffers)

        def _read(self, content: dict[str, Any], again: Callable[[str], LiveRun]) -> None:
            """Shows another text, or says what comes next; or why it cannot be read."""
            text, client = content["text"], content["client"]
            try:
                if "write" in content and self.writes is not None:
                    self.send({"client": client, "written": self.writes(text, content["write"])})
                    return
                # The model reads it here.
                run = again(text)
                facts = _packed(widget_facts([run]))
            except RegardError as error:
                self.send({"client": client, "refused": str(error)})
                return
            self.kernel, self.facts = Kernel([run]), facts

        def close(self) -> None:
            """Ends the view wherever it is shown, and lets go of the runs behind it."""
            self.kernel = self.again = self.writes = None
            super().close()

    return AttentionWidget


def notebook_bundle(
    text: str, runs: Callable[[], Sequence[LiveRun]], subject: Subject | None = None, *, way: str
) -> dict[str, Any] | tuple[dict[str, Any], dict[str, Any]]:
    """What a notebook displays, by MIME type: the widget, and its replacement where there is no kernel.

    That is the first head, as a picture or as its strongest weights, and how to write the interactive file:
    for nbconvert, for pages that show notebooks without a kernel, and where anywidget is not installed.
    Outside a notebook there is text alone.

    Args:
        text: What it is, in a line.
        runs: What the widget shows, and the picture is of; an InputError where it cannot be drawn exactly.
        subject: As of `make_widget`.
        way: The code that writes the interactive file.
    """
    # IPython in a terminal asks for the same bundle.
    if not _in_a_notebook():
        return {"text/plain": text}
    hint = f"The interactive view as a file, which needs no kernel: {way}"
    data: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    try:
        # Also where nobody can click: the still picture needs the record.
        shown = runs()
        if _is_interactive():
            data, metadata = make_widget(shown, subject)._repr_mimebundle_()
    except MissingExtraError:
        hint = f"{_HINT}\n{hint}"
    except InputError as error:
        return {"text/plain": f"{text}\n{error}"}
    data["text/plain"] = f"{text}\n{hint}"
    data["text/html"] = _still(text, shown[0].record, hint)
    return data, metadata


def marimo_object(text: str, widget: Callable[[], Any]) -> Any:
    """What marimo displays: the widget, or why there is none. Arguments as above."""
    try:
        return widget()
    except (MissingExtraError, InputError) as error:
        return f"{text}\n{error}"


def _in_a_notebook() -> bool:
    """Whether a kernel can answer widgets: it replaces the stub of `create_comm`."""
    try:
        import comm
    except ImportError:
        return False
    return comm.create_comm.__module__ != "comm"


def _is_interactive() -> bool:
    """Whether a person runs the cell. Who runs notebooks to convert them does not let cells ask for input.

    The widget that they would keep asks a kernel which is no more, and its surroundings from the network.
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    parent = getattr(getattr(shell, "kernel", None), "get_parent", None)
    asked = parent("shell") if callable(parent) else {}
    return bool(asked.get("content", {}).get("allow_stdin", True))


def _still(text: str, record: AttentionRecord, hint: str) -> str:
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
        # One more where the head has a sink.
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
    strongest: list[tuple[float, int, int]] = []
    step = max(1, _BLOCK // layer.keys)
    for start in range(0, layer.queries, step):
        block = np.arange(start, min(layer.queries, start + step))
        weights = weight_rows(layer, 0, block)[:, : layer.keys]
        for place in np.argsort(-weights, axis=None, kind="stable")[:_STRONGEST]:
            row, key = np.unravel_index(place, weights.shape)
            strongest.append((float(weights[row, key]), int(block[row]), int(key)))
    return sorted(strongest, key=lambda each: -each[0])[:_STRONGEST]


def _name(token: PageToken) -> str:
    # As the page writes them: WordPiece's "##ing" as it is, of others what stands in the text.
    seen = token.text if token.surface is None or token.text.startswith("##") else token.surface
    return token.bytes or visible(seen)
