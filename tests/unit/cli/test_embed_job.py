"""How many rows may be put aside."""

import pytest

from regard.cli._embed_job import Limit
from regard.core.errors import InputError, RegardError


@pytest.mark.parametrize(
    ("words", "rejected", "message"),
    [
        (None, 99, None),
        (None, 100, "none of the 100 rows could be embedded"),
        ("100", 100, "none of the 100 rows could be embedded"),
        ("0", 0, None),
        ("0", 1, "1 of 100 rows were put aside, more than --max-rejected allows"),
        ("7", 7, None),
        ("7", 8, "8 of 100 rows"),
        ("2.5%", 2, None),
        ("2.5%", 3, "3 of 100 rows"),
    ],
)
def test_the_limit(words: str | None, rejected: int, message: str | None) -> None:
    if message is None:
        Limit(words).check(100, rejected)
        return
    with pytest.raises(RegardError, match=message):
        Limit(words).check(100, rejected)


@pytest.mark.parametrize("words", ["", "x", "1.5", "-1", "%"])
def test_what_is_no_limit(words: str) -> None:
    with pytest.raises(InputError, match="--max-rejected must be a whole number, or a share"):
        Limit(words)
