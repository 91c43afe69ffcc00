"""Interventions: edits of what a model computes, and patching between texts."""

from regard.tracing._edits._capture import check_mode, keep_in
from regard.tracing._edits._changes import Add, Mean, Replace, Resample, Scale, Zero
from regard.tracing._edits._edit import Edit
from regard.tracing._edits._editing import edited
from regard.tracing._edits._metric import Metric, Progress, differentiable, number_of
from regard.tracing._edits._patching import Patching, Per, activation_patching, attribution_patching
from regard.tracing._edits._places import Numbers, Positions
from regard.tracing._edits._sites import SiteName, kind_of, points_of, site_named

__all__ = [
    "Add",
    "Edit",
    "Mean",
    "Metric",
    "Numbers",
    "Patching",
    "Per",
    "Positions",
    "Progress",
    "Replace",
    "Resample",
    "Scale",
    "SiteName",
    "Zero",
    "activation_patching",
    "attribution_patching",
    "check_mode",
    "differentiable",
    "edited",
    "keep_in",
    "kind_of",
    "number_of",
    "points_of",
    "site_named",
]
