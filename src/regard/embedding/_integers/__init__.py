"""Products in whole numbers of 16 and of 8 bits, and models that are run with them."""

from regard.embedding._integers._engine import in_int8, in_int16, int8_is_best, int16_is_best, kernel_of

__all__ = ["in_int8", "in_int16", "int8_is_best", "int16_is_best", "kernel_of"]
