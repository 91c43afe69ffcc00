"""Products in 16 bits: nearly as exact as float32, and faster on processors whose registers have 256 bits."""

from regard.embedding._int16._engine import in_int16, is_best

__all__ = ["in_int16", "is_best"]
