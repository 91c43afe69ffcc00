"""Texts that a network writes: translations of sources, continuations of prompts."""

from regard.decoding._beam import Counts, Power, Wu, beam_search
from regard.decoding._choice import Choice, MostLikely
from regard.decoding._decoded import Decoded
from regard.decoding._greedy import greedy
from regard.decoding._rules import Model, Rules
from regard.decoding._texts import decode_texts

__all__ = [
    "Choice",
    "Counts",
    "Decoded",
    "Model",
    "MostLikely",
    "Power",
    "Rules",
    "Wu",
    "beam_search",
    "decode_texts",
    "greedy",
]
