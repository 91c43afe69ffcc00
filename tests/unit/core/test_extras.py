"""Optional dependencies that are not there."""

from __future__ import annotations

import sys

import pytest

from regard.core.errors import MissingExtraError
from regard.core.extras import pyarrow


def test_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'regard\[embed\]'"):
        pyarrow()
