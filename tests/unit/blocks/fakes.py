"""Stand-ins for what blocks are handed: a rotation and a rotary that say what was asked of them."""

from dataclasses import dataclass, field

import torch
from torch import Tensor


class FakeRotation:
    """Multiplies each position's first dimension by its number plus 2, which no other step does."""

    def __init__(self, position_ids: Tensor) -> None:
        self.position_ids = position_ids

    def apply(self, x: Tensor) -> Tensor:
        factor = torch.ones_like(x)
        factor[..., 0] = (self.position_ids + 2).to(x.dtype)[:, None, :]
        return x * factor


@dataclass(frozen=True)
class FakeRotary:
    """Keeps what it was asked for; compares by its name, as a `Rotary` does by its numbers."""

    name: str = ""
    asked: list[tuple[Tensor, torch.dtype, torch.device]] = field(default_factory=list, compare=False)

    def rotation(self, position_ids: Tensor, *, dtype: torch.dtype, device: torch.device) -> FakeRotation:
        self.asked.append((position_ids, dtype, device))
        return FakeRotation(position_ids)
