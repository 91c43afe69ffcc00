"""Where a token stands, as vectors that are added to its embedding.

Schemes that act elsewhere (rotary on q and k, ALiBi and relative bias on the scores) belong here too, and
arrive with the model families that need them.
"""

from regard.positions._learned import LearnedPositions
from regard.positions._sinusoidal import SinusoidalPositions, sinusoidal_encoding

__all__ = ["LearnedPositions", "SinusoidalPositions", "sinusoidal_encoding"]
