"""What this processor's registers hold, and which instructions it has for whole numbers."""

from dataclasses import dataclass
from functools import cache

import torch
from llvmlite import binding  # type: ignore[import-untyped, unused-ignore]


@dataclass(frozen=True, slots=True)
class Target:
    """What kernels are written for.

    Args:
        lanes: numbers of 32 bits in a register: 16 of AVX-512, 8 of AVX2.
        vnni: whether one instruction adds the products of four pairs of bytes to a sum of 32 bits: that of
            AVX-512, or of AVX-VNNI.
    """

    lanes: int
    vnni: bool

    @property
    def accumulators(self) -> int:
        """Half of the registers that there are, 32 of AVX-512 and 16 of AVX2: as many as sums may fill."""
        return self.lanes


@cache
def here() -> Target:
    """Of this processor, as far as the system lets its registers be used."""
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    vnni = binding.get_host_cpu_features().get("avx512vnni" if wide else "avxvnni")
    return Target(lanes=16 if wide else 8, vnni=bool(vnni))
