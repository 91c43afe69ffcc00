"""Networks in words."""

import pytest
import torch

from regard.blocks import Pattern
from regard.core import Causal, Window
from regard.models import masks_of, positions_of
from regard.positions import LinearScaling, Rotary
from unit.models import tiny


def test_stacks_that_differ_are_told_apart() -> None:
    both = tiny.both()
    assert positions_of(both).startswith("encoder: ")
    assert ", decoder: " in positions_of(both)
    assert masks_of(both) == "encoder: none, decoder: causal"


def test_one_stack() -> None:
    assert positions_of(tiny.encoder()).startswith("learned (11)")
    assert masks_of(tiny.encoder()) == "none"
    assert masks_of(tiny.decoder()) == "causal"


@pytest.mark.parametrize(
    ("patterns", "positions", "masks"),
    [
        ([Pattern(Causal(), Rotary(6, base=1e4))] * 3, "rotary (base 10000)", "causal"),
        (
            [
                Pattern(Causal() & Window(left=63), Rotary(6, base=10.0)),
                *[Pattern(Causal(), Rotary(6, base=1e6, scaling=LinearScaling(8.0)))] * 2,
            ],
            "rotary (base 10 in 1 of 3 layers); rotary (base 1e+06, LinearScaling in 2 of 3 layers)",
            "causal, window of 64 tokens in 1 of 3 layers; causal in 2 of 3 layers",
        ),
        (
            [Pattern(Window(left=4, right=5)), Pattern(), Pattern()],
            "none",
            "window of 4 tokens before and 5 after in 1 of 3 layers; none in 2 of 3 layers",
        ),
    ],
)
def test_patterns(patterns: list[Pattern], positions: str, masks: str) -> None:
    with torch.device("cpu"):
        network = tiny.decoder()
    stack = network.stack("decoder")
    stack.patterns = tuple(patterns)
    stack.bias = None
    stack.embeddings.positions = None
    assert positions_of(network) == positions
    assert masks_of(network) == masks
