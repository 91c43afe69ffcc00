"""config.json: what is refused, what is converted, and that nothing is passed over."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import BertConfig, PretrainedConfig

from regard.checkpoints import DEFAULT_MODEL, IGNORED_FIELDS, find, read_config
from regard.core.errors import CheckpointError
from unit.checkpoints.stored import config


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "no such file"),
        (b"", r"not valid JSON \(Expecting value"),
        (b'{"a": 1,}', "not valid JSON"),
        (b'{"a": "\xff"}', "not valid UTF-8"),
        (b"\xef\xbb\xbf{}", r"not valid JSON \(Unexpected UTF-8 BOM"),
        (b"[1]", "the JSON must be an object; got list"),
        (b"null", "the JSON must be an object; got null"),
        (b'{"a": 1, "a": 1}', r"\(the key 'a' occurs twice\)"),
        (b'{"a": {"b": 1, "b": 2}}', r"\(the key 'b' occurs twice\)"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": -Infinity}', "-Infinity is not a JSON number"),
        (b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "not valid JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not valid JSON"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_is_not_one_strict_object(tmp_path: Path, data: bytes | None, message: str) -> None:
    if data is not None:
        (tmp_path / "config.json").write_bytes(data)
    with pytest.raises(CheckpointError, match=rf"\A{re.escape(str(tmp_path))}.config\.json: [^\n]*{message}"):
        read_config(tmp_path)


def test_a_config_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    with pytest.raises(CheckpointError, match=r"config\.json: cannot be read \(.+\)"):
        read_config(tmp_path)


def test_require() -> None:
    fields = config(i=3, f=0.5, s="gelu", b=True, l=[1], d={"x": 1})
    assert fields.require("i", int) == 3
    assert fields.require("f", float) == 0.5
    assert fields.require("s", str) == "gelu"
    assert fields.require("b", bool) is True
    assert fields.require("l", list) == [1]
    assert fields.require("d", dict) == {"x": 1}


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (True, int, r"must be a whole number; got True"),
        (True, float, r"must be a finite number; got True"),
        (1, bool, r"must be true or false; got 1"),
        (12.0, int, r"must be a whole number; got 12\.0"),
        ("12", int, r"must be a whole number; got '12'"),
        (12, str, r"must be a text; got 12"),
        (None, int, r"must be a whole number; got None"),
        ([], dict, r"must be a table; got \[\]"),
        (1e999, float, r"must be a finite number; got inf"),
        (10**400, float, r"must be a finite number; got 10+\.\.\."),
    ],
)
def test_the_wrong_type(value: object, kind: type[Any], message: str) -> None:
    for ask in (lambda: config(x=value).require("x", kind), lambda: config(x=value).get("x", kind, kind())):
        with pytest.raises(CheckpointError, match=rf"config\.json: the field 'x' {message}"):
            ask()


def test_a_whole_number_is_a_float() -> None:
    value = config(dropout=0).require("dropout", float)
    assert isinstance(value, float)
    assert value == 0.0


def test_get() -> None:
    assert config().get("x", int, 7) == 7
    assert config().get("x", int, None) is None
    assert config(x=8).get("x", int, None) == 8
    assert config(x=None).get("x", int, None) is None


def test_expect() -> None:
    assert config(p="absolute").expect("p", ("absolute",), "absolute") == "absolute"
    assert config().expect("p", ("absolute",), "absolute") == "absolute"
    assert config(p=None).expect("p", (None, "x"), "x") is None
    assert config(p=1.0).expect("p", (1,), 1) == 1


def test_done_lists_every_unread_field() -> None:
    fields = config(zoom=2, hidden_size=4, alibi=True, use_cache=True, eps=1.0, p="x")
    fields.require("hidden_size", int)
    fields.get("eps", float, 1.0)
    fields.expect("p", ("x",), "x")
    with pytest.raises(
        CheckpointError, match=r"may change the result: alibi = True, zoom = 2; a field that changes nothing"
    ):
        fields.done()
    fields.done(IGNORED_FIELDS | {"alibi", "zoom"})


@pytest.mark.parametrize(
    ("field", "inert", "other"),
    [
        ("is_decoder", False, True),
        ("is_encoder_decoder", False, True),
        ("add_cross_attention", False, True),
        ("cross_attention_hidden_size", None, 64),
        ("pruned_heads", {}, {"0": [1]}),
        ("tie_encoder_decoder", False, True),
    ],
)
def test_fields_that_are_inert_at_one_value(field: str, inert: object, other: object) -> None:
    config(**{field: inert}).done()
    with pytest.raises(CheckpointError, match=f"may change the result: {field} = "):
        config(**{field: other}).done()
    asked = config(**{field: other})
    asked.expect(field, (other,), other)
    asked.done()


def test_absent_means_the_default_and_null_means_none() -> None:
    fields = config(given=7, nothing=None, wrong="7")
    assert fields.get_or_null("given", int, 4) == 7
    assert fields.get_or_null("nothing", int, 4) is None
    assert fields.get_or_null("absent", int, 4) == 4
    assert fields.get_or_null("absent", int, None) is None
    assert fields.get_or_null("given", float, 4.0) == 7.0
    with pytest.raises(CheckpointError, match="'wrong' must be a whole number; got '7'"):
        fields.get_or_null("wrong", int, 4)
    fields.done()


@pytest.mark.parametrize("value", [1, [1, 2]], ids=str)
def test_the_token_that_ends_a_text_may_be_several(value: object) -> None:
    config(eos_token_id=value).done()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tie_word_embeddings", True),
        ("tie_word_embeddings", False),
        *((name, 1) for name in ("auto_map", "quantization_config", "pad_token_id", "hidden_dropout_prob")),
    ],
)
def test_what_may_change_the_result_is_not_inert(field: str, value: object) -> None:
    with pytest.raises(CheckpointError, match=f"may change the result: {field} = {value}"):
        config(**{field: value}).done()


def test_what_transformers_adds_to_any_config_is_inert() -> None:
    config(**json.loads(PretrainedConfig().to_json_string(use_diff=False))).done()


# Objects and lists inside


ROPE = {
    "full_attention": {"rope_type": "linear", "factor": 8, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
}


def test_an_object_inside_is_read_like_the_file() -> None:
    fields = config(rope_parameters=ROPE)
    rope = fields.sub("rope_parameters")
    assert rope is not None
    assert list(rope.values) == ["full_attention", "sliding_attention"]
    whole = rope.sub("full_attention")
    assert whole is not None
    assert whole.expect("rope_type", ("default", "linear"), "default") == "linear"
    assert (whole.require("factor", float), whole.require("rope_theta", float)) == (8.0, 1e6)
    with pytest.raises(
        CheckpointError, match=r"may change the result: rope_parameters\.sliding_attention = \{.*\}; a field"
    ):
        fields.done()
    local = rope.sub("sliding_attention")
    assert local is not None
    local.expect("rope_type", ("default",), "default")
    with pytest.raises(
        CheckpointError,
        match=r"result: rope_parameters\.sliding_attention\.rope_theta = 10000\.0; a field that changes",
    ):
        fields.done()
    local.require("rope_theta", float)
    fields.done()


def test_the_same_object_is_the_same_reading() -> None:
    fields = config(r={"a": 1})
    first, second = fields.sub("r"), fields.sub("r")
    assert first is second is not None


@pytest.mark.parametrize("values", [{}, {"r": None}], ids=str)
def test_no_object_inside(values: dict[str, object]) -> None:
    fields = config(**values)
    assert fields.sub("r") is None
    fields.done()


def test_errors_name_the_path() -> None:
    rope = config(r={"inner": {"kind": "yarn", "n": 1.5}, "list": 3}).sub("r")
    assert rope is not None
    inner = rope.sub("inner")
    assert inner is not None
    for ask, message in (
        (lambda: inner.require("factor", float), r"the field 'r\.inner\.factor' must be a finite number"),
        (lambda: inner.require("n", int), r"the field 'r\.inner\.n' must be a whole number; got 1\.5"),
        (lambda: inner.expect("kind", ("linear",), "linear"), r"the field 'r\.inner\.kind' must be 'linear'"),
        (lambda: rope.sub("list"), r"the field 'r\.list' must be a table; got 3"),
        (lambda: rope.list_of("list", str, None), r"the field 'r\.list' must be a list; got 3"),
    ):
        with pytest.raises(CheckpointError, match=rf"config\.json: {message}"):
            ask()


def test_nothing_inside_an_object_is_inert_unless_it_says_so() -> None:
    fields = config(text_config={"use_cache": True, "is_decoder": False})
    text = fields.sub("text_config")
    assert text is not None
    with pytest.raises(
        CheckpointError, match=r"text_config\.is_decoder = False, text_config\.use_cache = True"
    ):
        fields.done()
    text.done()
    fields.done()


def test_lists_of_one_type() -> None:
    fields = config(layer_types=["full", "sliding"], empty=[], nothing=None)
    assert fields.list_of("layer_types", str, None) == ["full", "sliding"]
    assert fields.list_of("empty", str, ["x"]) == []
    assert fields.list_of("absent", str, ["x"]) == ["x"]
    assert fields.list_of("absent", str, None) is None
    assert fields.list_of("nothing", str, None) is None
    with pytest.raises(CheckpointError, match=r"'nothing' must be a list; got None"):
        fields.list_of("nothing", str, ["x"])
    fields.done()


def near_miss() -> None:
    fields = config(layer_norm_epz=1.0)
    fields.get("layer_norm_eps", float, 1e-12)
    fields.done()


ONLY = "the field 'p' must be {}, all that regard supports; {}$"


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda: config().require("x", int),
            r"config\.json: the field 'x' must be a whole number; it is miss",
        ),
        (lambda: config(p="y").expect("p", ("x",), "x"), ONLY.format("'x'", "got 'y'")),
        (lambda: config(p=1).expect("p", (True,), True), ONLY.format("True", "got 1")),
        (lambda: config(p=0).expect("p", (False,), False), ONLY.format("False", "got 0")),
        (lambda: config(p=None).expect("p", ("x",), "x"), ONLY.format("'x'", "got None")),
        (lambda: config().expect("p", ("x",), "y"), ONLY.format("'x'", "it is missing, which means 'y'")),
        (near_miss, r"layer_norm_epz = 1\.0 \(did you mean layer_norm_eps\?\); a"),
        (lambda: config(**{f"x{i:02}": 0 for i in range(25)}).done(), r"x19 = 0 and 5 more; .{0,60}$"),
        (lambda: config(x=["a", 7]).list_of("x", str, None), r"the field 'x\[1\]' must be a text; got 7"),
        (lambda: config(x=["a", None]).list_of("x", str, None), r"'x\[1\]' must be a text; got None"),
    ],
)
def test_refused(ask: Callable[[], object], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        ask()


BERT_FIELDS = {
    "attention_probs_dropout_prob",
    "hidden_act",
    "hidden_dropout_prob",
    "hidden_size",
    "intermediate_size",
    "layer_norm_eps",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
    "pad_token_id",
    "type_vocab_size",
    "vocab_size",
}


def test_what_is_left_of_a_bert_config_is_the_networks() -> None:
    fields = json.loads(BertConfig().to_json_string(use_diff=False))
    config(**fields).done(IGNORED_FIELDS | BERT_FIELDS | {"tie_word_embeddings"})


def test_no_field_of_a_network_is_inert() -> None:
    assert not IGNORED_FIELDS & BERT_FIELDS


def test_the_default_model() -> None:
    fields = read_config(find(DEFAULT_MODEL).folder)
    assert fields.require("hidden_size", int) == 384
    assert fields.require("layer_norm_eps", float) == 1e-12
    with pytest.raises(CheckpointError, match="position_embedding_type = 'absolute'"):
        fields.done(IGNORED_FIELDS | BERT_FIELDS)
    fields.done(IGNORED_FIELDS | BERT_FIELDS | {"position_embedding_type"})
