"""Checkpoints with heads removed, for transformers 5: regard puts this beside the config.json that names it.

    AutoModel.from_pretrained(folder, trust_remote_code=True)

transformers gives each layer of a network as many heads as config.json says for all of them. The classes here
are its own, whose attention gets the sizes in `pruned_shapes` once it is built; nothing else is changed.
A model without that field stays as it is. regard itself never imports this file: it copies it.
"""

from typing import Any

import torch
import transformers
from torch import nn

_HEAD_SIZES = ("attention_head_size", "head_dim", "key_value_proj_dim")
_HEAD_COUNTS = ("num_attention_heads", "num_heads", "n_heads")
_JOINED_SIZES = ("all_head_size", "split_size", "inner_dim")
_QUERIES = ("query", "q_proj", "q_lin", "query_proj", "q")
_FUSED = ("c_attn", "Wqkv")


def __getattr__(name: str) -> Any:
    """The class of that name in transformers, with the sizes of `pruned_shapes`."""
    # transformers asks this module for the class that config.json names.
    base = getattr(transformers, name, None)
    if not isinstance(base, type) or not issubclass(base, transformers.PreTrainedModel):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def init(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:
        base.__init__(self, config, *args, **kwargs)
        _shrink(self, config)

    pruned_class = type(name, (base,), {"__init__": init, "__module__": __name__, "__doc__": base.__doc__})
    # Made once: pickle finds it here.
    globals()[name] = pruned_class
    return pruned_class


def _shrink(model: Any, config: Any) -> None:
    # Shapes by names without the prefix of a model with a head.
    shapes: dict[str, list[int]] = getattr(config, "pruned_shapes", None) or {}
    inner = getattr(model, model.base_model_prefix, model)
    attentions = {}
    for name, shape in shapes.items():
        path, _, part = name.rpartition(".")
        if part != "weight":
            continue  # a bias goes with its weight
        parent_path, _, child = path.rpartition(".")
        parent = inner.get_submodule(parent_path)
        # Smaller layers in the places of whole ones; the weights come with loading.
        setattr(parent, child, _of_shape(getattr(parent, child), shape))
        # Whose numbers of heads must follow.
        attentions[parent_path] = parent
    for path, module in attentions.items():
        _count(module)
        if config.model_type == "mpnet" and hasattr(module, "attention_head_size"):
            _narrow_bias(module, _kept(path, config))


def _of_shape(old: Any, shape: list[int]) -> Any:
    if list(old.weight.shape) == list(shape):
        return old
    if isinstance(old, nn.Linear):
        new: Any = nn.Linear(shape[1], shape[0], bias=old.bias is not None)
    else:  # GPT-2's layers, which store (in, out)
        new = type(old)(shape[1], shape[0])
    return new.to(device=old.weight.device, dtype=old.weight.dtype)


def _count(module: Any) -> None:
    """Tell an attention module how many heads it has; the linear layer after it may lie in another module."""
    size = next((getattr(module, name) for name in _HEAD_SIZES if hasattr(module, name)), None)
    if size is None:
        return
    # Rows of the queries' matrix: heads times their size.
    rows = next((getattr(module, name).weight.shape[0] for name in _QUERIES if hasattr(module, name)), None)
    if rows is None:
        fused = next(getattr(module, name) for name in _FUSED if hasattr(module, name))
        # Queries, keys and values in one matrix.
        rows = (fused.weight.shape[0] if isinstance(fused, nn.Linear) else fused.weight.shape[1]) // 3
    for name in _HEAD_COUNTS:
        if hasattr(module, name):
            setattr(module, name, rows // size)
    for name in _JOINED_SIZES:
        if hasattr(module, name):
            setattr(module, name, rows)
    if hasattr(module, "num_key_value_groups"):
        module.num_key_value_groups = rows // module.k_proj.weight.shape[0]


def _kept(path: str, config: Any) -> list[int]:
    layer = next(int(part) for part in path.split(".") if part.isdecimal())
    pruned = {int(number): heads for number, heads in config.pruned_heads.items()}
    return [head for head in range(config.num_attention_heads) if head not in pruned.get(layer, ())]


def _narrow_bias(module: Any, kept: list[int]) -> None:
    """MPNet works its bias out once for all layers and heads: give a layer that of its own heads."""

    def narrow(
        _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        # (batch, heads, queries, keys)
        def of(bias: Any) -> Any:
            return bias[:, kept] if isinstance(bias, torch.Tensor) and bias.dim() == 4 else bias

        args = tuple(of(each) if place == 2 else each for place, each in enumerate(args))
        if "position_bias" in kwargs:
            kwargs = {**kwargs, "position_bias": of(kwargs["position_bias"])}
        return args, kwargs

    module.register_forward_pre_hook(narrow, with_kwargs=True)
