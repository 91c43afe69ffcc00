"""Learned and contextual embeddings of many texts, as fast as the machine allows."""

from regard.embedding._pooling import KINDS, Kind, mean_of_rows, pool
from regard.embedding._precision import Packed, Precision, finished, packed
from regard.embedding._settings import SentenceSettings, read_sentence_settings
from regard.embedding._steps import Dense, Norm, Step, Unit

__all__ = [
    "KINDS",
    "Dense",
    "Kind",
    "Norm",
    "Packed",
    "Precision",
    "SentenceSettings",
    "Step",
    "Unit",
    "finished",
    "mean_of_rows",
    "packed",
    "pool",
    "read_sentence_settings",
]
