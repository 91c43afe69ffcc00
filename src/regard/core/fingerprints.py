"""Fingerprints of models: hashes by which a file that was made with one knows it again."""

import hashlib
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


def fingerprint(about: str, tensors: Iterable[tuple[str, Tensor]]) -> str:
    """The SHA-256 of a text, and of the names, shapes, types and bytes of tensors.

    Every byte is read, at about a gigabyte a second.
    """
    digest = hashlib.sha256(about.encode())
    for name, tensor in tensors:
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(_bytes_of(tensor))
    return digest.hexdigest()


def _bytes_of(tensor: Tensor) -> Any:
    # As bytes: numpy has no bfloat16.
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
