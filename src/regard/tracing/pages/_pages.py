"""The pages of a trace, of how two differ, of one word in several sentences; and its widget in a notebook."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from os import PathLike
from typing import Any, TypedDict, Unpack

from regard.core.errors import InputError
from regard.models import Kind
from regard.text import Chat
from regard.tracing.comparison import difference, movement
from regard.tracing.edits import Zero, ablation, unseen_word
from regard.tracing.measures import Scalar
from regard.tracing.pages._instead import left_by
from regard.tracing.pages._names import MOST_OF_A_WIDGET, MOST_WEIGHTS
from regard.tracing.pages._next import WriteRequest, marks_of, next_of
from regard.tracing.pages._page import page_record, words_apart
from regard.tracing.pages._page_measures import head_statistics, live_measures
from regard.tracing.pages._reads import Reads
from regard.tracing.reasons import pairs_of_head
from regard.tracing.record import Trace, check_trace
from regard.tracing.run import TraceOfRun
from regard.views import (
    MOST_MB,
    HeadName,
    LiveRun,
    Page,
    Subject,
    make_widget,
    marimo_object,
    notebook_bundle,
    render_page,
)

PageHead = int | tuple[int, int] | tuple[Kind, int, int]
"""(layer, head), of every kind of attention that has it, (kind, layer, head), or a layer, with all heads."""


def page(
    self: Trace,
    *,
    values: Iterable[PageHead] = (),
    heads: Iterable[PageHead] = (),
    max_mb: float | None = MOST_MB,
    measures: Sequence[str] = (),
    of: Scalar | None = None,
    only: Iterable[PageHead] | None = None,
    all_positions: bool = False,
) -> Page:
    """The interactive page of this trace: `trace.page().html`; `write_page` puts it in a file.

    Args:
        values: heads whose values (v) the page must hold: (layer, head), for every kind of attention that has
            it, (kind, layer, head), or the number of a layer for all of its heads. A page under 8 MB holds
            the values of all heads.
        heads: heads that the page of a long text must hold. The first heads of each layer come next; of heads
            without room it has the statistics and a picture.
        max_mb: the largest size of the page, in millions of bytes; None is no limit.
        measures: measures to draw instead of the weights: "value_zeroing", "rollout", "gradient". "norm",
            norm-weighted attention, is there anyway, if it can be computed. A measure that cannot be computed
            or does not fit is left out: `Page.left_out` and the page say why.
        of: the number that "gradient" is of, as in `attention_gradients`; by default the largest logit after
            a decoder's last token.
        only: hold only these heads, with their values: a few kB of data, to show inside another page
            (`#bare`). It excludes `values`, `heads`, `measures` and `all_positions`.
        all_positions: whether to hold the vectors of all positions of the model, up to 512, and not only
            those of the text: half a MB for the default model.

    Raises:
        InputError: a head or measure does not exist, the heads do not fit, or the page cannot draw a layer
            exactly.
    """

    of_values, held = _page_heads(self, values, "values"), _page_heads(self, heads, "heads")
    # A page inside another page: these heads, and nothing else.
    if only is not None:
        if of_values or held or measures or all_positions:
            raise InputError("only must be given alone: a page of chosen heads holds nothing else.")
        names = _page_heads(self, only, "only")
        return render_page(page_record(self, names=MOST_WEIGHTS), only=names, max_mb=max_mb)
    record = page_record(self, measures, of, story=True, names=MOST_WEIGHTS, all_positions=all_positions)
    stacks = [each for each in (self.encoder, self.decoder) if each is not None]
    if all_positions and all(each.positions is None for each in stacks):
        raise InputError(f"all_positions must be left out: {self.model} adds no vectors for positions.")
    return render_page(record, values=of_values, heads=held, max_mb=max_mb)


class _PageOptions(TypedDict, total=False):
    values: Iterable[PageHead]
    heads: Iterable[PageHead]
    max_mb: float | None
    measures: Sequence[str]
    of: Scalar | None
    only: Iterable[PageHead] | None
    all_positions: bool


def write_page(self: Trace, path: str | PathLike[str], **options: Unpack[_PageOptions]) -> Page:
    """Write the interactive page, whole or not at all; the other arguments as in `page`.

    Raises:
        OutputError: the file cannot be written.
    """
    made = page(self, **options)
    made.write(path)
    return made


def difference_page(
    one: Trace, other: Trace, *, heads: Iterable[PageHead] = (), max_mb: float | None = MOST_MB
) -> Page:
    """The interactive page of how two traces differ.

    Two texts that share a word open on a front door of both: what the word looks at in each, and where it
    moves. The page has each head's Jensen-Shannon divergence, the differences of the weights, and the
    attention of both; of two texts, which tokens are partners, and how alike their words are, layer by layer.

    Args:
        one, other: as in `difference`.
        heads, max_mb: as in `Trace.page`, of both together.

    Returns:
        The page.

    Raises:
        InputError: as `difference`; or attention that a page cannot draw.
    """
    subject = Subject("compared", difference(one, other).facts())
    # Both runs have the same heads.
    held = _page_heads(one, heads, "heads")
    return render_page(page_record(one), page_record(other), subject=subject, heads=held, max_mb=max_mb)


def writing_page(
    trace: Trace,
    writing: dict[str, Any] | None,
    *,
    chat: Chat | None = None,
    heads: Iterable[PageHead] = (),
    max_mb: float | None = MOST_MB,
) -> Page:
    """The interactive page of a text that a model wrote: step by step, and as a trace's page is.

    Args:
        trace: of all that was read and written.
        writing: how it was written, see views/static/writing/steps.js; None where that is not known.
        chat: the messages that the text answers.
        heads, max_mb: as in `Trace.page`.

    Raises:
        InputError: as `Trace.page`.
    """
    record = replace(page_record(trace, story=True, names=MOST_WEIGHTS), messages=messages_of(trace, chat))
    subject = None if writing is None else Subject("writing", writing)
    return render_page(record, subject=subject, heads=_page_heads(trace, heads, "heads"), max_mb=max_mb)


def messages_of(trace: Trace, chat: Chat | None) -> list[dict[str, Any]]:
    """The messages and the answer of a chat that a decoder read, as `AttentionRecord.messages` has them.

    None where the chat is none, where its template changes what messages say, or where the trace is not of
    the chat's tokens.
    """
    if chat is None or not chat.places or trace.loaded is None or trace.decoder is None:
        return []
    known, read = trace.loaded.require_tokenizer().encode(chat), trace.decoder.encoding
    count = len(known.tokens)
    # The trace is of another text.
    if read.token_ids[:count] != known.token_ids:
        return []

    def first(place: int) -> int:
        """The first token that ends behind a place of the chat."""
        ends = (at for at, token in enumerate(known.tokens) if token.span and token.span[1] > place)
        return next(ends, count)

    messages = [
        {
            "role": role,
            "frame": first(frame),
            "first": first(begin),
            "last": first(end - 1),
            "text": chat[begin:end],
        }
        for role, frame, begin, end in chat.places
    ]
    # What was written after the chat is the answer.
    spans = [token.span for token in read.tokens[count:] if token.span]
    answer = read.texts[0][spans[0][0] : spans[-1][1]] if spans else ""
    return [*messages[:-1], messages[-1] | {"last": len(read.tokens) - 1, "text": answer}]


def senses_page(traces: Sequence[Trace], senses: dict[str, Any], *, max_mb: float | None = MOST_MB) -> Page:
    """The interactive page of a word's uses in groups, and of the attention in some of their texts.

    Args:
        traces: of the texts of the uses that `senses["traced"]` names, in its order.
        senses: the map, the groups and the lines, see views/static/senses/view.js.
        max_mb: as in `Trace.page`, of all runs together.

    Raises:
        InputError: attention that a page cannot draw.
    """
    return render_page(*map(page_record, traces), subject=Subject("senses", senses), max_mb=max_mb)


def comparison_page(
    traces: Sequence[Trace],
    word: str | Sequence[str],
    *,
    heads: Iterable[PageHead] = (),
    max_mb: float | None = MOST_MB,
) -> Page:
    """The interactive page of one word in several sentences: its movement, and each sentence's attention.

    Args:
        traces, word: as in `movement`.
        heads, max_mb: as in `Trace.page`, of all runs together.

    Returns:
        The page.

    Raises:
        InputError: as `movement`; or fewer than two texts, or attention that a page cannot draw.
    """

    if len(traces) < 2:
        raise InputError(f"texts must be two or more, to compare the word between them; got {len(traces)}.")
    moved = Subject("movement", movement(traces, word).facts())
    held = _page_heads(traces[0], heads, "heads")
    return render_page(*map(page_record, traces), subject=moved, heads=held, max_mb=max_mb)


def _page_heads(trace: Trace, heads: Iterable[PageHead], said: str = "values") -> list[HeadName]:
    """The heads that a page holds, or their values, each with its kind and counted from 0.

    Given are (layer, head), of every kind of attention that has it, (kind, layer, head), or a layer. `said`
    is the argument that messages name.
    """
    names: list[HeadName] = []
    for asked in heads:
        if isinstance(asked, int) and not isinstance(asked, bool):
            names += _heads(trace, (), asked, None, said)
        elif isinstance(asked, tuple) and len(asked) in (2, 3):
            # Without a kind: each kind that has such a head.
            *kinds, layer, head = asked
            names += _heads(trace, kinds, layer, head, said)
        else:
            raise InputError(f"{said} must be (layer, head), (kind, layer, head) or a layer; got {asked!r}.")
    return names


def _heads(trace: Trace, kinds: Sequence[Kind], layer: int, head: int | None, said: str) -> list[HeadName]:
    asked = kinds or trace.kinds
    names: list[HeadName] = []
    for kind in asked:
        try:
            number = trace.layer_index(layer, kind)
            count = trace.attention_of(number, kind).inputs.num_heads
            numbers = range(count) if head is None else [trace.head_index(head, kind, number)]
            names += [(trace.kind(kind), number, each) for each in numbers]
        except InputError as error:
            # One of several kinds may have a layer that another has not.
            if kind == asked[-1] and not names:
                raise InputError(f"{said}: {error}") from error
    return names


def writing_widget(trace: Trace, writing: dict[str, Any], chat: Chat | None = None) -> Any:
    """The view of a text that a model wrote as a widget; arguments as of `writing_page`."""
    return make_widget(_written(trace, chat), Subject("writing", writing))


def _written(trace: Trace, chat: Chat | None) -> list[LiveRun]:
    run = _live(trace)
    return [replace(run, record=replace(run.record, messages=messages_of(trace, chat)))]


def writing_bundle(trace: Trace, writing: dict[str, Any], text: str, chat: Chat | None = None) -> Any:
    """What a notebook displays of it: as `mimebundle`; `text` says what it is, in a line."""
    subject, way = Subject("writing", writing), 'written.write_page("written.html")'
    return notebook_bundle(text, lambda: _written(trace, chat), subject, way=way)


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

    subject = Subject("compared", difference(self, check_trace("against", against)).facts())
    return make_widget([_live(self, of), _live(against, of)], subject)


def mimebundle(self: Trace, include: Any = None, exclude: Any = None) -> Any:
    """What a notebook displays: the widget, or in words what to install for it."""
    del include, exclude
    return notebook_bundle(repr(self), lambda: [_live(self)], way='trace.write_page("page.html")')


def display(self: Trace) -> Any:
    """What marimo displays."""
    return marimo_object(repr(self), lambda: widget(self))


def _live(trace: Trace, of: Scalar | None = None, reads: Reads | None = None) -> LiveRun:

    # What a notebook's page asks of the model: a word unseen, pairs, or a head off.
    def check(kind: Kind, of: Mapping[str, int]) -> dict[str, Any]:
        # No other word looks at this one.
        if "unseen" in of:
            return left_by(trace, unseen_word(trace, of["unseen"])) | {"apart": words_apart(trace)}
        layer, head = of["layer"], of["head"]
        if "pairs" in of:
            return pairs_of_head(trace, layer, head, kind)
        # The head off.
        without = ablation(trace, layer, head, kind=kind)
        facts = {
            "tokens": list(without.tokens),
            "moved": without.moved.tolist(),
            "cosine": without.cosine.tolist(),
            "apart": words_apart(trace),
            "before": without.before and [asdict(each) for each in without.before],
            "after": without.after and [asdict(each) for each in without.after],
        }
        # A decoder alone also says what comes next, of which an ablation has the likeliest.
        edit = Zero("head", layer=layer, head=head, kind=kind)
        return (left_by(trace, edit) if trace.kinds == ("decoder",) else {}) | facts

    loaded = trace.loaded
    # One text and one stack: then another may be typed.
    one = loaded is not None and len(trace.kinds) == 1 and len(trace.stack(None).encoding.texts) == 1

    # Kept from text to text, so that writing on costs one token.
    reads = reads or Reads()
    is_writer = one and "decoder" in trace.kinds and loaded is not None and loaded.network.has_vocabulary_head

    def again(text: str) -> LiveRun:
        assert loaded is not None
        return _live(TraceOfRun.of_text(loaded, text), of, reads)

    def writes(text: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        return next_of(trace.require_model(), text, WriteRequest(**asked), reads)

    return LiveRun(
        record=page_record(trace, None, statistics=False, story=True, names=MOST_OF_A_WIDGET),
        statistics=lambda kind: head_statistics(trace, kind),
        check=None if trace.loaded is None else check,
        measures=live_measures(trace, of),
        again=again if one else None,
        writes=writes if is_writer else None,
        chat=marks_of(loaded.require_tokenizer()) if loaded is not None and is_writer else None,
    )
