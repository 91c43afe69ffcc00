"""Norm-weighted attention: not how much a head looks at a token, but how much it takes from it."""

import torch
from torch import Tensor

from regard.models import Kind
from regard.tracing.measures._readout import projection_of
from regard.tracing.record import Selector, Trace, chosen_of

_KEYS = 256
"""Keys whose transformed values, of all heads, are held at a time."""


def norm_weighted(
    trace: Trace,
    layer: int,
    head: int | None = None,
    *,
    kind: "Kind | None" = None,
    query: Selector | None = None,
    key: Selector | None = None,
) -> Tensor:
    """Attention weight times the size of the transformed value: how much of each token enters each head.

        |alpha_ij f_h(x_j)| = alpha_ij |v_j W_O^h|

    Args:
        layer, head, kind, query, key: as in `Trace.weights`.

    Returns:
        float32 on the CPU, (queries, keys), or (heads, queries, keys) where head is None. A sink has no
        value, and so no column.

    Raises:
        InputError: as `Trace.weights`; or the model, its output projection or the values are not at hand.

    Example:
        >>> import regard
        >>> trace = regard.load().trace("time flies like an arrow")
        >>> trace.norm_weighted(layer=5, head=0, query="flies").shape
        torch.Size([1, 7])

    Source: Kobayashi et al. 2020, arXiv 2004.10102, section 3.2, equations 4 and 5.
    """
    kind = trace.kind(kind)
    layer = trace.layer_index(layer, kind)
    v, projection = trace.attention_of(layer, kind).inputs.v[0], projection_of(trace, kind, layer)
    keys = list(chosen_of("key", trace.sides(kind)[1].encoding, key))
    weights = trace.weights(layer, head, kind=kind, query=query, key=key)[..., : len(keys)]
    heads = range(len(weights)) if head is None else [trace.head_index(head, kind, layer)]
    norms = torch.stack([projection.of_values(v[:, keys], each).norm(dim=1) for each in heads])
    taken: Tensor = weights * (norms[:, None] if head is None else norms).float().cpu()
    return taken


def norm_weighted_layer(
    trace: Trace,
    layer: int,
    *,
    kind: "Kind | None" = None,
    query: Selector | None = None,
    key: Selector | None = None,
) -> Tensor:
    """How much all heads of a layer together take from each token.

        |sum_h alpha_ij^h f_h(x_j)|

    Args:
        layer, kind, query, key: as in `Trace.weights`.

    Returns:
        float32 on the CPU, (queries, keys).

    Raises:
        InputError: as `norm_weighted`.

    Example:
        >>> import regard
        >>> trace = regard.load().trace("time flies like an arrow")
        >>> layer = trace.norm_weighted_layer(5)
        >>> bool((layer <= trace.norm_weighted(5).sum(dim=0) + 1e-6).all())
        True

    Source: Kobayashi et al. 2020, arXiv 2004.10102, section 3.2, for the heads of a layer together.
    """
    kind = trace.kind(kind)
    layer = trace.layer_index(layer, kind)
    v, projection = trace.attention_of(layer, kind).inputs.v[0], projection_of(trace, kind, layer)
    keys = list(chosen_of("key", trace.sides(kind)[1].encoding, key))
    weights = trace.weights(layer, kind=kind, query=query, key=key)[..., : len(keys)].to(v.device).double()
    result = torch.empty(weights.shape[1:], dtype=torch.float32)
    for start in range(0, len(keys), _KEYS):
        some = slice(start, start + _KEYS)
        parts = [projection.of_values(v[:, keys[some]], head) for head in range(len(weights))]
        taken = torch.stack(parts, dim=1)  # (keys, heads, d_model)
        # |sum_h a_h f_h|^2 = a^T (f f^T) a: never queries x keys x d_model.
        alpha = weights[:, :, some].permute(2, 1, 0)
        squared = ((alpha @ (taken @ taken.mT)) * alpha).sum(dim=2)
        result[:, some] = squared.clamp(min=0.0).sqrt().mT.float().cpu()
    return result
