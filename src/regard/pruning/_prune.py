"""Physical pruning: which heads go first, the model without them, and where its checkpoint loads."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from regard.blocks import MultiHeadAttention
from regard.core.errors import InputError
from regard.models import (
    Heads,
    Loaded,
    Network,
    OfLayers,
    Part,
    attentions,
    check_heads,
    cut,
    family_of,
    has_table,
    our_own,
    removed_heads,
    settle,
)

Importance: TypeAlias = Tensor | Mapping[Part, Tensor]
"""(layers, heads) of the one kind of attention, or such a tensor for each kind; the least goes first."""

Step: TypeAlias = tuple[tuple[Part, int, tuple[int, ...]], ...]
"""What goes at once: kind of attention, layer, heads."""


def holds_fewer(network: Network) -> bool:
    """Whether the family's config.json can say that every layer has fewer heads: the head size is in it."""
    config: Any = network.config
    # A fixed head size in the config leaves the number of heads free.
    return "head_dim" in {field.name for field in fields(config)}


def removal_order(network: Network, importance: Importance, *, evenly: bool | None = None) -> list[Step]:
    """The steps in which a network can lose heads, the least important first, until one is left a layer.

    What goes at once is a key and value head with all the query heads that read it, whose importance is the
    sum of theirs: where there are no groups, a single head.

    Args:
        network: the network.
        importance: floating point (layers, heads), or by kind of attention; see `Importance`.
        evenly: True: a step takes one from every layer, the least important one there; where layers share
            a table with a column a head, the same from each. False: a step takes the least important one of
            the network. None: True where config.json can then say it by itself.

    Raises:
        InputError: an importance of another shape or type, not finite, or evenly with layers of unlike
            numbers of heads.
    """
    parts = attentions(network)
    scores = _scores(parts, importance)
    if evenly is not None and not isinstance(evenly, bool):
        raise InputError(f"evenly must be True, False or None; got {evenly!r}.")
    evenly = holds_fewer(network) if evenly is None else evenly
    return list(_evenly(network, parts, scores) if evenly else _one_by_one(parts, scores))


def weakest_heads(
    network: Network, importance: Importance, number: int, *, evenly: bool | None = None
) -> Heads:
    """The heads that go first, at most so many: what `prune` takes.

    Args:
        network, importance, evenly: as in `removal_order`.
        number: how many query heads, of all layers together; whole steps only, so it may be fewer.

    Raises:
        InputError: as in `removal_order`, or a number below the first step, or that leaves a layer none.

    Example:
        >>> import torch
        >>> from regard.pruning import weakest_heads
        >>> from regard.models import load_checkpoint
        >>> network = load_checkpoint().network
        >>> importance = torch.arange(72.0).view(6, 12).flip(0)
        >>> weakest_heads(network, importance, 3)
        {'encoder': {5: (0, 1, 2)}}
    """
    steps = removal_order(network, importance, evenly=evenly)
    # All steps together leave one head a layer.
    most = sum(len(heads) for step in steps for _, _, heads in step)
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= most:
        raise InputError(f"number must be from 1 to {most}, which leaves each layer a head; got {number!r}.")
    chosen: list[Step] = []
    for step in steps:
        # Steps go whole: one that would be too much ends it.
        if sum(len(heads) for each in (*chosen, step) for _, _, heads in each) > number:
            break
        chosen.append(step)
    if not chosen:
        size = sum(len(heads) for _, _, heads in steps[0])
        raise InputError(f"number must be at least {size}, the heads that go at once; got {number}.")
    return joined_steps(chosen)


def joined_steps(steps: Sequence[Step]) -> Heads:
    """All heads of some steps."""
    gone: dict[Part, dict[int, tuple[int, ...]]] = {}
    for step in steps:
        for part, layer, heads in step:
            # Steps of the same layer add up.
            before = gone.setdefault(part, {}).get(layer, ())
            gone[part][layer] = tuple(sorted((*before, *heads)))
    return {part: dict(sorted(layers.items())) for part, layers in gone.items()}


def _scores(
    parts: Mapping[Part, list[MultiHeadAttention]], importance: Importance
) -> dict[Part, list[Tensor]]:
    """float64 (groups,) of each layer."""
    if isinstance(importance, Tensor):
        if len(parts) > 1:
            raise InputError(f"importance must map each of {', '.join(parts)} to a tensor; got one tensor.")
        importance = {next(iter(parts)): importance}
    if not isinstance(importance, Mapping) or set(importance) != set(parts):
        got = (
            ", ".join(map(str, importance)) if isinstance(importance, Mapping) else type(importance).__name__
        )
        raise InputError(f"importance must have a tensor for each of {', '.join(parts)}; got {got}.")
    scores: dict[Part, list[Tensor]] = {}
    for part, layers in parts.items():
        table = importance[part]
        # Layers may have lost heads before: the width is that of the largest.
        wanted = (len(layers), max(each.num_heads for each in layers))
        if not isinstance(table, Tensor) or not table.is_floating_point() or tuple(table.shape) != wanted:
            got = f"{table.dtype} {tuple(table.shape)}" if isinstance(table, Tensor) else type(table).__name__
            raise InputError(f"importance must be floating point (layers, heads) = {wanted}; got {got}.")
        # Each layer's own heads, in float64, where sums of many keep their order.
        rows = [row[: each.num_heads] for row, each in zip(table.detach().double(), layers, strict=True)]
        if not all(bool(row.isfinite().all()) for row in rows):
            raise InputError(
                "importance must be finite, so that heads have an order; it has NaN or infinity."
            )
        # Query heads that share a key and value head go together: their importances are added.
        scores[part] = [
            row.view(each.num_kv_heads, -1).sum(dim=1) for row, each in zip(rows, layers, strict=True)
        ]
    return scores


