"""Interventions: edits of what a model computes, and patching between texts."""

from regard.tracing.edits._ablation import ablation
from regard.tracing.edits._capture import check_mode, keep_in
from regard.tracing.edits._changes import Add, Mean, Replace, Resample, Scale, Zero
from regard.tracing.edits._edit import Edit
from regard.tracing.edits._editing import edited
from regard.tracing.edits._importance import ExampleMetric, ImportanceMethod, head_importance
from regard.tracing.edits._metric import Metric, Progress, differentiable, number_of
from regard.tracing.edits._patching import Patching, Per, activation_patching, attribution_patching
from regard.tracing.edits._places import Numbers, Positions
from regard.tracing.edits._sites import SiteName, kind_of, points_of, site_named

__all__ = [
    "Add",
    "Edit",
    "ExampleMetric",
    "ImportanceMethod",
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
    "ablation",
    "activation_patching",
    "attribution_patching",
    "check_mode",
    "differentiable",
    "edited",
    "head_importance",
    "keep_in",
    "kind_of",
    "number_of",
    "points_of",
    "site_named",
]
