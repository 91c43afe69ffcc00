"""Static embeddings: a vector for each word, the same in every sentence."""

from regard.static._files import check_words
from regard.static._ngrams import Ngrams, Parts
from regard.static._vectors import WordVectors

__all__ = ["Ngrams", "Parts", "WordVectors", "check_words"]
