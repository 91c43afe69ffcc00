"""A trace as data: what is kept of a pass, its weights, scores, contexts and embeddings, and its file."""

from regard.tracing.record._files import HasLoaded
from regard.tracing.record._keep import (
    EVERYTHING,
    Keep,
    KeepPolicy,
    Partial,
    ScoreInputs,
    kept_inputs,
    kept_tensor,
    places,
)
from regard.tracing.record._memory import check_cost, kept_bytes
from regard.tracing.record._selectors import (
    Numbers,
    Selector,
    WordOrToken,
    chosen_of,
    counted,
    numbers_of,
    token_of,
    unique,
    within,
)
from regard.tracing.record._stacks import AttentionTrace, ScoreTrace, TracedStack
from regard.tracing.record._token_sets import TokenSets, is_punctuation
from regard.tracing.record._trace import Trace, check_trace

__all__ = [
    "EVERYTHING",
    "AttentionTrace",
    "HasLoaded",
    "Keep",
    "KeepPolicy",
    "Numbers",
    "Partial",
    "ScoreInputs",
    "ScoreTrace",
    "Selector",
    "TokenSets",
    "Trace",
    "TracedStack",
    "WordOrToken",
    "check_cost",
    "check_trace",
    "chosen_of",
    "counted",
    "is_punctuation",
    "kept_bytes",
    "kept_inputs",
    "kept_tensor",
    "numbers_of",
    "places",
    "token_of",
    "unique",
    "within",
]
