"""Where a tensor lives, as far as that decides how attention is worked out."""

import torch
from torch import Tensor

# A name of its own, so that a test can put the CPU on the other side of each decision.
_CPU = "cpu"


# Numbers of a block elsewhere than on the CPU, where calls cost more than memory: 256 MB in float32.
ON_DEVICE = 2**26


def on_cpu(tensor: Tensor) -> bool:
    """Whether numbers can be looked at without waiting for a device, and torch's CPU kernels do the work.

    False while torch.compile traces, where a look would break the graph.
    """
    return tensor.device.type == _CPU and not torch.compiler.is_compiling()
