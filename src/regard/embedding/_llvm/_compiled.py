"""Kernels in this processor's code."""

import ctypes
from collections.abc import Callable
from typing import Any, Final

from llvmlite import binding  # type: ignore[import-untyped, unused-ignore]

ADDRESS: Final = ctypes.c_void_p
NUMBER: Final = ctypes.c_int64
REAL: Final = ctypes.c_float

_alive: list[Any] = []


def compiled(module: Any, name: str, *arguments: Any) -> Callable[..., None]:
    """A function of a module, with arguments of these kinds. While it runs, so do other threads of Python."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten(), opt=3
    )
    parsed = binding.parse_assembly(str(module))
    parsed.verify()
    machine = binding.create_mcjit_compiler(parsed, target)
    machine.finalize_object()
    function = ctypes.CFUNCTYPE(None, *arguments)(machine.get_function_address(name))
    _alive.append(machine)  # the code lives as long as this
    return function
