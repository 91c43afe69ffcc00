"""The widget without a browser: what is displayed where, and how it answers."""

import gc
import html
import json
import re
import sys
import weakref
from types import SimpleNamespace
from typing import Any

import comm
import numpy as np
import pytest

from regard import view
from regard.core.errors import InputError, MissingExtraError
from regard.views import (
    AttentionRecord,
    LiveRun,
    Subject,
    _assets,
    _widget,
    make_widget,
    notebook_bundle,
    render_page,
)
from unit.views.conftest import HEADS, LAYERS, MakeRecord, facts_of

VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def in_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a kernel does: its own function in the stub's place."""

    def create_comm(*args: Any, **options: Any) -> Any:
        return comm.DummyComm(*args, **options)

    monkeypatch.setattr(comm, "create_comm", create_comm)


@pytest.fixture
def without_anywidget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anywidget", None)
    _widget._widget_class.cache_clear()


def _bundle(record: AttentionRecord) -> Any:
    return notebook_bundle("Trace('<m>')", lambda: [LiveRun(record=record)], way='trace.write_page("p")')


def test_outside_a_notebook_there_is_text(make_record: MakeRecord) -> None:
    assert _bundle(make_record()) == {"text/plain": "Trace('<m>')"}


@pytest.mark.usefixtures("in_a_kernel")
def test_in_a_notebook_there_is_a_widget_and_a_picture(make_record: MakeRecord) -> None:
    data, _ = _bundle(make_record())
    assert set(data) == {VIEW, "text/plain", "text/html"}
    assert data["text/plain"].startswith("Trace('<m>')\n")
    for said in (data["text/plain"], html.unescape(data["text/html"])):
        assert 'trace.write_page("p")' in said
    assert "layer 0, head 0" in data["text/html"]
    assert "<m>" not in data["text/html"]
    assert "<?xml" not in data["text/html"]


@pytest.mark.usefixtures("in_a_kernel")
@pytest.mark.parametrize("asked", [True, False])
def test_who_runs_a_notebook_to_convert_it_gets_the_picture_alone(
    make_record: MakeRecord, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    parent = {"content": {"allow_stdin": asked}}
    kernel = SimpleNamespace(get_parent=lambda channel: parent)
    ipython = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=kernel))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    data, _ = _bundle(make_record())
    assert (VIEW in data) == asked
    assert "<svg" in data["text/html"]


@pytest.mark.usefixtures("in_a_kernel", "without_anywidget")
def test_without_anywidget_it_says_what_to_install(make_record: MakeRecord) -> None:
    data, _ = _bundle(make_record())
    assert "pip install anywidget" in data["text/plain"]
    assert "Trace(&#x27;&lt;m&gt;&#x27;)" in data["text/html"]
    assert "pip install anywidget" in data["text/html"]
    assert "<svg" in data["text/html"]
    with pytest.raises(MissingExtraError, match=r"pip install anywidget"):
        make_widget([LiveRun(record=make_record())])


@pytest.mark.usefixtures("in_a_kernel")
def test_what_cannot_be_drawn_says_why() -> None:
    def refused() -> Any:
        raise InputError("layer 3 has dropout")

    assert notebook_bundle("T", refused, way="") == {"text/plain": "T\nlayer 3 has dropout"}


@pytest.mark.usefixtures("in_a_kernel")
def test_a_page_of_anyones_arrays_shows_itself() -> None:
    page = view(np.full((1, 2, 3, 3), 1 / 3), ["a", "b", "c"], name="mine")
    data, _ = page._repr_mimebundle_()
    assert VIEW in data
    assert "mine: layer 0" in data["text/html"]
    assert "page.write(" in data["text/plain"]


@pytest.mark.usefixtures("in_a_kernel")
def test_of_a_long_text_there_are_the_strongest_weights() -> None:
    weights = np.full((1, 1, 150, 150), 1e-3)
    weights[0, 0, 140, 7] = 0.625
    names = [f"<t{i}>" for i in range(150)]
    data, _ = view(weights, names)._repr_mimebundle_()
    assert "<svg" not in data["text/html"]
    [first, *others] = re.findall("<tr><td>(.*?)</tr>", data["text/html"])
    assert re.sub("<.*?>", " ", first).split() == ["&lt;t140&gt;", "140", "&lt;t7&gt;", "7", "0.6250"]
    assert len(others) == 9


def test_a_closed_widget_lets_go(make_record: MakeRecord) -> None:
    run = LiveRun(record=make_record())
    widget = make_widget([run])
    gone = weakref.ref(run.record.layers["encoder"][0].q)
    del run
    widget._handle_custom_msg({"client": "c", "number": 1, "run": 0, "asks": []}, [])
    assert gone() is not None
    widget.close()
    gc.collect()
    assert gone() is None
    widget._handle_custom_msg({"client": "c", "number": 2, "run": 0, "asks": []}, [])


