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
)
from regard.tracing.record._stacks import AttentionTrace, ScoreTrace, TracedStack
from regard.tracing.record._token_sets import TokenSets, is_punctuation
from regard.tracing.record._trace import Trace, check_trace