def _of_group(attention: MultiHeadAttention, group: int) -> tuple[int, ...]:
    # Query heads that read one key and value head lie side by side.
    size = attention.num_heads // attention.num_kv_heads
    return tuple(range(group * size, (group + 1) * size))


def _one_by_one(
    parts: Mapping[Part, list[MultiHeadAttention]], scores: Mapping[Part, list[Tensor]]
) -> Iterator[Step]:
    # Sorted by score; of equals by kind, layer and group, so that the order is always the same.
    ordered = sorted(
        (score, place, part, layer, group)
        for place, part in enumerate(parts)
        for layer, row in enumerate(scores[part])
        for group, score in enumerate(row.tolist())
    )
    # What each layer still has: the last one stays.
    left = {(part, layer): len(row) for part in parts for layer, row in enumerate(scores[part])}
    for _, _, part, layer, group in ordered:
        if left[part, layer] > 1:
            left[part, layer] -= 1
            yield ((part, layer, _of_group(parts[part][layer], group)),)


def _evenly(
    network: Network,
    parts: Mapping[Part, list[MultiHeadAttention]],
    scores: Mapping[Part, list[Tensor]],
) -> Iterator[Step]:
    # Heads, and key and value heads, of every layer.
    sizes = {(each.num_heads, each.num_kv_heads) for layers in parts.values() for each in layers}
    if len(sizes) > 1:
        counts = ", ".join(str(heads) for heads, _ in sorted(sizes))
        raise InputError(
            f"evenly must be False: layers of this model have unlike numbers of heads, {counts}; or remove "
            "heads until they have the same."
        )
    ((_, groups),) = sizes
    orders: dict[Part, list[list[int]]] = {}
    for part, rows in scores.items():
        # A table has a column for each head, and all layers read it: the same heads go everywhere.
        if has_table(network, part):
            rows = [torch.stack(rows).sum(dim=0)] * len(rows)
        # Stable: of equals the lower number goes first.
        orders[part] = [row.sort(stable=True).indices.tolist() for row in rows]
    # All but one.
    for step in range(groups - 1):
        yield tuple(
            (part, layer, _of_group(parts[part][layer], order[step]))
            for part, of_layers in orders.items()
            for layer, order in enumerate(of_layers)
        )


def prune(loaded: Loaded, heads: "OfLayers | Mapping[Part, OfLayers]") -> Loaded:
    """The model without some heads: fewer parameters, and the numbers of the one with their contexts at zero.

    The rows of W_q, W_k and W_v and the columns of W_o that belong to the heads go; a key and value head goes
    with the last query head that reads it. All weights are copies: nothing that happens to one of the two
    models changes the other.

    Args:
        loaded: what `load_checkpoint` gives.
        heads: {layer: [heads]}, numbered as they are in this model, negative ones from the end; by kind of
            attention where there are several: {"encoder": {0: [3]}, "cross": {1: [0, 2]}}.

    Returns:
        The smaller model. Heads that stay are numbered from 0 again.

    Raises:
        InputError: no such head, a layer that would lose all of them, key and value heads that would be read
            by unlike numbers of query heads, or a lens. The model is left as it was.

    Example:
        >>> from regard.pruning import prune
        >>> from regard.models import load_checkpoint
        >>> smaller = prune(load_checkpoint(), {0: [3, 5], -1: [11]})
        >>> smaller.network.encoder.layers[0].attention.num_heads
        10

    Source: Michel et al. 2019, arXiv 1905.10650, section 2.
    """
    removed = check_heads(loaded.network, heads)
    total = sum(each.num_heads for layers in attentions(loaded.network).values() for each in layers)
    number = sum(len(of_layer) for layers in removed.values() for of_layer in layers.values())
    # A deep copy: nothing is shared between the two models.
    network = copy.deepcopy(our_own(loaded.network))
    cut(network, removed)
    settle(network, loaded.family)
    name = f"{loaded.source.name} without {number} of {total} heads"
    return replace(loaded, network=network, source=replace(loaded.source, name=name))


def loads_in(loaded: Loaded) -> tuple[str, ...]:
    """Where the checkpoint that `save_checkpoint` writes of a model loads, with the same numbers.

    A model whose fields say all loads wherever its family does. Elsewhere than listed the tensors' shapes are
    not what the fields say, so that loading is refused.

    Example:
        >>> from regard.pruning import loads_in, prune
        >>> from regard.models import load_checkpoint
        >>> loads_in(load_checkpoint())
        ('everything that takes sizes from config.json',)
        >>> loads_in(prune(load_checkpoint(), {0: [3]}))
        ('regard', 'transformers 5 with trust_remote_code=True', 'transformers 4')
    """
    # Nothing is missing, so the fields say all.
    if not removed_heads(our_own(loaded.network)):
        return ("everything that takes sizes from config.json",)
    places = ["regard"]
    family = family_of(loaded.family)
    if family.pruned_by_code:
        places.append("transformers 5 with trust_remote_code=True")
    if family.pruned_in_4:
        places.append("transformers 4")
    return tuple(places)