def test_marimo_is_handed_the_widget() -> None:
    page = view(np.full((1, 2, 3, 3), 1 / 3), ["a", "b", "c"], name="mine")
    assert type(page._display_()).__name__ == "AttentionWidget"


@pytest.mark.usefixtures("without_anywidget")
def test_without_anywidget_marimo_shows_what_to_install() -> None:
    page = view(np.full((1, 2, 3, 3), 1 / 3), ["a", "b", "c"], name="mine")
    assert "pip install anywidget" in page._display_()


def test_it_answers_a_message(make_record: MakeRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    widget = make_widget([LiveRun(record=make_record())])
    sent: list[Any] = []
    monkeypatch.setattr(widget, "send", lambda content, buffers: sent.append((content, buffers)))
    asks = [{"what": "row", "kind": "encoder", "layer": 1, "head": 2, "query": query} for query in (3, 5)]
    widget._handle_custom_msg({"client": "c", "number": 7, "run": 0, "asks": asks}, [])
    [(content, buffers)] = sent
    assert (content["client"], content["number"]) == ("c", 7)
    assert content["answers"] == [{"buffers": 1}, {"buffers": 1}]
    assert [np.frombuffer(each, "<f4").sum() for each in buffers] == [pytest.approx(1)] * 2


def test_it_reads_another_text_where_a_model_stands_behind_it(
    make_record: MakeRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    def again(text: str) -> LiveRun:
        if not text:
            raise InputError("text must not be empty")
        return LiveRun(record=make_record(text=text), again=again)

    def told(widget: Any) -> Any:
        return json.loads(widget.facts)["runs"][0]["facts"]

    assert told(make_widget([LiveRun(record=make_record())]))["typed"] is False
    widget = make_widget([LiveRun(record=make_record(), again=again)])
    assert told(widget)["typed"] is True
    sent: list[Any] = []
    monkeypatch.setattr(widget, "send", sent.append)
    widget._handle_custom_msg({"client": "c", "text": ""}, [])
    assert sent == [{"client": "c", "refused": "text must not be empty"}]
    assert told(widget)["sides"]["encoder"]["text"] == "one text"
    widget._handle_custom_msg({"client": "c", "text": "another"}, [])
    assert told(widget)["sides"]["encoder"]["text"] == "another"
    widget.close()
    assert widget.again is None


@pytest.mark.parametrize("kind", ["movement", "training", "senses"])
def test_the_widget_of_a_page_has_its_subject_but_no_steps(kind: Any, make_record: MakeRecord) -> None:
    records = [make_record(text=text) for text in ("first", "last")]
    page = render_page(*records, subject=Subject(kind, {"steps": [0, 1]}))
    shown, facts = facts_of(page), [run["facts"] for run in json.loads(page.widget().facts)["runs"]]
    is_film = kind == "training"
    assert [run["sides"]["encoder"]["text"] for run in facts] == ["first", "last"][is_film:]
    assert shown[kind] == {"steps": [0, 1]}
    assert facts[0].get(kind) == (None if is_film else shown[kind])
    assert facts[0]["start"] == shown["start"]


def test_its_state_is_text(make_record: MakeRecord) -> None:
    widget = make_widget([LiveRun(record=make_record())])
    [run] = json.loads(widget.facts)["runs"]
    assert len(run["facts"]["kinds"]["encoder"]["layers"]) == LAYERS
    assert run["facts"]["kinds"]["encoder"]["layers"][0]["heads"] == HEADS
    assert widget.address == ""


def test_the_module_stands_alone() -> None:
    module = _assets.module()
    assert re.search(r"export\{[\w$]+ as default\};\s*$", module)
    assert not re.search(r"\bimport\b[^(.]", module)


def test_the_style_goes_by_the_cell() -> None:
    """No rule is by the window's size: neither a length, nor a condition."""
    css = json.loads(_assets.module().splitlines()[0].removeprefix("const STYLE = ").removesuffix(";"))
    # The one height of a window is the page's own, in whose place a cell has another.
    assert re.findall(r"[^;{]*\d(?:vh|vw)\b", css) == ["--regard-height: 100vh"]
    assert css.index("--regard-height: 100vh") < css.index("--regard-height: 760px")
    assert "@media screen" not in css
    assert "@container regard (max-width: 760px){" in css
    assert "@container regard (min-width: 761px){" in css
    assert "@media(forced-colors:active)" in css
    assert css.count("{") == css.count("}")
