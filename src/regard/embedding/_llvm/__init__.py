"""Kernels of regard's own, written in LLVM's representation and compiled for this processor on first use."""

__all__: list[str] = []
