"""A trace in a notebook: a widget whose numbers the trace works out when somebody looks."""

from collections.abc import Mapping
from typing import Any

from regard.models import Kind
from regard.tracing.comparison import difference
from regard.tracing.edits import ablation, unseen_cosines
from regard.tracing.measures import Scalar
from regard.tracing.pages._names import MOST_OF_A_WIDGET
from regard.tracing.pages._page import page_record
from regard.tracing.pages._page_measures import head_statistics, live_measures
from regard.tracing.record import Trace, check_trace
from regard.tracing.run import TraceOfRun
from regard.views import LiveRun, make_widget, marimo_object, notebook_bundle


def writing_widget(trace: Trace, writing: dict[str, Any]) -> Any:
    """The view of a text that a model wrote as a widget; arguments as of `writing_page`."""
    return make_widget([_live(trace)], writing=writing)


def writing_bundle(trace: Trace, writing: dict[str, Any], text: str) -> Any:
    """What a notebook displays of it: as `mimebundle`; `text` says what it is, in a line."""
    return notebook_bundle(
        text,
        lambda: writing_widget(trace, writing),
        lambda: [_live(trace).record],
        way='written.write_page("written.html")',
    )


def widget(self: Trace, *, against: Trace | None = None, of: Scalar | None = None) -> Any:
    """The interactive page as a notebook widget, which asks Python for the numbers that you look at.

    Rows and measures are worked out by Python when they are looked at, so that a long text costs what is
    looked at. With a model behind the trace there is the causal check besides: see `ablation`.

    Args:
        against: another trace, of which the widget shows how it differs from this one, as `difference_page`.
        of: what weight x gradient is of, as in `attention_gradients`; by default the largest logit after a
            decoder's last token.

    Returns:
        An `anywidget.AnyWidget`. Its `address` is what is chosen, as in the address of a page: it can be read
        and set, such as `widget.address = "#layer=3&head=5"`. `close()` ends it and lets go of the trace.

    Raises:
        MissingExtraError: anywidget is not installed.
        InputError: a layer that cannot be drawn exactly, or two traces that cannot be compared.
    """
    if against is None:
        return make_widget([_live(self, of)])

    found = difference(self, check_trace("against", against)).facts()
    return make_widget([_live(self, of), _live(against, of)], difference=found)


def mimebundle(self: Trace, include: Any = None, exclude: Any = None) -> Any:
    """What a notebook displays: the widget, or in words what to install for it."""
    del include, exclude
    made: list[LiveRun] = []

    def run() -> LiveRun:
        if not made:
            made.append(_live(self))
        return made[0]

    return notebook_bundle(
        repr(self),
        lambda: make_widget([run()]),
        lambda: [run().record],
        way='trace.write_page("page.html")',
    )


def display(self: Trace) -> Any:
    """What marimo displays."""
    return marimo_object(repr(self), lambda: widget(self))


def _live(trace: Trace, of: Scalar | None = None) -> LiveRun:

    def check(kind: Kind, of: Mapping[str, int]) -> dict[str, Any]:
        if "unseen" in of:
            return {"cosine": unseen_cosines(trace, of["unseen"]).tolist()}
        found = ablation(trace, of["layer"], of["head"], kind=kind)
        tops = {
            name: None
            if of is None
            else [{"token": each.token, "probability": each.probability} for each in of]
            for name, of in (("before", found.before), ("after", found.after))
        }
        moved, cosine = found.moved.tolist(), found.cosine.tolist()
        return {"tokens": list(found.tokens), "moved": moved, "cosine": cosine, **tops}

    loaded = trace.loaded
    one = loaded is not None and len(trace.kinds) == 1 and len(trace.stack(None).encoding.texts) == 1

    def again(text: str) -> LiveRun:
        assert loaded is not None
        return _live(TraceOfRun.of_text(loaded, text), of)

    return LiveRun(
        record=page_record(trace, None, statistics=False, story=True, names=MOST_OF_A_WIDGET),
        statistics=lambda kind: head_statistics(trace, kind),
        check=None if trace.loaded is None else check,
        measures=live_measures(trace, of),
        again=again if one else None,
    )
