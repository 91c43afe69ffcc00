"""A network whose decoder reads its weights by kernels of regard's own."""

import copy
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal, TypeVar, get_args

import torch
from torch import nn

from regard.blocks import Linear
from regard.core.arguments import one_of
from regard.core.errors import InputError
from regard.core.extras import missing
from regard.models import Loaded, Network, Transformer

Precision = Literal["float32", "bfloat16", "int8"]
"""What a decoder's weights are stored in; it computes in float32."""

_STORED: dict[Precision, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "int8": torch.int8,
}

ModelT = TypeVar("ModelT", Network, Loaded)
ModuleT = TypeVar("ModuleT", bound=nn.Module)


def prepared(model: ModelT, precision: Precision = "float32") -> ModelT:
    """The model, made to write texts: its decoder and head read weights as fast as memory gives them.

    The time of a token is that of reading all weights once, so that half the bytes take half of it. What is
    computed stays in float32: only weights are rounded, to 8 bits of significand in bfloat16, and to codes
    of 8 bits with a scale for each output in int8. Linear maps of other sizes than the kernels know stay as
    they are.

    Args:
        model: it stays as it is; in float32 the weights are shared with it.
        precision: what the weights of the decoder's linear maps are stored in.

    Raises:
        InputError: a network of another kind than regard's own, on a GPU, without a decoder, or on a
            processor without AVX2; one whose weights are rounded otherwise.
        MissingExtraError: llvmlite is not installed.

    Example:
        >>> from regard.decoding import Rules, greedy
        >>> from regard.models.families.gpt2 import Gpt2Config, build
        >>> network = build(Gpt2Config(vocab_size=13, d_model=64, num_layers=1, num_heads=2, d_ff=128)).eval()
        >>> small = prepared(network, "int8")
        >>> [len(written.token_ids) for written in greedy(small, [[3, 1]], rules=Rules(max_length=5))]
        [5]
    """
    one_of("precision", precision, get_args(Precision))
    if isinstance(model, Loaded):
        return replace(model, network=prepared(model.network, precision))
    if not isinstance(model, Transformer) or model.decoder is None:
        raise InputError("model must have a decoder of regard's own, to be prepared for writing.")
    if not _on_fit_processor(model):
        raise InputError(
            f"precision must not be {precision!r} here: what reads the weights needs a processor with AVX2, "
            "and the model on it. Use the model as it is."
        )
    try:
        from regard.kernels import FewRowsLinear  # only here: it is not always installed, and takes its time
    except ImportError as error:
        raise missing(f"precision={precision!r} needs", error, "llvmlite") from error

    wanted = _STORED[precision]

    def exchanged(linear: nn.Module) -> nn.Module | None:
        if type(linear) not in (Linear, nn.Linear, FewRowsLinear):
            return None
        assert isinstance(linear, nn.Linear | FewRowsLinear)
        now = linear.stored if isinstance(linear, FewRowsLinear) else linear.weight.dtype
        if isinstance(linear, FewRowsLinear) and now not in (torch.float32, wanted):
            raise InputError(
                f"precision must not be {precision!r} of a model whose weights are in "
                f"{str(now).removeprefix('torch.')}; prepare the model that this was made of."
            )
        done = isinstance(linear, FewRowsLinear) and now == wanted
        return linear if done or not FewRowsLinear.takes(linear) else FewRowsLinear(linear, wanted)

    if any(each.dtype != torch.float32 for each in model.parameters()):
        model = copy.deepcopy(model).float()
    parts = {"decoder": model.decoder, "head": model.head}
    made: dict[nn.Module, nn.Module] = {}
    return _with(model, {name: _exchanged(part, exchanged, made) for name, part in parts.items() if part})


def at_best(network: Network) -> Network:
    """The network `prepared` in float32 where that can be, and is in it; else as it is."""
    if not isinstance(network, Transformer) or network.decoder is None or not _on_fit_processor(network):
        return network
    if not all(each.dtype == torch.float32 for each in network.parameters()):
        return network
    if importlib.util.find_spec("llvmlite") is None:
        return network
    from regard.kernels import FewRowsLinear

    is_prepared = any(isinstance(each, FewRowsLinear) for each in network.modules())
    return network if is_prepared else prepared(network)


def _on_fit_processor(network: nn.Module) -> bool:
    has_kernels = torch.backends.cpu.get_cpu_capability().startswith("AVX")
    return has_kernels and all(each.device.type == "cpu" for each in network.parameters())


def _exchanged(
    module: nn.Module, exchanged: Callable[[nn.Module], nn.Module | None], made: dict[nn.Module, nn.Module]
) -> nn.Module:
    """A copy of a module with other linear maps, on the same tensors; the module itself where it has none."""
    if module not in made:
        own = exchanged(module)
        if own is None:
            children = {name: _exchanged(each, exchanged, made) for name, each in module.named_children()}
            own = _with(module, children)
        made[module] = own
    return made[module]


def _with(module: ModuleT, children: Mapping[str, nn.Module]) -> ModuleT:
    """A module with these in the places of its own; itself where they are the same."""
    if all(getattr(module, name) is each for name, each in children.items()):
        return module
    copied = copy.copy(module)
    copied._modules = {**module._modules, **children}
    return copied
