"""Physical pruning: a model without some of its heads, and where its checkpoint loads."""

import copy
from collections.abc import Mapping
from dataclasses import replace

from regard.models import (
    WITHOUT_CODE,
    Loaded,
    OfLayers,
    Part,
    attentions,
    check_heads,
    cut,
    our_own,
    removed_heads,
    settle,
)

# Where transformers 4 cuts the heads of `pruned_heads` when it loads: tried with 4.57.1. MPNet's layers and
# T5's have the method, and fail in the forward pass and in the cut.
_IN_TRANSFORMERS_4 = frozenset({"bert", "distilbert", "electra", "gpt2", "roberta", "xlm-roberta"})


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
        >>> from regard.models import load_checkpoint
        >>> smaller = prune(load_checkpoint(), {0: [3, 5], -1: [11]})
        >>> smaller.network.encoder.layers[0].attention.num_heads
        10

    Source: Michel et al. 2019, arXiv 1905.10650, section 2.
    """
    removed = check_heads(loaded.network, heads)
    total = sum(each.num_heads for layers in attentions(loaded.network).values() for each in layers)
    number = sum(len(of_layer) for layers in removed.values() for of_layer in layers.values())
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
        >>> from regard.models import load_checkpoint
        >>> loads_in(load_checkpoint())
        ('everything that takes sizes from config.json',)
        >>> loads_in(prune(load_checkpoint(), {0: [3]}))
        ('regard', 'transformers 5 with trust_remote_code=True', 'transformers 4')
    """
    if not removed_heads(our_own(loaded.network)):
        return ("everything that takes sizes from config.json",)
    places = ["regard"]
    if loaded.family not in WITHOUT_CODE:
        places.append("transformers 5 with trust_remote_code=True")
    if loaded.family in _IN_TRANSFORMERS_4:
        places.append("transformers 4")
    return tuple(places)
