"""The names on a page are those that `heads` gives, of this text."""

import pytest

import regard
from regard.tracing import trace_ids
from regard.tracing.pages import _names
from regard.tracing.pages._names import MOST_OF_A_WIDGET, live_names, names_of
from unit.models import tiny
from unit.tracing.stacks import loaded as of_network
from unit.views.conftest import facts_of

SENTENCE = "The cat sat on the mat, and the dog lay on the rug."


def test_every_head_has_what_its_card_is_sure_of() -> None:
    trace = regard.load().trace(SENTENCE)
    facts, table = facts_of(trace.page()), trace.heads()
    assert facts["names"]["said"].startswith("What each head does on this text, ")
    says = {each["name"]: each["says"] for each in facts["names"]["patterns"]}
    assert says["previous"] == "Each token looks at the token just before it."
    assert all(each.endswith(".") for each in says.values())
    named = facts["kinds"]["encoder"]["names"]
    assert [len(layer) for layer in named] == [12] * 6
    assert named[0][2][0] == {"name": "previous", "effect": round(table[0, 2].best.effect, 4)}
    for card in table:
        shown = named[card.layer][card.head]
        sure = [finding for finding in card.findings if finding.low > 0.1]
        assert [(each["name"], each.get("detail", "")) for each in shown] == [
            (finding.pattern, finding.detail) for finding in sure
        ]
        assert [each["effect"] for each in shown] == sorted((each["effect"] for each in shown), reverse=True)
        assert (shown[0]["name"] if shown else "none") == card.pattern
        assert {each["name"] for each in shown} <= set(says)


def test_a_short_text_and_a_long_one_have_none_and_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = facts_of(regard.load().trace("a river bank").page())
    assert "a name needs eight" in facts["names"]["said"]
    assert facts["kinds"]["encoder"]["names"] == [[[]] * 12] * 6
    trace = regard.load().trace(SENTENCE)
    weights = 72 * len(trace.tokens) ** 2
    assert names_of(trace, weights)["kinds"]
    assert names_of(trace, weights - 1) == {"said": _names.MANY, "patterns": [], "kinds": {}}


def test_each_kind_has_its_own_patterns() -> None:
    trace = trace_ids(of_network(tiny.both(), tokenizer=False), [3, 5, 7], [4, 6, 1, 2])
    names = names_of(trace, MOST_OF_A_WIDGET)
    counts = {kind: [len(layer) for layer in layers] for kind, layers in names["kinds"].items()}
    assert counts == {
        kind: [trace.attention_of(layer, kind).inputs.num_heads for layer in trace.layers_of(kind)]
        for kind in trace.kinds
    }
    assert "alignment" in [each["name"] for each in names["patterns"]]
    # A decoder that has read its start token alone shows nothing.
    alone = trace_ids(of_network(tiny.both(), tokenizer=False), [3, 5, 7], [4])
    assert list(names_of(alone, MOST_OF_A_WIDGET)["kinds"]) == ["encoder"]


def test_a_live_page_is_told_what_each_default_pattern_looks_for() -> None:
    rules = [each["rule"] for each in live_names("decoder")["patterns"]]
    assert rules[-3:] == [{"occurrence": 0}, {"sink": True}, {"broadcast": 2}]
