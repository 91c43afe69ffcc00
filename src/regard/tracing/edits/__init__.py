"""Interventions: edits of what a model computes, and patching between texts."""

from regard.tracing.edits._changes import Add, Mean, Replace, Resample, Scale, Write, Zero
from regard.tracing.edits._edit import Edit, Layers, Part, Positions, SiteName
from regard.tracing.edits._importance import (
    ExampleMetric,
    ImportanceMethod,
    Likeness,
    ablation,
    head_importance,
    unseen,
    unseen_word,
)
from regard.tracing.edits._network import edited
from regard.tracing.edits._patching import Patching, PatchingMethod, Per, patch
