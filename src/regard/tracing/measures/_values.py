"""What values add to weights: how much a head takes from each token, and what is lost without its value."""

from collections.abc import Iterator
from copy import copy

import torch
from torch import Tensor, nn

from regard.blocks import DecoderLayer, SelfAttentionLayer, learned
from regard.core import Taps, attention_weights
from regard.core.errors import InputError
from regard.core.tensors import unit
from regard.models import Kind, Network, attention_name, stack_of
from regard.tracing.measures._readout import attention_tap, hidden_of, output_of, projection_of, widened
from regard.tracing.record import Selector, Trace, check_cost, chosen_of
from regard.tracing.run import rerun

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
    # (kv_heads, keys, v_dim)
    v, projection = trace.attention_of(layer, kind).inputs.v[0], projection_of(trace, kind, layer)
    keys = list(chosen_of("key", trace.sides(kind)[1].encoding, key))
    # Without the column of an attention sink, which has no value.
    weights = trace.weights(layer, head, kind=kind, query=query, key=key)[..., : len(keys)]
    heads = range(len(weights)) if head is None else [trace.head_index(head, kind, layer)]
    # |f_h(v_j)|, the size of each transformed value: (heads, keys)
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
    # (heads, queries, keys)
    weights = trace.weights(layer, kind=kind, query=query, key=key)[..., : len(keys)].to(v.device).double()
    result = torch.empty(weights.shape[1:], dtype=torch.float32)
    for start in range(0, len(keys), _KEYS):
        some = slice(start, start + _KEYS)
        # Transformed values of some keys at a time: (keys, d_model) of each head.
        parts = [projection.of_values(v[:, keys[some]], head) for head in range(len(weights))]
        # (keys, heads, d_model)
        taken = torch.stack(parts, dim=1)
        # |sum_h a_h f_h|^2 = a^T (f f^T) a: never queries x keys x d_model.
        alpha = weights[:, :, some].permute(2, 1, 0)
        squared = ((alpha @ (taken @ taken.mT)) * alpha).sum(dim=2)
        # Rounding may leave less than 0 under the root.
        result[:, some] = squared.clamp(min=0.0).sqrt().mT.float().cpu()
    return result


_FLOPS = 2e10
"""What two cores do in a second in float64, for the forecast."""

_ENTRIES = 2**22
"""Numbers of changed outputs that are worked on at a time; the feed-forward network holds ten for each."""

_FEW = 2**18
"""The same where other work waits between two blocks: they take a part of a second each."""


def value_zeroing(
    trace: Trace,
    layer: int,
    *,
    kind: "Kind | None" = None,
    query: Selector | None = None,
    key: Selector | None = None,
) -> Tensor:
    """How much each token's output of a layer changes when the value of another token is set to zero.

        C_ij = 1 - cos(y_i without v_j, y_i)

    y is what the layer hands on, after attention, residuals, norms and feed-forward network (and before the
    stack's last norm). v_j is zero in every head, the weights stay. On regard's own models only the layer is
    worked out again, in float64; through the lens the model runs once for every key, up to that layer.

    Args:
        layer: attention layer.
        kind: "encoder", "decoder" or "cross"; needed only where there are several.
        query, key: the tokens i and j: an index, a slice or a word; None gives all.

    Returns:
        float32 on the CPU, (queries, keys): cosine distances, from 0 to 2. Rows are not normalised.

    Raises:
        InputError: a layer, token or word that is not there; a model or parts of the trace that are not at
            hand; or more keys than the forecast lets through, which says what would.

    Example:
        >>> import regard
        >>> trace = regard.load().trace("time flies like an arrow")
        >>> trace.value_zeroing(2, key="flies").shape
        torch.Size([7, 1])

    Source: Mohebbi et al. 2023, arXiv 2301.12971, section 3, equations 3 to 5.
    """
    kind = trace.kind(kind)
    layer = trace.layer_index(layer, kind)
    of_queries, of_keys = trace.sides(kind)
    rows = list(chosen_of("query", of_queries.encoding, query))
    keys = list(chosen_of("key", of_keys.encoding, key))
    network = trace.require_model().network
    # None through the lens: there layers are run by passes.
    module = network.layer(stack_of(kind), layer)
    # By passes every query is computed, whatever is asked for.
    queries = len(rows) if module is not None else len(of_queries.tokens)
    pairs = queries * len(keys)
    width, numbers = network.config.d_model, sum(each.count for each in learned(module or network))
    check_cost(
        f"value zeroing of {len(keys)} keys for {queries} queries of {trace.model}",
        seconds=2 * pairs * numbers / _FLOPS,  # each parameter multiplies once and adds once
        device=next(network.parameters()).device,
        # The result, and ten numbers of float64 for each of the outputs that are worked on at a time.
        num_bytes=4.0 * pairs + 80.0 * min(pairs * width, max(_ENTRIES, queries * width)),
        way_out="ask for some tokens with query= and key=",
    )
    return torch.cat(list(_blocks(trace, kind, layer, rows, keys, _ENTRIES)), dim=1)


def value_zeroing_blocks(trace: Trace, kind: "Kind", layer: int) -> Iterator[Tensor]:
    """The same of all tokens, some keys at a time: (queries, some keys), in the order of the keys.

    Each block is a part of a second's work on a model for a laptop, and nothing runs between two of them: a
    notebook goes on with other work, or leaves off. So there is no limit of time. Errors are those of
    `value_zeroing`, before the first block.
    """
    rows, keys = (list(range(len(side.encoding.tokens))) for side in trace.sides(kind))
    trace.require_model()
    return _blocks(trace, kind, layer, rows, keys, _FEW)


