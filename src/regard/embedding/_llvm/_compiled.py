"""The kernels in this processor's code."""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from llvmlite import binding  # type: ignore[import-untyped, unused-ignore]

from regard.embedding._int16._kernels import kernels

_alive: list[Any] = []


@cache
def product() -> Callable[..., None]:
    """The function of `kernels`; arrays are addresses. While it runs, other threads of Python do too.

    Compiled once a process, which takes some 0.1 s.
    """
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten(), opt=3
    )
    module = binding.parse_assembly(str(kernels()))
    module.verify()
    machine = binding.create_mcjit_compiler(module, target)
    machine.finalize_object()
    address, number, real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
    kind = ctypes.CFUNCTYPE(None, *[address] * 6, number, address, *[number] * 4, real, real)
    function = kind(machine.get_function_address("product"))
    _alive.append(machine)  # the code lives as long as this
    return function
