"""Attention, masks, biases, dropout, taps and errors: pure functions of tensors that know no model.

Importing the package does not import torch; the first use of a name does. So `regard.core.errors` serves
the rooms that never need a tensor.
"""

from typing import TYPE_CHECKING

from regard._lazy import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from regard.core._attention import Attention, attention_by_weights, reference_attention
    from regard.core._cache import KeyValueCache
    from regard.core._dropout import Dropout, SeededDropout
    from regard.core._expiry import ForgettingCache, Ramp, Unexpired, of_keys
    from regard.core._fused import fused_attention
    from regard.core._inputs import AttentionInputs, Kernel, padding_of
    from regard.core._masks import (
        Causal,
        Conjunction,
        DilatedWindow,
        Mask,
        Padding,
        Predicate,
        Segments,
        TensorMask,
        Window,
    )
    from regard.core._recurrence import RecurrentState, simple_recurrence
    from regard.core._scorers import (
        Additive,
        Bias,
        BiasOfHeads,
        Bilinear,
        Cosine,
        DenseBias,
        Dot,
        ScaledDot,
        Scorer,
    )
    from regard.core._taps import Taps
    from regard.core.rows import (
        Groups,
        RowStatistics,
        attention_errors,
        attention_scores,
        attention_weights,
        row_statistics,
    )

__all__ = [
    "Additive",
    "Attention",
    "AttentionInputs",
    "Bias",
    "Bilinear",
    "Causal",
    "Cosine",
    "DilatedWindow",
    "Dot",
    "Dropout",
    "Groups",
    "Kernel",
    "KeyValueCache",
    "Mask",
    "Padding",
    "Predicate",
    "RowStatistics",
    "ScaledDot",
    "Scorer",
    "SeededDropout",
    "Segments",
    "Taps",
    "TensorMask",
    "Window",
    "attention_scores",
    "attention_weights",
    "fused_attention",
    "reference_attention",
    "row_statistics",
]

__getattr__, __dir__ = _lazy_exports(
    __name__,
    {
        "regard.core._attention": "Attention attention_by_weights reference_attention",
        "regard.core._cache": "KeyValueCache",
        "regard.core._dropout": "Dropout SeededDropout",
        "regard.core._expiry": "ForgettingCache Ramp Unexpired of_keys",
        "regard.core._fused": "fused_attention",
        "regard.core._inputs": "AttentionInputs Kernel padding_of",
        "regard.core._masks": (
            "Causal Conjunction DilatedWindow Mask Padding Predicate Segments TensorMask Window"
        ),
        "regard.core._recurrence": "RecurrentState simple_recurrence",
        "regard.core._scorers": "Additive Bias BiasOfHeads Bilinear Cosine DenseBias Dot ScaledDot Scorer",
        "regard.core._taps": "Taps",
        "regard.core.rows": (
            "Groups RowStatistics attention_errors attention_scores attention_weights row_statistics"
        ),
    },
)
