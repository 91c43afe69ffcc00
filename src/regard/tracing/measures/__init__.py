"""What can be said of a trace beyond its weights: the methods of `Trace` that need a file of their own."""

from regard.tracing.measures._direct import DirectAttribution, direct_attribution, sublayers_of
from regard.tracing.measures._frozen import Frozen, frozen
from regard.tracing.measures._gradients import (
    IntegratedGradients,
    Scalar,
    attention_gradients,
    gradients,
    integrated_gradients,
    relevance,
)
from regard.tracing.measures._parity import parity
from regard.tracing.measures._readout import (
    LogitLens,
    TokenLens,
    attention_tap,
    check_head,
    hidden_of,
    logit_lens,
    logits_of_layers,
    loss,
    outermost,
    output_of,
    projection_of,
)
from regard.tracing.measures._rollout import flow, rollout, rollout_steps
from regard.tracing.measures._statistics import Statistics, statistics
from regard.tracing.measures._values import (
    norm_weighted,
    norm_weighted_layer,
    value_zeroing,
    value_zeroing_blocks,
)
