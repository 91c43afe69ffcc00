"""A system without memory left ends a process without a word: what cannot fit is refused before."""

import torch

from regard.core.memory import check_room
from regard.models import FamilyConfig, count_parameters

CPU = torch.device("cpu")
"""A GPU that has no memory left says so."""


def check_network(config: FamilyConfig) -> None:
    """Refuse a new network that could not be trained here: weights, gradients and one moment at least.

    Raises:
        InputError: they need more memory than is free.
    """
    count = count_parameters(config)
    way_out = "lower batch.length or the sizes under model"
    check_room(f"a network of {count:,} parameters", 12 * count, CPU, way_out)
