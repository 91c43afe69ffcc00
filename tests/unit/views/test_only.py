"""A page of a few heads has their numbers, and nothing of any other."""

import re
from typing import Any

import numpy as np
import pytest

import regard
from regard.core.errors import InputError
from regard.tracing import Trace, trace_ids
from regard.views import Page
from unit.models import tiny
from unit.tracing.stacks import loaded as of_network
from unit.views.conftest import block_of, facts_of, steps_of

TEXT = "Write a poem about a man fishing on a river bank."


def _data(page: Page) -> dict[str, int]:
    """How many characters each block takes, but for the page's own script and style."""
    found = re.findall(r'id="regard-([\w-]+)">(.*?)</script>', page.html, re.DOTALL)
    return {name: len(text) for name, text in found if name not in ("script", "style")}


@pytest.fixture(scope="module")
def trace() -> Trace:
    return regard.load().trace(TEXT)


def test_holds_one_head_in_a_few_kb(trace: Trace) -> None:
    page = trace.page(only=[(5, 11)])
    data, facts = _data(page), facts_of(page)
    assert sum(data.values()) < 10_000
    assert set(data) == {
        "facts",
        *(f"encoder-5-{each}" for each in ("q", "k", "v", "q-steps", "k-steps", "v-steps")),
    }
    assert (page.held, page.heads, page.values) == ({("encoder", 5): (11,)}, "some", "some")
    [layer] = facts["kinds"]["encoder"]["layers"]
    assert (layer["layer"], layer["heads"], layer["held"], layer["v"]["heads"]) == (5, 12, [11], [11])
    assert facts["held"] == {"only": 72}
    assert {name: facts["start"][name] for name in ("layer", "head")} == {"layer": 5, "head": 11}
    for name, [values] in facts["kinds"]["encoder"]["statistics"].items():
        assert [place for place, value in enumerate(values) if value is not None] == [11], name
    [names] = facts["kinds"]["encoder"]["names"]
    assert names[:11] == [[]] * 11
    assert "story" not in facts
    assert facts["kinds"]["encoder"]["measures"] == []
    steps = steps_of(page, layer["q"]["steps"])
    q = block_of(page, layer["q"]["values"], "<i2").reshape(14, 32) * steps
    assert np.abs(q - trace.q(5, 11).numpy()).max() < 1e-3


def test_numbers_of_other_layers_and_kinds_stay_what_they_are() -> None:
    trace = trace_ids(of_network(tiny.both(), tokenizer=False), [3, 5, 7], [4, 6, 1, 2])
    facts = facts_of(trace.page(only=[("cross", 1, 0), ("decoder", 2, 4), ("cross", 1, 3)]))
    held = {
        kind: [(each["layer"], each.get("held")) for each in of["layers"]]
        for kind, of in facts["kinds"].items()
    }
    assert held == {"decoder": [(2, [4])], "cross": [(1, [0, 3])]}
    assert facts["kinds"]["decoder"]["names"] == [[[]] * 5]
    # A layer, with all its heads; and one of every kind that has it.
    assert [each.get("held") for each in facts_of(trace.page(only=[0]))["kinds"]["decoder"]["layers"]] == [
        None
    ]
    assert set(facts_of(trace.page(only=[(0, 1)]))["kinds"]) == {"encoder", "decoder", "cross"}


@pytest.mark.parametrize(
    ("only", "options", "said"),
    [
        ([], {}, "only must be at least one head, such as .5, 11.; got none"),
        ([(6, 0)], {}, "only: layer must be"),
        (["x"], {}, "only must be .layer, head., .kind, layer, head. or a layer; got 'x'"),
        (
            [(5, 11)],
            {"heads": [(0, 0)]},
            "only must be given alone: a page of chosen heads",
        ),
        (
            [(5, 11)],
            {"measures": ["rollout"]},
            "only must be given alone: a page of chosen heads",
        ),
        ([(5, 11)], {"all_positions": True}, "only must be given alone: a page of chosen heads"),
        ([5], {"max_mb": 0.01}, "max_mb must leave room for the 12 heads that are asked for"),
    ],
)
def test_says_what_is_wrong(trace: Trace, only: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        trace.page(only=only, **options)