def _blocks(
    trace: Trace, kind: "Kind", layer: int, rows: list[int], keys: list[int], entries: int
) -> Iterator[Tensor]:
    network = trace.require_model().network
    module = network.layer(stack_of(kind), layer)
    # regard's own layers are run by themselves, from what the trace recorded.
    if module is not None:
        return _by_layer(trace, module, kind, layer, rows, keys, entries)
    return _by_passes(trace, network, kind, layer, rows, keys, entries)


def _by_layer(
    trace: Trace,
    module: nn.Module,
    kind: "Kind",
    layer: int,
    rows: list[int],
    keys: list[int],
    entries: int,
) -> Iterator[Tensor]:
    stack = stack_of(kind)
    inputs = trace.attention_of(layer, kind).inputs
    v, projection = inputs.v[0], projection_of(trace, kind, layer)
    x = hidden_of(trace, stack)[layer]
    # A layer that mixes positions outside attention, as DeBERTa's convolution does, needs them all.
    worked = rows if type(module) in (SelfAttentionLayer, DecoderLayer) else list(range(len(x)))
    name = attention_name(kind)
    kinds: tuple[Kind, ...] = (stack, "cross") if isinstance(module, DecoderLayer) else (stack,)
    # Attention outputs as recorded: (1, positions, d_model).
    known = {attention_name(each): output_of(trace, each, layer)[None, worked].double() for each in kinds}
    # The heads' sum, not the recorded one, which is rounded: where a token sees itself alone, all of it goes.
    known[name] = projection.of_contexts(trace.attention_of(layer, kind).context[None, :, worked])
    arguments: dict[str, Tensor] = {}
    if isinstance(module, DecoderLayer):
        arguments["encoded"] = hidden_of(trace, "encoder")[-1][None].double()
        if kind != "cross":
            del known["cross_attention"]  # its queries change too: it runs
    # Widened once; outputs are put in at each run.
    bare = widened(_with_given(module, **dict.fromkeys(known, torch.empty(0))))
    x = x[None, worked].double()

    def run(outputs: dict[str, Tensor]) -> Tensor:
        batch = len(outputs[name])
        some = {each: value.expand(batch, -1, -1) for each, value in arguments.items()}
        output: Tensor = _with_given(bare, **outputs)(x.expand(batch, -1, -1), **some)
        return output

    # All positions were worked out: keep those that were asked for.
    back = slice(None) if worked is rows else rows
    at = torch.tensor(worked, device=v.device)
    # So many keys at a time.
    size = max(1, entries // (len(worked) * x.shape[2]))
    with torch.no_grad():
        # The layer as it is.
        whole = run(known)[0, back]
    for start in range(0, len(keys), size):
        some = keys[start : start + size]
        # Not around the yield: no_grad would then hold for whoever asks.
        with torch.no_grad():
            weights = attention_weights(inputs, at, torch.tensor(some, device=v.device))[0].double()
            # What each query loses without each of these keys: weight x transformed value, summed over
            # heads.
            lost = sum(
                weights[head].T[:, :, None] * projection.of_values(v[:, some], head)[:, None]
                for head in range(inputs.num_heads)
            )
            # The layer with that taken off, one row of the batch for each key.
            changed = run(known | {name: known[name] - lost})
        yield _distance(changed[:, back], whole).T.float().cpu()


class _Given(nn.Module):
    """Stands in for an attention whose output (.., positions, d_model) is known."""

    def __init__(self, output: Tensor) -> None:
        super().__init__()
        self.output = output

    def forward(self, x: Tensor, *arguments: object, **options: object) -> Tensor:
        """The known output, in the type of x."""
        del arguments, options
        return self.output.to(x.dtype)


def _with_given(layer: nn.Module, **outputs: Tensor) -> nn.Module:
    """The same layer, with the same parameters, whose attentions of these names give these outputs."""
    # A shallow copy: parameters are shared, the dictionary of modules is its own.
    other = copy(layer)
    other._modules = dict(layer._modules)
    for name, output in outputs.items():
        other._modules[name] = _Given(output)
    return other


class _Enough(Exception):
    """Raised to end a pass: the layer's output is there, and what follows need not run."""


def _by_passes(
    trace: Trace,
    network: Network,
    kind: "Kind",
    layer: int,
    rows: list[int],
    keys: list[int],
    entries: int,
) -> Iterator[Tensor]:
    values = f"{attention_tap(network, kind, layer)}.v"
    output = f"{network.prefixes[stack_of(kind)]}layers.{layer}.output"
    if output not in network.tap_names():
        raise InputError(
            f"value zeroing needs the output of layer {layer}, which {trace.model} does not show through the "
            "lens; ask for weights, or norm_weighted."
        )
    # Passes hold several tensors of this size.
    batch = max(1, entries // (len(trace.tokens) * network.config.d_model * 4))
    for start in range(0, len(keys), batch):
        some = keys[start : start + batch]
        seen: list[Tensor] = []

        def zero(v: Tensor, some: list[int] = some) -> Tensor:
            v = v.clone()
            # Row 0 of the batch keeps all values; row i loses key i.
            v[range(1, len(some) + 1), :, some] = 0.0
            return v

        def stop(value: Tensor, seen: list[Tensor] = seen) -> None:
            seen.append(value)
            # What follows the layer need not run.
            raise _Enough

        try:
            with torch.no_grad():
                rerun(trace, network, batch=len(some) + 1, taps=Taps({values: zero, output: stop}))
        except _Enough:
            pass
        states = seen[0].double()[:, rows]  # the first is the model as it is
        yield _distance(states[1:], states[0]).T.float().cpu()


def _distance(changed: Tensor, whole: Tensor) -> Tensor:
    """1 - cos over the last axis, as half the squared distance of unit vectors: near 0 nothing cancels."""
    return 0.5 * (unit(changed) - unit(whole)).square().sum(dim=-1)
