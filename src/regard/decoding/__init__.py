"""Texts that a network writes: translations of sources, continuations of prompts, guesses behind masks."""

from regard.decoding._beam import Beams, Hypothesis, Power, Wu, beam_search
from regard.decoding._choice import Choice, MostLikely, Sampling
from regard.decoding._fill import Filled, Guess, fill
from regard.decoding._job import recommended
from regard.decoding._reader import Precision, prepared
from regard.decoding._rules import RuleChanges, Rules
from regard.decoding._speculation import Draft, Lookup, Speculation, speculate
from regard.decoding._steps import Decoded, Step, Written, greedy, sample, steps
from regard.decoding._texts import BATCH_TOKENS, Added, along, decode_texts, stream
from regard.decoding._watching import Branch, Candidate, Watched, WrittenStep, watch_text

__all__ = [
    "Beams",
    "Branch",
    "Candidate",
    "Choice",
    "Decoded",
    "Draft",
    "Filled",
    "Guess",
    "Hypothesis",
    "Lookup",
    "MostLikely",
    "Power",
    "RuleChanges",
    "Rules",
    "Sampling",
    "Speculation",
    "Step",
    "Watched",
    "Written",
    "WrittenStep",
    "Wu",
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
]
