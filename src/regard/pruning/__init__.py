"""A model without some of its heads: which go first, the cut, and the curve of what is lost.

What is removed, and how a checkpoint says so, stands in `regard.models`, which reads and writes it.
"""

from regard.pruning._curve import CurvePoint, PruningCurve, pruning_curve
from regard.pruning._prune import Importance, loads_in, prune, removal_order, weakest_heads

__all__ = [
    "CurvePoint",
    "PruningCurve",
    "loads_in",
    "prune",
    "pruning_curve",
    "weakest_heads",
]
