"""Attention, masks, biases, dropout, taps and errors: pure functions of tensors that know no model.

Importing the package does not import torch; the first use of a name does. So `regard.core.errors` serves
the rooms that never need a tensor.
"""

from typing import TYPE_CHECKING

from regard._on_use import on_use as _on_use

if TYPE_CHECKING:
    from regard.core._attention import Attention, reference_attention
    from regard.core._bias import Bias, BiasOfHeads, DenseBias
    from regard.core._dropout import Dropout, GivenDropout, SeededDropout
    from regard.core._fused import fused_attention
    from regard.core._groups import Groups
    from regard.core._identities import AttentionErrors, attention_errors
    from regard.core._inputs import AttentionInputs, padding_of
    from regard.core._masks import Causal, Conjunction, Mask, Padding, Predicate, Segments, Window
    from regard.core._row_statistics import RowStatistics, row_statistics
    from regard.core._rows import attention_scores, attention_weights
    from regard.core._taps import Listener, Taps

_HOME = {
    "Attention": "_attention",
    "AttentionErrors": "_identities",
    "AttentionInputs": "_inputs",
    "Bias": "_bias",
    "BiasOfHeads": "_bias",
    "Causal": "_masks",
    "Conjunction": "_masks",
    "DenseBias": "_bias",
    "Dropout": "_dropout",
    "GivenDropout": "_dropout",
    "Groups": "_groups",
    "Listener": "_taps",
    "Mask": "_masks",
    "Padding": "_masks",
    "Predicate": "_masks",
    "RowStatistics": "_row_statistics",
    "SeededDropout": "_dropout",
    "Segments": "_masks",
    "Taps": "_taps",
    "Window": "_masks",
    "attention_errors": "_identities",
    "attention_scores": "_rows",
    "attention_weights": "_rows",
    "fused_attention": "_fused",
    "padding_of": "_inputs",
    "reference_attention": "_attention",
    "row_statistics": "_row_statistics",
}

__all__ = [
    "Attention",
    "AttentionErrors",
    "AttentionInputs",
    "Bias",
    "BiasOfHeads",
    "Causal",
    "Conjunction",
    "DenseBias",
    "Dropout",
    "GivenDropout",
    "Groups",
    "Listener",
    "Mask",
    "Padding",
    "Predicate",
    "RowStatistics",
    "SeededDropout",
    "Segments",
    "Taps",
    "Window",
    "attention_errors",
    "attention_scores",
    "attention_weights",
    "fused_attention",
    "padding_of",
    "reference_attention",
    "row_statistics",
]

__getattr__, __dir__ = _on_use(__name__, _HOME)
