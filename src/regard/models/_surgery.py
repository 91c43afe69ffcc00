"""Heads cut out of a network: which there are, which can go, the cut itself, and what config.json says of it.

Where a family's own fields cannot say what was removed, this stands beside them:

* `pruned_heads`, {layer: [heads]}, in the form that transformers had until version 4 and obeys there; of an
  encoder-decoder {"encoder": {layer: [heads]}, "decoder": .., "cross": ..}, which it never had.
* `pruned_shapes`, {name of a tensor: shape}, and `auto_map`, for the classes in `CODE`, which transformers 5
  takes with `trust_remote_code=True`. Without, its own classes refuse the tensors' shapes.

All tensors keep their names. Nothing that reads such a folder can take it for another network: the shapes
are not those of the fields.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from torch import nn

from regard.blocks import Attention, MultiHeadAttention, Stack
from regard.checkpoints import Fields, HeadKind, to_hf
from regard.core.arguments import index_of, one_of
from regard.core.errors import CheckpointError, InputError
from regard.models._init import blank
from regard.models._network import Network
from regard.models._transformer import Transformer
from regard.models.families import Family, family_of
from regard.positions import RelativeBias

Part: TypeAlias = Literal["encoder", "decoder", "cross"]
"""The kinds of attention."""

OfLayers: TypeAlias = Mapping[int, Sequence[int]]
"""For some layers, numbers of heads."""

Heads: TypeAlias = Mapping[Part, Mapping[int, tuple[int, ...]]]
"""For each kind of attention and some of its layers, numbers of heads, rising."""


def our_own(network: Network) -> Transformer:
    """The network, if it is one that regard built, with its own modules and weights.

    Raises:
        InputError: it is a lens, or edits around another.
    """
    if not isinstance(network, Transformer):
        raise InputError(
            "model must be of a family of regard's own, with no edits on it; got "
            f"{type(network).__name__}. Of an edited model take the one that was edited; a model of "
            "transformers under a lens writes itself with save_pretrained(folder), for regard.load(folder)."
        )
    return network


def attentions(network: Network) -> dict[Part, list[MultiHeadAttention]]:
    """Every attention of a network, by its kind, a list over the layers.

    Raises:
        InputError: the network is not one that regard built, or its attention has no heads to cut.
    """
    # First what it has, then whether heads can be cut out of all of it.
    parts = _attentions(our_own(network))
    for part, layers in parts.items():
        others = {type(each).__name__ for each in layers if not isinstance(each, MultiHeadAttention)}
        if others:
            raise InputError(
                f"model must have heads that can be cut out; its {part} attention is {', '.join(others)}."
            )
    return parts


def _attentions(network: Network) -> dict[Part, list[MultiHeadAttention]]:
    """Every attention by its kind, also what is no `MultiHeadAttention`; {} of another library's network."""
    by_kind: dict[Part, list[MultiHeadAttention]] = {}
    for kind in network.prefixes:
        if (stack := network.stack(kind)) is None:
            continue
        layers = stack.layers
        parts: dict[Part, str] = {kind: "attention"}
        # A decoder beside an encoder has a second attention in each layer.
        if kind == "decoder" and len(network.prefixes) == 2:
            parts["cross"] = "cross_attention"
        for part, name in parts.items():
            # A recurrent stack has no attention of its own, in any layer.
            each = [getattr(layer, name) for layer in layers if hasattr(layer, name)]
            by_kind |= {part: each} if each else {}
    return by_kind


def removed_heads(network: Network) -> Heads:
    """The heads that a network has lost and that its config still counts, as they were numbered before.

    There are none where the config says the smaller number itself, or the network is another library's.
    """
    by_kind = _attentions(network)
    return {
        part: lost
        for part, layers in by_kind.items()
        if (lost := {layer: gone for layer, each in enumerate(layers) if (gone := _gone(each))})
    }


def _gone(attention: Attention) -> tuple[int, ...]:
    if not isinstance(attention, MultiHeadAttention):
        return ()
    # Numbers from when the layer was built.
    return tuple(sorted(set(range(attention.num_built)) - set(attention.kept)))


def check_heads(network: Network, heads: "OfLayers | Mapping[Part, OfLayers]") -> Heads:
    """Heads that somebody asks to be removed, counted from 0: each of them is there, each layer keeps one.

    Args:
        network: the network.
        heads: layers and heads, negative ones from the end; by kind of attention where there are several.

    Raises:
        InputError: of another form, out of range, none at all, all of a layer, or a choice that leaves key
            and value heads with unlike numbers of query heads.
    """
    parts = attentions(network)
    wanted: dict[Part, dict[int, tuple[int, ...]]] = {}
    # Names and numbers of any kind become numbers from 0.
    for part, layers in _by_part(parts, heads).items():
        one_of("heads", part, parts)
        if not isinstance(layers, Mapping):
            raise InputError(f"heads must map layers to lists of heads; got {type(layers).__name__}.")
        for layer, chosen in layers.items():
            index = index_of(f"heads: a layer of {part}", layer, len(parts[part]))
            attention = parts[part][index]
            if not isinstance(chosen, Sequence | Set) or isinstance(chosen, str):
                raise InputError(f"heads must map layer {layer} to a list of heads; got {chosen!r}.")
            numbers = {index_of(f"heads[{layer}]", head, attention.num_heads) for head in chosen}
            # -1 and 11 may mean one layer: their heads are joined.
            numbers |= set(wanted.get(part, {}).get(index, ()))
            if numbers:
                _check_layer(part, index, attention, numbers)
                wanted.setdefault(part, {})[index] = tuple(sorted(numbers))
    if not wanted:
        raise InputError("heads must name at least one head, such as {0: [3]}; got none.")
    return wanted


