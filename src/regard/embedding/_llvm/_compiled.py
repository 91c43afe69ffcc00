"""Kernels in this processor's code."""

import ctypes
from collections.abc import Callable
from typing import Any, Final

from llvmlite import binding  # type: ignore[import-untyped, unused-ignore]

from regard._collector import paused

ADDRESS: Final = ctypes.c_void_p
NUMBER: Final = ctypes.c_int64
REAL: Final = ctypes.c_float

_alive: list[Any] = []


def compiled(make: Callable[[], Any], name: str, *arguments: Any) -> Callable[..., None]:
    """A function of the module that is made, with arguments of these kinds.

    While it runs, so do other threads of Python.
    """
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten(), opt=3
    )
    with paused():  # a kernel is written in some hundred thousand objects
        parsed = binding.parse_assembly(str(make()))
    parsed.verify()
    machine = binding.create_mcjit_compiler(parsed, target)
    machine.finalize_object()
    function = ctypes.CFUNCTYPE(None, *arguments)(machine.get_function_address(name))
    _alive.append(machine)  # the code lives as long as this
    return function
