"""Texts that a network writes: translations of sources, continuations of prompts, guesses behind masks."""

from regard.decoding._along import Added, Token, along
from regard.decoding._beam import Beams, Hypothesis, LengthPenalty, Power, Watch, Wu, beam_search
from regard.decoding._choice import Choice, MostLikely, Sampling
from regard.decoding._decoded import Decoded, Written
from regard.decoding._fill import Filled, Guess, fill
from regard.decoding._prepared import Precision, prepared
from regard.decoding._recommended import recommended
from regard.decoding._rules import Model, RuleChanges, Rules
from regard.decoding._speculation import Draft, Lookup, Speculation, speculate
from regard.decoding._steps import Step, Until, greedy, sample, steps
from regard.decoding._texts import BATCH_TOKENS, decode_texts, stream
from regard.decoding._watching import Branch, Candidate, Watched, WrittenStep, watch_text

__all__ = [
    "BATCH_TOKENS",
    "Added",
    "Beams",
    "Branch",
    "Candidate",
    "Choice",
    "Decoded",
    "Draft",
    "Filled",
    "Guess",
    "Hypothesis",
    "LengthPenalty",
    "Lookup",
    "Model",
    "MostLikely",
    "Power",
    "Precision",
    "RuleChanges",
    "Rules",
    "Sampling",
    "Speculation",
    "Step",
    "Token",
    "Until",
    "Watch",
    "Watched",
    "Written",
    "WrittenStep",
    "Wu",
    "along",
    "beam_search",
    "decode_texts",
    "fill",
    "greedy",
    "prepared",
    "recommended",
    "sample",
    "speculate",
    "steps",
    "stream",
    "watch_text",
]
