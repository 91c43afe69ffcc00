"""A corpus by its words and by what they mean where they stand."""

from regard.concordance._building import Indexed, Reading, build_index
from regard.concordance._concordance import Concordance
from regard.concordance._counts import Counts
from regard.concordance._drift import Change, Drift, Measure
from regard.concordance._lines import Line, Lines
from regard.concordance._meaning import Calibration
from regard.concordance._senses import Sense, Senses
from regard.concordance._tuning import read_judged, tune_layers, use_settings
from regard.concordance._vectors import usage_vectors

__all__ = [
    "Change",
    "Concordance",
    "Counts",
    "Drift",
    "Indexed",
    "Line",
    "Lines",
    "Measure",
    "Reading",
    "Sense",
    "Senses",
    "build_index",
]
