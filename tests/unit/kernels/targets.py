"""The kinds of processors whose kernels this one can run."""

import pytest
import torch

from regard.kernels._target import Target, here


def _runnable() -> list[Target]:
    capability = torch.backends.cpu.get_cpu_capability()
    if not capability.startswith("AVX"):
        return []
    narrow = [Target(8, False)]
    if capability == "AVX512":
        # With VNNI and registers of AVX-512, there are the instructions of AVX-VNNI too, otherwise written.
        narrow = [Target(16, False), *([Target(8, True)] if here().vnni else []), Target(8, False)]
    return [here(), *(each for each in narrow if each != here())]


TARGETS = _runnable()
"""This processor first, and those that have less."""

WITH_VNNI = [each for each in TARGETS if each.vnni]
"""Those that products in 8 bits are for."""

needs_vnni = pytest.mark.skipif(not WITH_VNNI, reason="the processor has no VNNI")
