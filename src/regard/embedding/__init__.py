"""Learned and contextual embeddings of many texts, as fast as the machine allows."""

from regard.embedding._embedder import Embedder, Sentences
from regard.embedding._embeddings import Computed, Embeddings, Loss, Report, SentenceVectors
from regard.embedding._kept import KeptEmbedder
from regard.embedding._passages import Passage, Truncate, Windows
from regard.embedding._pooling import KINDS, WORD_KINDS, Kind, WordKind, pool, pool_words
from regard.embedding._request import Level, Mix, Precision, Request
from regard.embedding._settings import SentenceSettings, read_sentence_settings
from regard.embedding._steps import Dense, Norm, Storage, Unit, finished, packed

__all__ = [
    "KINDS",
    "Computed",
    "Embedder",
    "Embeddings",
    "Loss",
    "Mix",
    "Passage",
    "Report",
    "Request",
    "SentenceVectors",
    "Sentences",
    "Truncate",
    "Windows",
]
