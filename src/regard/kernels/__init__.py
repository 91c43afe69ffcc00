"""Kernels of regard's own, written in LLVM's representation and compiled for this processor on first use.

Importing this needs llvmlite, which is not always installed: whoever uses it imports it where it is wanted.
"""

from regard.kernels._attention import Attention, attend_by
from regard.kernels._attention_float32 import FLOAT32
from regard.kernels._attention_int8 import INT8
from regard.kernels._blocks import MOST_ROWS, multiplying, unpacking
from regard.kernels._few_rows import FewRowsLinear
from regard.kernels._float32 import Float32Product
from regard.kernels._int8 import Int8Product
from regard.kernels._int16 import Int16Product
from regard.kernels._negative_sampling import NegativeSampling
from regard.kernels._target import Target, here
