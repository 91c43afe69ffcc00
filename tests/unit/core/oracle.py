"""Attention as plain Python loops over floats, with its gradients worked out by hand.

Nothing here comes from `regard` or torch: not the arithmetic, not the masks. Arrays are nested lists, the
mask is a function of (batch, head, query, key), and every sum is `math.fsum`, rounded once.

With s = scale * q.k, t = cap * tanh(s / cap), a = t + bias, w = softmax(a) over the allowed keys,
kept = w * keep / (1 - p), context = kept @ v and a loss L = sum(context * upstream):

    dL/dv[j]    = sum_i kept[i][j] * upstream[i]               (summed over the heads of a group)
    dL/dw[i][j] = keep[i][j] / (1 - p) * upstream[i].v[j]
    dL/da[i][j] = w[i][j] * (dL/dw[i][j] - sum_m w[i][m] * dL/dw[i][m])        the softmax's Jacobian
    dL/ds[i][j] = dL/da[i][j] * (1 - tanh(s / cap)^2)
    dL/dq[i]    = scale * sum_j dL/ds[i][j] * k[j],    dL/dk[j] = scale * sum_i dL/ds[i][j] * q[i]

A masked key takes no part at all: it is left out of every sum. A sink is a key after the last one whose a is
given and whose value is zero: it takes part in the softmax and in its Jacobian, with dL/dw = 0.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Array = list[Any]
Rule = Callable[[int, int, int, int], bool]
MINUS_INFINITY = float("-inf")


@dataclass
class Result:
    """Nested lists; the matrices are [batch][head][query][key]."""

    scores: Array = field(default_factory=list)
    scaled_scores: Array = field(default_factory=list)
    masked_scores: Array = field(default_factory=list)
    weights: Array = field(default_factory=list)
    context: Array = field(default_factory=list)
    d_q: Array = field(default_factory=list)
    d_k: Array = field(default_factory=list)
    d_v: Array = field(default_factory=list)
    d_bias: Array = field(default_factory=list)
    d_sinks: Array = field(default_factory=list)


def attention(
    q: Array,
    k: Array,
    v: Array,
    upstream: Array,
    *,
    allowed: Rule | None = None,
    bias: Array | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    keep: Array | None = None,
    p: float = 0.0,
    sinks: list[float] | None = None,
) -> Result:
    """Attention and the gradients of sum(context * upstream).

    Args:
        q: [batch][head][query][d_k].
        k, v: [batch][kv head][key][d_k] and [d_v].
        upstream: [batch][head][query][d_v].
        allowed: whether (batch, head, query, key) may attend; by default all may.
        bias: [batch][head][query][key], in full.
        keep: [batch][head][query][key], truth values: the weights that dropout keeps.
        p: the probability of dropping that `keep` was drawn with.
        sinks: [head]; the matrices of masked scores and weights then have one column more.
    """
    num_heads, num_kv, d_k, d_v = len(q[0]), len(k[0]), len(q[0][0][0]), len(v[0][0][0])
    q_len, k_len = len(q[0][0]), len(k[0][0])
    group = num_heads // num_kv
    factor = d_k**-0.5 if scale is None else scale
    out = Result()
    sink_terms: list[list[float]] = [[] for _ in range(num_heads)]
    for b in range(len(q)):
        scores_b, scaled_b, masked_b, weights_b, context_b, d_q_b, d_bias_b = [], [], [], [], [], [], []
        # A key's gradient gathers terms from every head of its group: keep the terms, sum them once.
        k_terms = [[[[] for _ in range(d_k)] for _ in range(k_len)] for _ in range(num_kv)]
        v_terms = [[[[] for _ in range(d_v)] for _ in range(k_len)] for _ in range(num_kv)]
        for h in range(num_heads):
            g = h // group
            scores_h, scaled_h, masked_h, weights_h, context_h, d_q_h, d_bias_h = [], [], [], [], [], [], []
            for i in range(q_len):
                query, up = q[b][h][i], upstream[b][h][i]
                see = [allowed is None or allowed(b, h, i, j) for j in range(k_len)]
                raw = [_dot(query, k[b][g][j]) for j in range(k_len)]
                tanh = [math.tanh(factor * x / softcap) if softcap else 0.0 for x in raw]
                capped = [softcap * t if softcap else factor * x for x, t in zip(raw, tanh, strict=True)]
                biased = [x + (bias[b][h][i][j] if bias else 0.0) for j, x in enumerate(capped)]
                masked = [x if s else MINUS_INFINITY for x, s in zip(biased, see, strict=True)]
                masked += [] if sinks is None else [sinks[h]]
                weight = _softmax(masked)
                seen = [j for j in range(k_len) if see[j]]
                survival = [
                    (1.0 if keep is None or keep[b][h][i][j] else 0.0) / (1.0 - p) for j in range(k_len)
                ]
                context = [
                    math.fsum(weight[j] * survival[j] * v[b][g][j][d] for j in seen) for d in range(d_v)
                ]

                d_weight = {j: survival[j] * _dot(up, v[b][g][j]) for j in seen}
                mean = math.fsum(weight[j] * d_weight[j] for j in seen)
                sink_terms[h].append(0.0 if sinks is None else -weight[k_len] * mean)
                d_biased = [weight[j] * (d_weight[j] - mean) if see[j] else 0.0 for j in range(k_len)]
                d_scaled = [x * (1.0 - t * t) for x, t in zip(d_biased, tanh, strict=True)]
                for j in seen:
                    for d in range(d_k):
                        k_terms[g][j][d].append(factor * d_scaled[j] * query[d])
                    for d in range(d_v):
                        v_terms[g][j][d].append(weight[j] * survival[j] * up[d])
                d_query = [factor * math.fsum(d_scaled[j] * k[b][g][j][d] for j in seen) for d in range(d_k)]

                scores_h.append(raw)
                scaled_h.append(biased)
                masked_h.append(masked)
                weights_h.append(weight)
                context_h.append(context)
                d_q_h.append(d_query)
                d_bias_h.append(d_biased)
            scores_b.append(scores_h)
            scaled_b.append(scaled_h)
            masked_b.append(masked_h)
            weights_b.append(weights_h)
            context_b.append(context_h)
            d_q_b.append(d_q_h)
            d_bias_b.append(d_bias_h)
        out.scores.append(scores_b)
        out.scaled_scores.append(scaled_b)
        out.masked_scores.append(masked_b)
        out.weights.append(weights_b)
        out.context.append(context_b)
        out.d_q.append(d_q_b)
        out.d_bias.append(d_bias_b)
        out.d_k.append([[[math.fsum(terms) for terms in key] for key in head] for head in k_terms])
        out.d_v.append([[[math.fsum(terms) for terms in key] for key in head] for head in v_terms])
    out.d_sinks = [math.fsum(terms) for terms in sink_terms]
    return out


def _dot(x: list[float], y: list[float]) -> float:
    return math.fsum(a * b for a, b in zip(x, y, strict=True))


def _softmax(masked: list[float]) -> list[float]:
    largest = max(masked)
    if largest == MINUS_INFINITY:
        return [0.0] * len(masked)
    exponentials = [math.exp(x - largest) for x in masked]
    total = math.fsum(exponentials)
    return [x / total for x in exponentials]
