"""A network with other linear maps."""

import copy
from collections.abc import Callable

from torch import nn

from regard.embedding._engine import stack_of
from regard.models import Transformer


def with_linears(network: Transformer, make: Callable[[nn.Linear], nn.Module]) -> Transformer:
    """A float32 copy of a network with other linear layers in the stack that embeds."""
    network = copy.deepcopy(network).float()
    for module in list(network.stack(stack_of(network)).layers.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, make(child))
    return network
