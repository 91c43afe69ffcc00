"""What can be said of a trace beyond its weights: the methods of `Trace` that need a file of their own."""

from regard.tracing.measures._direct import DirectAttribution, direct_attribution
from regard.tracing.measures._gradients import Scalar, attention_gradients, gradients, relevance
from regard.tracing.measures._identities import parity
from regard.tracing.measures._integrated import IntegratedGradients, integrated_gradients
from regard.tracing.measures._logit_lens import LogitLens, TokenLens, logit_lens
from regard.tracing.measures._norm_weighted import norm_weighted, norm_weighted_layer
from regard.tracing.measures._readout import check_head, logits_of_layers, loss, outermost, projection_of
from regard.tracing.measures._rollout import flow, rollout, rollout_steps
from regard.tracing.measures._statistics import Statistics, statistics
from regard.tracing.measures._value_zeroing import value_zeroing, value_zeroing_blocks
from regard.tracing.measures._weight_table import weight_table
