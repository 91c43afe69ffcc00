"""Attention and its gradient together: which tokens a number rests on, through all layers."""

import torch
from torch import Tensor

from regard.models import Kind
from regard.tracing.measures._gradients import Scalar, gradients_at
from regard.tracing.measures._needed import attention_tap
from regard.tracing.measures._rollout import own_attention
from regard.tracing.record import Selector, Trace, check_cost, chosen_of


def attention_gradients(
    trace: Trace, layer: int, head: int | None = None, *, of: Scalar, kind: "Kind | None" = None
) -> Tensor:
    """Attention weights times the gradient of a number with respect to them.

        A_h * dA_h,  dA_h = d of(output) / d A_h

    Args:
        layer, head, kind: as in `Trace.weights`.
        of: from the model's output to one number, as in `gradients`.

    Returns:
        float32 on the CPU, (queries, keys), or (heads, queries, keys) where head is None; with sinks one
        column more, as the weights have it. Positive entries raise the number.

    Raises:
        InputError: as `gradients`; a layer or head that is not there; or a text that is too long.

    Example:
        >>> import regard
        >>> trace = regard.load().trace("time flies like an arrow")
        >>> trace.attention_gradients(5, 0, of=lambda out: out.last_hidden_state[0, 0, 0]).shape
        torch.Size([7, 7])

    Source: Barkan et al. 2021, "Grad-SAM", arXiv 2204.11073, section 3 (there with a ReLU and a mean); Chefer
    et al. 2021, arXiv 2103.15679, equation 5.
    """
    kind = trace.kind(kind)
    layer = trace.layer_index(layer, kind)
    network = trace.require_model().network
    _check_memory(trace, kind, 1, "take gradients at q, k and v, which are small")
    name = f"{attention_tap(network, kind, layer)}.weights"
    [product] = _products(trace, of, [name])
    return (product if head is None else product[trace.head_index(head, kind, layer)]).float().cpu()


def relevance(
    trace: Trace, token: Selector | None = None, *, of: Scalar, kind: "Kind | None" = None
) -> Tensor:
    """How much a number depends on each token, by weights times gradients through all layers of a stack.

        R_0 = I,  R <- R + E_l R,  E_l = mean_h max(0, A_h * dA_h)

    Rows are propagated from the last layer down, r <- r + r E: no product of whole matrices. The weights and
    their gradients of all layers are held at once, which is O(L H N^2) memory and forecast first.

    Args:
        token: the rows of R that are wanted, such as the position that `of` reads: an index, a slice or a
            word; None gives all.
        of: from the model's output to one number.
        kind: "encoder" or "decoder"; needed only where there are both.

    Returns:
        float32 on the CPU, (tokens, N); each row holds the 1 of the token itself.

    Raises:
        InputError: as `gradients`; kind "cross"; or a text that is too long.

    Example:
        >>> import regard
        >>> trace = regard.load().trace("time flies like an arrow")
        >>> trace.relevance(0, of=lambda out: out.last_hidden_state[0, 0, 0]).shape
        torch.Size([1, 7])

    Source: Chefer, Gur and Wolf 2021, arXiv 2103.15679, section 3, equations 5 and 6 (self-attention).
    """
    stack = own_attention(trace, kind, "relevance")
    network = trace.require_model().network
    encoding = trace.stack(stack).encoding
    rows = list(chosen_of("token", encoding, token))
    layers, count = range(network.depth(stack)), len(encoding.tokens)
    _check_memory(trace, stack, len(layers), "take attention_gradients of one layer, or rollout")
    products = _products(trace, of, [f"{attention_tap(network, stack, layer)}.weights" for layer in layers])
    flow = torch.zeros(len(rows), count, dtype=torch.float64, device=products[0].device)
    flow[range(len(rows)), rows] = 1.0
    for each in reversed(products):
        flow = flow + flow @ each[..., :count].clamp(min=0.0).double().mean(dim=0)
    return flow.float().cpu()


def _check_memory(trace: Trace, kind: Kind, layers: int, instead: str) -> None:
    queries, keys = (len(side.tokens) for side in trace.sides(kind))
    network = trace.require_model().network
    check_cost(
        f"attention of {queries} tokens, with gradients, in {layers} layers of {trace.model}",
        seconds=0.0,
        device=next(network.parameters()).device,
        # Scores, weights, gradients: some six numbers of float32.
        num_bytes=24.0 * network.config.num_heads * layers * queries * keys,
        way_out=f"give a shorter text, or {instead}",
    )


def _products(trace: Trace, of: Scalar, names: list[str]) -> list[Tensor]:
    values, found = gradients_at(trace, of, names)
    return [(values[name].detach() * found[name])[0] for name in names]