def _by_part(parts: Mapping[Part, Any], heads: Any) -> Mapping[Part, Any]:
    if not isinstance(heads, Mapping):
        raise InputError(f"heads must map layers to lists of heads, such as {{0: [3]}}; got {heads!r}.")
    # Names of attentions: {"cross": {0: [3]}}.
    if all(isinstance(key, str) for key in heads):
        return heads
    if len(parts) > 1:
        raise InputError(
            f"heads must say which attention it means, since this model has several: "
            f"{{'{next(iter(parts))}': {{0: [3]}}}}, of {', '.join(parts)}."
        )
    # One kind only: it need not be named.
    return {next(iter(parts)): heads}


def _check_layer(part: Part, layer: int, attention: MultiHeadAttention, removed: set[int]) -> None:
    kept = [head for head in range(attention.num_heads) if head not in removed]
    where = f"layer {layer}" if part != "cross" else f"the cross-attention of layer {layer}"
    if not kept:
        raise InputError(
            f"heads must leave {where} at least one of its {attention.num_heads} heads; a layer without "
            "attention is another architecture. Leave the least harmful one."
        )
    # Grouped attention has groups of one size; a key head without any query head goes too.
    # Query heads that share a key head.
    size = attention.num_heads // attention.num_kv_heads
    # How many query heads each key head keeps.
    left = [sum(head // size == group for head in kept) for group in range(attention.num_kv_heads)]
    if len(set(left) - {0}) > 1:
        raise InputError(
            f"heads must leave the key and value heads of {where} as many query heads each, of {size}, or "
            f"none; {left} would be left. Remove whole groups, such as {list(range(size))}, or as many heads "
            "of each group."
        )


def cut(network: Transformer, heads: Heads) -> None:
    """Remove heads that `check_heads` has passed, numbered as they are now, in place."""
    parts = attentions(network)
    for part, layers in heads.items():
        for layer, removed in layers.items():
            attention = parts[part][layer]
            # Cutting is said by what stays.
            attention.keep_heads([head for head in range(attention.num_heads) if head not in set(removed)])


def settle(network: Transformer, family: str) -> bool:
    """Say the smaller number of heads in the network's config, in place, where config.json has words for it.

    It has them where the size of a head is a field of its own, and every attention of the network has the
    same number of heads left; where layers share a table with a column for each head (T5), the same heads.

    Returns:
        Whether the config says it now. Otherwise the network remembers what was removed: `removed_heads`.
    """
    parts = attentions(network)
    everywhere = [attention for layers in parts.values() for attention in layers]
    # One number of heads for all layers is all that config.json can say.
    sizes = {(attention.num_heads, attention.num_kv_heads) for attention in everywhere}
    config: Any = network.config
    names = {field.name for field in fields(config)}
    if "head_dim" not in names or len(sizes) != 1:
        return False
    ((num_heads, num_kv_heads),) = sizes
    # transformers refuses such a config.
    if family_of(family).heads_divide and config.d_model % num_heads:
        return False
    # A table of biases has a column for each head: all layers must have kept the same.
    shared = [kind for kind in network.prefixes if has_table(network, kind)]
    if any(len({each.kept for each in parts[kind]}) > 1 for kind in shared):
        return False
    for kind in shared:
        _keep_columns(network.stack(kind), parts[kind][0].kept)
    for attention in everywhere:
        # The heads are numbered anew: nothing is missing any more.
        attention.kept, attention.num_built = tuple(range(num_heads)), num_heads
    more = {"num_kv_heads": num_kv_heads} if "num_kv_heads" in names else {}
    network.config = replace(config, num_heads=num_heads, **more)
    return True


def has_table(network: Network, part: Part) -> bool:
    """Whether the layers share a table of relative biases, with a column for each head."""
    stack = None if part == "cross" else network.stack(part)
    return stack is not None and isinstance(stack.bias, RelativeBias)


def _keep_columns(stack: Stack, heads: Sequence[int]) -> None:
    assert isinstance(stack.bias, RelativeBias)
    old = stack.bias.table
    # Rows are buckets of distances, columns are heads.
    weight = old.weight.detach()[:, list(heads)].contiguous()
    # With its weights at once: to draw some on the meta device would make torch import its compiler.
    is_frozen = not old.weight.requires_grad
    stack.bias.table = nn.Embedding.from_pretrained(weight, freeze=is_frozen)  # type: ignore[no-untyped-call]


def head_words(heads: Heads, *, several: bool) -> list[str]:
    """Each head as a word: layer and head, with the kind of attention before them where there are several."""
    return [
        f"{f'{part}.' if several else ''}{layer}.{head}"
        for part, layers in heads.items()
        for layer, numbers in layers.items()
        for head in numbers
    ]


def heads_told(network: Network) -> str:
    """How many heads its layers have, in words.

    Example:
        >>> from regard.models import load_checkpoint
        >>> from regard.pruning import prune
        >>> heads_told(prune(load_checkpoint(), {0: [3]}).network)
        '12 heads less 1 in all'
    """
    number = len(removed_words(network))
    heads = f"{network.config.num_heads} heads"
    return f"{heads} less {number} in all" if number else heads


def removed_words(network: Network) -> list[str]:
    """Heads that the config counts and the network lacks: `3.5`, layer and head, or `cross.3.5`, kind before.

    Example:
        >>> from regard.models import load_checkpoint
        >>> from regard.pruning import prune
        >>> removed_words(prune(load_checkpoint(), {0: [3], 2: [1, 7]}).network)
        ['0.3', '2.1', '2.7']
    """
    return head_words(removed_heads(network), several=len(_attentions(network)) > 1)


CODE = "modeling_regard_pruned"
"""The module that transformers reads, without the ending."""

_PRUNED, _SHAPES, _AUTO = "pruned_heads", "pruned_shapes", "auto_map"

_AUTO_CLASSES: dict[HeadKind | None, str] = {
    None: "AutoModel",
    "masked-lm": "AutoModelForMaskedLM",
    "language-model": "AutoModelForCausalLM",
    "sequence": "AutoModelForSequenceClassification",
    "token": "AutoModelForTokenClassification",
    "replaced": "AutoModelForPreTraining",
}


def without_pruned(fields: Fields) -> tuple[Fields, dict[str, Any]]:
    """The fields without those about removed heads, and what `pruned_heads` says."""
    values = dict(fields.values)
    pruned = values.get(_PRUNED)
    # The usual checkpoint, of which nothing was cut.
    if not pruned:
        return fields, {}
    if not isinstance(pruned, dict):
        raise CheckpointError(f"{fields.file}: the field {_PRUNED!r} must be an object; got {pruned!r}")
    # Our own module for transformers is passed over; others' are refused later.
    code = values.get(_AUTO, {})
    if isinstance(code, dict) and all(str(name).startswith(f"{CODE}.") for name in code.values()):
        values.pop(_AUTO, None)
    for name in (_PRUNED, _SHAPES):
        values.pop(name, None)
    return Fields(file=fields.file, values=values), pruned


def cut_as_stored(network: Transformer, pruned: Mapping[str, Any], file: Path) -> None:
    """Remove the heads that config.json names, in place."""
    if not pruned:
        return
    # Several kinds of attention, or layers at once.
    by_part = all(isinstance(value, dict) for value in pruned.values())
    try:
        heads: Any = {part: _layers(of) for part, of in pruned.items()} if by_part else _layers(pruned)
        # The same checks as of a caller's.
        cut(network, check_heads(network, heads))
    except InputError as error:
        raise CheckpointError(f"{file}: the field {_PRUNED!r}: {error}") from error


def _layers(stored: Mapping[str, Any]) -> dict[int, Any]:
    if any(not name.isdecimal() for name in stored):
        raise InputError(f"layers must be numbers in quotes; got {', '.join(map(repr, stored))}.")
    return {int(name): heads for name, heads in stored.items()}


def pruned_fields(network: Transformer, family: Family) -> dict[str, Any]:
    """The fields of config.json that say what was removed: none where the family's own say it."""
    removed = removed_heads(network)
    if not removed:
        return {}
    written: dict[str, Any] = {_PRUNED: _on_disk(network, removed)}
    if not family.pruned_by_code:
        return written
    with blank():  # only shapes are compared
        whole = family.build(network.config)
    # Shapes by the names on disk, whole and cut.
    before = to_hf(whole, family.keys, prefix="")
    after = to_hf(network, family.keys, prefix="")
    return {
        **written,
        # transformers builds whole layers: our module cuts these to size.
        _SHAPES: {
            name: list(tensor.shape) for name, tensor in after.items() if tensor.shape != before[name].shape
        },
        _AUTO: _auto_map(network),
    }


def _on_disk(network: Transformer, removed: Heads) -> dict[str, Any]:
    def layers_of(part: Part) -> dict[str, list[int]]:
        return {str(layer): list(heads) for layer, heads in removed[part].items()}

    if len(network.prefixes) == 1:
        return layers_of(next(iter(network.prefixes)))
    return {part: layers_of(part) for part in removed}


def _auto_map(network: Transformer) -> dict[str, str]:
    config: Any = network.config
    # The model without a head, and with it.
    classes = {"AutoModel": replace(config, head=None).to_hf()["architectures"][0]}
    if config.head is not None:
        name = _AUTO_CLASSES[config.head]
        if config.head == "language-model" and len(network.prefixes) == 2:
            name = "AutoModelForSeq2SeqLM"
        classes[name] = config.to_hf()["architectures"][0]
    return {auto: f"{CODE}.{name}" for auto, name in classes.items()}
