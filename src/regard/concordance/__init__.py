"""A corpus by its words and by what they mean where they stand."""

from regard.concordance._building import Indexed, build_index
from regard.concordance._corpus import Reading

__all__ = ["Indexed", "Reading", "build_index"]
