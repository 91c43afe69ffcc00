"""This processor: what its registers hold, its instructions for whole numbers, and code for it."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import torch
from llvmlite import binding  # type: ignore[import-untyped, unused-ignore]

from regard._collector import gc_paused


@dataclass(frozen=True, slots=True)
class Target:
    """What kernels are written for.

    Args:
        lanes: numbers of 32 bits in a register: 16 of AVX-512, 8 of AVX2.
        vnni: whether one instruction adds the products of four pairs of bytes to a sum of 32 bits: that of
            AVX-512, or of AVX-VNNI.
        pairs: whether one instruction of AVX-512 adds the products of two pairs of bfloat16 to a float32.
    """

    lanes: int
    vnni: bool
    pairs: bool = False

    @property
    def accumulators(self) -> int:
        """Half of the registers that there are, 32 of AVX-512 and 16 of AVX2: as many as sums may fill."""
        return self.lanes


@cache
def here() -> Target:
    """The target that this processor is, as far as the system lets its registers be used."""
    # Ask torch, not the processor: torch looks at the registers that the system saves, too.
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    has = binding.get_host_cpu_features().get
    # VNNI on 512 bits and on 256 bits are two flags; only that of the registers that are used counts.
    vnni, pairs = has("avx512vnni" if wide else "avxvnni"), wide and has("avx512bf16")
    return Target(lanes=16 if wide else 8, vnni=bool(vnni), pairs=bool(pairs))


ADDRESS: Final = ctypes.c_void_p
"""What an argument is: the address of a tensor's memory."""

NUMBER: Final = ctypes.c_int64
"""What an argument is: a whole number."""

REAL: Final = ctypes.c_float
"""What an argument is: a float32."""

# The engines of all compiled kernels: LLVM frees the machine code together with its engine.
_alive: list[Any] = []


def compiled(make: Callable[[], Any], name: str, *arguments: Any) -> Callable[..., None]:
    """A function of the module that is made, with arguments of these kinds.

    While it runs, so do other threads of Python.
    """
    with gc_paused():  # a kernel is written in some hundred thousand objects
        machine = _machine()
        parsed = binding.parse_assembly(str(make()))
    # LLVM's own check of types: a mistake in a kernel is an error here, and not a crash later.
    parsed.verify()
    engine = binding.create_mcjit_compiler(parsed, machine)
    engine.finalize_object()
    function = ctypes.CFUNCTYPE(None, *arguments)(engine.get_function_address(name))
    _alive.append(engine)
    return function


def assembly(module: Any, cpu: str | None = None) -> str:
    """A kernel's code as text: for this processor, or for another x86-64 that LLVM knows by name."""
    return str(_machine(cpu).emit_assembly(binding.parse_assembly(str(module))))


# opt=3 concerns instruction selection and scheduling; no passes run over the module itself.
def _machine(cpu: str | None = None) -> Any:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    if cpu is not None:
        other = binding.Target.from_triple("x86_64-unknown-linux-gnu")
        return other.create_target_machine(cpu=cpu, opt=3)
    features = binding.get_host_cpu_features().flatten()
    own = binding.Target.from_default_triple()
    return own.create_target_machine(cpu=binding.get_host_cpu_name(), features=features, opt=3)
