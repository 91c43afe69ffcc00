"""Plain arguments: what passes, and that all else is refused by name."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
import pytest
import torch

from regard.core.arguments import (
    BelowOne,
    Count,
    Finite,
    Limited,
    Natural,
    NotNegative,
    Positive,
    Share,
    built,
    check_fields,
    check_function,
    index_of,
    limit_of,
    names,
    number,
    numbers,
    one_of,
    plain,
    whole,
    wholes,
)
from regard.core.errors import InputError

NOTHING = (None, "a", "2", b"2", [], [2], (), {}, object(), slice(2), 1j, torch.zeros(2), np.zeros(2))
"""What is no number."""


def test_whole_numbers() -> None:
    for value in (2, 5, np.int64(3), torch.tensor(4)):
        assert whole("k", value, least=2, most=5) == int(value)
        assert type(whole("k", value, least=2)) is int
    for bad in (*NOTHING, True, False, 2.0, math.nan, math.inf, np.float64(3), torch.tensor(3.0), 1, 6, -3):
        with pytest.raises(InputError, match=r"^k must be a whole number, from 2 to 5; got "):
            whole("k", bad, least=2, most=5)
    with pytest.raises(InputError, match=r"^k must be a whole number, at least 2; got 1\.$"):
        whole("k", 1, least=2)
    assert whole("k", 10**30, least=2) == 10**30


def test_numbers() -> None:
    for value in (2, -0.5, np.float32(0.5), torch.tensor(0.5), 10**300):
        assert number("x", value) == float(value)
    bad: Any
    for bad in (*NOTHING, True, math.nan, math.inf, -math.inf, 10**400, torch.tensor(math.nan)):
        with pytest.raises(InputError, match=r"^x must be a finite number; got "):
            number("x", bad)


def test_functions() -> None:
    check_function("metric", len, "of one thing")
    check_function("progress", None, "of two", optional=True)
    for bad in (None, 1, "len", [len]):
        with pytest.raises(InputError, match=r"^metric must be a function, of one thing; got "):
            check_function("metric", bad, "of one thing")
    with pytest.raises(InputError, match="progress must be a function"):
        check_function("progress", False, "of two", optional=True)


def test_names() -> None:
    assert one_of("kind", "bpe", ("bpe", "unigram")) == "bpe"
    for bad in (*NOTHING, "", "xyz"):
        with pytest.raises(InputError, match=r"^kind must be one of bpe, unigram; got [^?]*$"):
            one_of("kind", bad, ("bpe", "unigram"))
    with pytest.raises(LookupError, match=r"got 'bp'\. Did you mean 'bpe'\? Try another\.$"):
        one_of("kind", "bp", ("bpe", "unigram"), hint=" Try another.", error=LookupError)


def test_places() -> None:
    assert [index_of("head", each, 3) for each in (0, -3, 2, np.int64(-1))] == [0, 0, 2, 2]
    for bad in (*NOTHING, 3, -4, 1.0, "1"):
        with pytest.raises(
            InputError, match=r"^head must be from 0 to 2, or negative to count from the end; got "
        ):
            index_of("head", bad, 3)
    with pytest.raises(
        InputError, match=r"^query must be a token from 0 to 2, .* the end, or a word; got 3\. Or"
    ):
        index_of("query", 3, 3, what="a token ", also=", or a word", hint=" Or so.")


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: float = 0.5
    betas: tuple[float, float] = (0.9, 0.98)


@dataclass(frozen=True, kw_only=True)
class Outer:
    name: str
    kind: Literal["cosine", "linear"] | None = None
    files: tuple[str, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)
    inner: Inner = field(default_factory=Inner)
    most: int | None = 3
    shuffles: bool = False


def test_a_table_becomes_what_the_code_declares() -> None:
    given = {
        "name": 1,
        "kind": "linear",
        "files": "a",
        "more": {"x": [1]},
        "most": None,
        "inner": {"rate": 2},
    }
    assert built("", given, Outer) == Outer(
        name="1", kind="linear", files=("a",), more={"x": [1]}, inner=Inner(rate=2.0), most=None
    )
    assert built("", {"name": "a", "inner": Inner(rate=2.0)}, Outer).inner == Inner(rate=2.0)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "run.name must be given."),
        ([], "run must be a table of settings; got []."),
        ({"kind": "linea"}, "run.kind must be one of cosine, linear; got 'linea'. Did you mean 'linear'?"),
        ({"kinds": "linear"}, "run.kinds is not a setting; did you mean run.kind?"),
        ({"files": 3}, "run.files must be a list; got 3."),
        ({"more": "x"}, "run.more must be a table; got 'x'."),
        ({"most": True}, "run.most must be a whole number; got True."),
        ({"most": 3.0}, "run.most must be a whole number; got 3.0."),
        ({"shuffles": 1}, "run.shuffles must be true or false; got 1."),
        ({"shuffles": None}, "run.shuffles must be true or false; got None."),
        ({"inner": {"rate": "x" * 99}}, f"run.inner.rate must be a finite number; got '{'x' * 56}...."),
        ({"inner": {"betas": [0.9]}}, "run.inner.betas must be a list of 2; got [0.9]."),
        ({"inner": {"betas": [0.9, "b"]}}, "run.inner.betas must be a finite number; got 'b'."),
        ({"inner": {"zzz": 1}}, "run.inner.zzz is not a setting; there are run.inner.betas, run.inner.rate."),
    ],
    ids=str,
)
def test_what_is_refused_and_how_it_is_said(given: Any, told: str) -> None:
    with pytest.raises(InputError) as error:
        built("run", given, Outer)
    assert str(error.value) == told


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 10**400, "1", None])
def test_a_number_is_finite(value: object) -> None:
    with pytest.raises(InputError, match=r"^rate must be a finite number; got"):
        plain("rate", value, float)


@dataclass(frozen=True, slots=True)
class Ends:
    first: Natural = 0
    share: Share | None = None


@dataclass(frozen=True, kw_only=True)
class Bounded(Limited):
    count: Count = 1
    seed: Annotated[int, wholes(0, 9)] = 0
    size: Count | None = None
    slope: Finite = -1.0
    lr: Positive = 1.0
    decay: NotNegative = 0.0
    betas: tuple[BelowOne, ...] = ()
    open: Annotated[float, numbers("between 0 and 1", lambda value: 0 < value < 1, " Such as 0.5.")] = 0.5
    form: Literal["rows", "packed"] | None = None
    order: Annotated[str, names({"dmy": 1, "mdy": 2})] = "dmy"
    ends: Ends = field(default_factory=Ends)
    free: int | str | None = None


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"count": 0}, "count must be a whole number, at least 1; got 0."),
        ({"count": None}, "count must be a whole number, at least 1; got None."),
        ({"seed": 10}, "seed must be a whole number, from 0 to 9; got 10."),
        ({"size": 0}, "size must be a whole number, at least 1; got 0."),
        ({"slope": math.inf}, "slope must be a finite number; got inf."),
        ({"lr": 0.0}, "lr must be above 0; got 0.0."),
        ({"lr": math.nan}, "lr must be a finite number; got nan."),
        ({"decay": -1e-9}, "decay must be at least 0; got -1e-09."),
        ({"betas": (0.9, 1.0)}, "betas must be from 0 to below 1; got 1.0."),
        ({"betas": (-0.1, 0.9)}, "betas must be from 0 to below 1; got -0.1."),
        ({"open": 1}, "open must be between 0 and 1; got 1. Such as 0.5."),
        ({"form": "row"}, "form must be one of rows, packed; got 'row'. Did you mean 'rows'?"),
        ({"order": "ymd"}, "order must be one of dmy, mdy; got 'ymd'. Did you mean 'mdy'?"),
        ({"ends": Ends(first=-1)}, "ends.first must be a whole number, at least 0; got -1."),
        ({"ends": Ends(share=1.5)}, "ends.share must be from 0 to 1; got 1.5."),
    ],
)
def test_limits_of_fields(values: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as raised:
        Bounded(**values)
    assert str(raised.value) == told


def test_what_limits_let_pass() -> None:
    """Their ends, None where the annotation allows it, and what is a number to numpy."""
    assert Bounded(count=np.int64(1), seed=9, lr=1e-300, betas=(0, 0.5), form="packed", free=-1).seed == 9
    assert Bounded(ends=Ends(share=0)).ends.share == Bounded(ends=Ends(share=1)).ends.share - 1  # type: ignore[operator]
    with pytest.raises(InputError, match=r"^batch\.share must be from 0 to 1; got 2\.$"):
        check_fields(Ends(share=2), "batch")


def test_limits_in_words() -> None:
    """As a signature and --help show them; a union of several types states none."""
    assert [
        repr(limit_of(kind)) for kind in (Count, Count | None, tuple[Share, ...], int, int | str | None)
    ] == ["'at least 1'", "'at least 1'", "'from 0 to 1'", "None", "None"]
