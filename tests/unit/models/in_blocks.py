"""A network with random weights in the blocks of a GGUF file."""

import torch

from regard.blocks import PackedLinear, Packing
from regard.checkpoints import BLOCK_TYPES, Packed
from regard.models import Loaded


def in_blocks(loaded: Loaded) -> None:
    """Put a tied Llama's matrices into blocks: the embeddings of Q8_0, the others of Q4_1."""
    packing = Packing(loaded.network, torch.float32)
    for name, each in [*loaded.network.named_parameters()]:
        if packing.takes(name):
            kind = next(
                of for of in BLOCK_TYPES.values() if of.name == ("Q8_0" if "tokens" in name else "Q4_1")
            )
            stored = torch.randint(0, 256, (len(each), each.shape[1] // 32 * kind.size), dtype=torch.uint8)
            # The scales, and the least numbers: small ones, less than the least normal number, none, below 0.
            scales = torch.tensor([0.01, -0.02, 3e-5, 0.0, 0.03])
            for part in range(1 if kind.name == "Q8_0" else 2):
                given = scales[torch.randint(0, 5, (len(each), each.shape[1] // 32))].half()
                stored.view(len(each), -1, kind.size)[..., 2 * part : 2 * part + 2] = given[..., None].view(
                    torch.uint8
                )
            packing.put(name, Packed(stored, kind))
    loaded.network.head.output = PackedLinear(loaded.network.decoder.embeddings.tokens.packed, None)
