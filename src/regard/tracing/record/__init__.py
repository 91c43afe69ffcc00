"""A trace as data: what is kept of a pass, its weights, scores, contexts and embeddings, and its file."""

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
from regard.tracing.record._selectors import (
    Numbers,
    Selector,
    WordOrToken,
    chosen_of,
    is_punctuation,
    is_spelled,
    numbers_of,
    token_of,
    unique,
)
from regard.tracing.record._stacks import AttentionTrace, ScoreTrace, TracedStack
from regard.tracing.record._trace import Trace, check_cost, check_trace, kept_bytes
