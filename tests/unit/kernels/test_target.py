"""What the kernels are written for, of what a processor has."""

import platform
from collections.abc import Callable
from typing import Any

import pytest
import torch

from regard.kernels import _int8, _int16, _target
from regard.kernels._attention_int8 import INT8
from regard.kernels._target import Target, assembly


@pytest.mark.parametrize(
    ("capability", "features", "target"),
    [
        ("AVX512", {"avx512vnni": True}, Target(16, True)),
        ("AVX512", {"avx512vnni": False, "avxvnni": True}, Target(16, False)),
        ("AVX512", {"avx512vnni": True, "avx512bf16": True}, Target(16, True, pairs=True)),
        (
            "AVX2",
            {"avx512vnni": True, "avx512bf16": True},
            Target(8, False),
        ),  # torch, or the system, wants none of AVX-512
        ("AVX2", {"avxvnni": True}, Target(8, True)),
        ("AVX2", {}, Target(8, False)),
    ],
)
def test_registers_and_instructions(
    capability: str, features: dict[str, bool], target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(_target.binding, "get_host_cpu_features", lambda: features)
    assert _target.here.__wrapped__() == target


@pytest.mark.skipif(platform.machine() != "x86_64", reason="LLVM writes only this processor's code here")
@pytest.mark.parametrize(
    ("kernel", "instruction"),
    [
        (lambda target: _int8.kernels(target), "vpdpbusd"),
        (lambda target: _int16.kernels(target), "vpdpwssd"),
        (lambda target: INT8.kernel(target, 32), "vpdpbusd"),
        (lambda target: INT8.kernel(target, 64), "vpdpwssd"),
    ],
    ids=["product in 8 bits", "product in 16 bits", "scores", "contexts"],
)
def test_kernels_can_be_written_for_a_processor_with_avx_vnni_alone(
    kernel: Callable[[Target], Any], instruction: str
) -> None:
    written = assembly(kernel(Target(8, True)), "alderlake")
    assert f"{{vex}}\t{instruction}" in written
    assert "zmm" not in written
    assert "ymm16" not in written
