"""A corpus by its words and by what they mean where they stand."""

from regard.concordance._building import Indexed, build_index
from regard.concordance._concordance import Concordance
from regard.concordance._corpus import Reading
from regard.concordance._lines import Line, Lines
from regard.concordance._meaning import Calibration
from regard.concordance._vectors import usage_vectors

__all__ = [
    "Calibration",
    "Concordance",
    "Indexed",
    "Line",
    "Lines",
    "Reading",
    "build_index",
    "usage_vectors",
]
