"""Static embeddings: a vector for each word, the same in every sentence."""

from regard.words._files import check_words
from regard.words._ngrams import Ngrams, Parts
from regard.words._vectors import WordVectors

__all__ = [
    "Ngrams",
    "Parts",
    "WordVectors",
]
