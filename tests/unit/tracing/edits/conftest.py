"""A model of each shape."""

import pytest

import regard
from unit.tracing.stacks import make


@pytest.fixture(scope="module")
def models() -> dict[str, regard.Model]:
    return {shape: make(shape) for shape in ("encoder", "decoder", "both")}
