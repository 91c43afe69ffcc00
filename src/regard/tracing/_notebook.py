"""A trace in a notebook: a widget whose numbers the trace works out when somebody looks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from regard.tracing._measures import Scalar
from regard.views import AttentionRecord, make_widget, marimo_object, notebook_bundle

if TYPE_CHECKING:
    from regard.tracing._kinds import Kind
    from regard.tracing._trace import Trace


def widget(self: "Trace", *, measures: Sequence[str] = (), of: Scalar | None = None) -> Any:
    """The interactive view as a widget: what a notebook shows for a trace.

    Rows are worked out by Python when they are looked at, so that a long text costs what is looked at. With a
    model behind the trace there is the causal check besides: see `ablation`.

    Args:
        measures, of: what can be drawn in the place of the weights too, as in `page`.

    Returns:
        An `anywidget.AnyWidget`. Its `address` is what is chosen, as in the address of a page: it can be read
        and set, such as `widget.address = "#layer=3&head=5"`.

    Raises:
        MissingExtraError: anywidget is not installed: `pip install 'regard[notebook]'`.
        InputError: a layer that cannot be drawn exactly, or a measure that there is not.
    """
    return _widget_of(self, _record(self, measures, of))


def mimebundle(self: "Trace", include: Any = None, exclude: Any = None) -> Any:
    """What a notebook displays: the widget, or in words what to install for it."""
    del include, exclude
    made: list[AttentionRecord] = []

    def record() -> AttentionRecord:
        if not made:
            made.append(_record(self))
        return made[0]

    return notebook_bundle(repr(self), lambda: _widget_of(self, record()), lambda: [record()])


def display(self: "Trace") -> Any:
    """What marimo displays."""
    return marimo_object(repr(self), self.widget)


def _record(trace: "Trace", measures: Sequence[str] = (), of: Scalar | None = None) -> AttentionRecord:
    from regard.tracing._page import page_record

    return page_record(trace, measures, of, statistics=False)


def _widget_of(trace: "Trace", record: AttentionRecord) -> Any:
    from regard.tracing._page_extras import head_statistics

    def check(kind: "Kind", layer: int, head: int) -> dict[str, Any]:
        found = trace.ablation(layer, head, kind=kind)
        tops = {
            name: None
            if of is None
            else [{"token": each.token, "probability": each.probability} for each in of]
            for name, of in (("before", found.before), ("after", found.after))
        }
        moved, cosine = found.moved.tolist(), found.cosine.tolist()
        return {"tokens": list(found.tokens), "moved": moved, "cosine": cosine, **tops}

    return make_widget(
        [record],
        statistics=lambda kind: head_statistics(trace, kind),
        check=None if trace.loaded is None else check,
    )
