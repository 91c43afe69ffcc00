"""What can be said of a trace beyond its weights: the methods of `Trace` that need a file of their own."""

from regard.tracing._measures._direct import DirectAttribution, direct_attribution
from regard.tracing._measures._flow import flow
from regard.tracing._measures._gradients import Scalar, gradients
from regard.tracing._measures._identities import parity
from regard.tracing._measures._integrated import IntegratedGradients, integrated_gradients
from regard.tracing._measures._logit_lens import LogitLens, logit_lens
from regard.tracing._measures._norm_weighted import norm_weighted, norm_weighted_layer
from regard.tracing._measures._relevance import attention_gradients, relevance
from regard.tracing._measures._rollout import rollout
from regard.tracing._measures._trajectory import Trajectory, trajectory
from regard.tracing._measures._value_zeroing import value_zeroing

__all__ = [
    "DirectAttribution",
    "IntegratedGradients",
    "LogitLens",
    "Scalar",
    "Trajectory",
    "attention_gradients",
    "direct_attribution",
    "flow",
    "gradients",
    "integrated_gradients",
    "logit_lens",
    "norm_weighted",
    "norm_weighted_layer",
    "parity",
    "relevance",
    "rollout",
    "trajectory",
    "value_zeroing",
]
