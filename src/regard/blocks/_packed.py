"""Linear maps and tables whose weights stay in the blocks of their file, unpacked when they are used."""

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.blocks._embeddings import Linear, is_native
from regard.checkpoints import Packed
from regard.core.errors import InputError

NetworkT = TypeVar("NetworkT", bound=nn.Module)


class _InBlocks(nn.Module):
    """What both have: the blocks, as a buffer, and their numbers, worked out anew each time."""

    blocks: Tensor

    def _hold(self, packed: Packed) -> None:
        # A buffer, not a parameter: it moves with the module and no optimizer touches it.
        self._kind = packed.kind
        self.register_buffer("blocks", packed.blocks)

    @property
    def packed(self) -> Packed:
        """The weight as it is stored."""
        return Packed(self.blocks, self._kind)

    # `layer.weight = parameter` comes here too: torch registers what is assigned.
    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """As of every module, but for a weight in place of the stored one."""
        if name == "weight":
            raise InputError(
                "weights that stay in the blocks of a GGUF file cannot be changed; load the model with "
                "packed=False."
            )
        super().register_parameter(name, param)


class PackedLinear(_InBlocks, Linear):
    """y = x W^T + b, W in the blocks of its file.

    Of a few rows of x every block is read once, and its numbers multiplied as they are unpacked; of more, so
    many rows of W at a time are unpacked into memory that the next ones use again.

    Args:
        packed: the weight, (out_features, in_features).
        bias: (out_features,), or None.

    Example:
        >>> import torch
        >>> from regard.checkpoints import BLOCK_TYPES, Packed
        >>> stored = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]).half()
        >>> layer = PackedLinear(Packed(stored.view(torch.uint8), BLOCK_TYPES[1]), None)
        >>> layer(torch.tensor([[1.0, 10.0]]))
        tensor([[21., 43., 65.]])
    """

    def __init__(self, packed: Packed, bias: nn.Parameter | None) -> None:
        # Past nn.Linear's own, which would make a weight.
        nn.Module.__init__(self)
        self._hold(packed)
        self.out_features, self.in_features = packed.shape
        self.register_parameter("bias", bias)
        # The kernel for a few rows: made on the first product, since blocks and bias may still be moved.
        self._for_few: _ForFew | None = None

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """The numbers, float32, in memory of their own: nobody should ask for them in a loop."""
        return self.packed.unpacked()

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features), in the type of x."""
        # All axes but the last are rows: (rows, in_features).
        rows, bias = x.reshape(-1, self.in_features), self.bias
        if torch.is_grad_enabled() and (x.requires_grad or (bias is not None and bias.requires_grad)):
            product: Any = _Product.apply(rows, bias, self)  # type: ignore[no-untyped-call]
        else:
            product = self.product(rows)
        return product.view(*x.shape[:-1], self.out_features)  # type: ignore[no-any-return]

    def product(self, x: Tensor) -> Tensor:
        """(rows, in_features) -> (rows, out_features), of which no gradient can be asked."""
        bias = self.bias
        # Made anew where the blocks or the bias are others, as after `.to` or a loaded state.
        few = self._for_few
        if few is None or few.blocks is not self.blocks or few.bias is not bias:
            few = self._for_few = _ForFew(self.blocks, bias, *self.packed.multiplier(bias))
        # Few rows, as in decoding: the kernel multiplies by the blocks without unpacking them.
        if few.multiply is not None and 0 < len(x) <= few.most_rows and x.dtype != torch.float64:
            return few.multiply(x).to(x.dtype)
        # Many rows: unpacking pays. Piece by piece, so that the whole weight is never in memory.
        out = x.new_empty(len(x), self.out_features)
        # As of `Linear`: numbers that the processor has no arithmetic for are multiplied in float32.
        dtype = x.dtype if is_native(x.dtype) else torch.float32
        wide, added = x.detach().to(dtype), None if bias is None else bias.detach().to(dtype)
        for part, numbers in self.pieces(dtype):
            out[:, part] = F.linear(wide, numbers, None if added is None else added[part])
        return out

    def __getstate__(self) -> dict[str, Any]:
        # A kernel is of this process, and of this memory.
        return self.__dict__ | {"_for_few": None}

    def pieces(self, dtype: torch.dtype) -> Iterator[tuple[slice, Tensor]]:
        """The weight unpacked, so many rows at a time."""
        packed = self.packed
        for first in range(0, self.out_features, packed.step):
            part = slice(first, first + packed.step)
            yield part, packed.rows(part).unpacked(dtype)


class _ForFew(NamedTuple):
    """What multiplies up to so many rows with these blocks and this bias, if there is a kernel."""

    blocks: Tensor
    bias: Tensor | None
    multiply: Callable[[Tensor], Tensor] | None
    most_rows: int


class _Product(torch.autograd.Function):
    """A product that keeps no numbers of the weight for its gradient: they are unpacked again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor | None, layer: PackedLinear) -> Tensor:
        # The layer and not its numbers: the blocks are a fraction of their size.
        ctx.layer, ctx.has_bias = layer, bias is not None
        return layer.product(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None]:
        (grad,) = grads
        # dL/dx = dL/dy W, summed over pieces of the rows of W.
        of_input = grad.new_zeros(len(grad), ctx.layer.in_features)
        for part, numbers in ctx.layer.pieces(grad.dtype):
            of_input.addmm_(grad[:, part], numbers)
        # The weight itself has no gradient: blocks cannot be trained.
        return of_input, grad.sum(dim=0) if ctx.has_bias else None, None


class PackedEmbedding(_InBlocks, nn.Embedding):
    """A table of learned embeddings in the blocks of its file, of which only the rows asked for are unpacked.

    Args:
        packed: the table, (num_embeddings, embedding_dim).
        dtype: of the rows.
    """

    like: Tensor

    def __init__(self, packed: Packed, dtype: torch.dtype = torch.float32) -> None:
        # Past nn.Embedding's own, which would make a weight.
        nn.Module.__init__(self)
        self._hold(packed)
        self.num_embeddings, self.embedding_dim = packed.shape
        # It only matters to gradients of the table, of which there are none.
        self.padding_idx = None
        # Empty: its type is that of the rows, and changes with the network's.
        self.register_buffer("like", torch.empty(0, dtype=dtype, device="cpu"), persistent=False)

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """The numbers, float32, in memory of their own: nobody should ask for them in a loop."""
        return self.packed.unpacked()

    def forward(self, input: Tensor) -> Tensor:
        """int64 (...) -> (..., embedding_dim)."""
        # The rows of the tokens that occur, not the table.
        rows = self.packed.rows(input.reshape(-1)).unpacked(self.like.dtype)
        return rows.view(*input.shape, self.embedding_dim)


class Packing:
    """Puts weights in their blocks into a network.

    Args:
        network: whose linear maps and tables may have them.
        dtype: of the rows of tables, and so of what the network computes in.
    """

    def __init__(self, network: nn.Module, dtype: torch.dtype) -> None:
        self._network, self._dtype = network, dtype

    def takes(self, name: str) -> bool:
        """Whether a parameter is the weight of a linear map or of a table, which may stay in blocks."""
        path, _, last = name.rpartition(".")
        # By exact type: a class of an architecture's own may compute with its weight in other ways.
        return last == "weight" and type(self._network.get_submodule(path)) in (
            Linear,
            nn.Linear,
            nn.Embedding,
        )

    def put(self, name: str, packed: Packed) -> None:
        """Put a module with that weight in the place of the network's own."""
        path = name.removesuffix(".weight")
        module = self._network.get_submodule(path)
        replacement: nn.Module = PackedEmbedding(packed, self._dtype)
        if isinstance(module, nn.Linear):
            replacement = PackedLinear(packed, module.bias)
        _exchange(self._network, path, replacement)


def _exchange(network: nn.Module, path: str, replacement: nn.Module) -> None:
    parent, _, child = path.rpartition(".")
    setattr(network.get_submodule(parent), child, replacement)


@dataclass(frozen=True, slots=True)
class Learned:
    """A tensor of numbers that a network has learned: its shape, and the bytes that hold it."""

    name: str
    shape: tuple[int, ...]
    bytes: int

    @property
    def count(self) -> int:
        """Its numbers."""
        return math.prod(self.shape)


def learned(network: nn.Module) -> list[Learned]:
    """The parameters of a network, and its weights that stay in blocks; tied ones come once."""
    tensors = [
        Learned(name, tuple(parameter.shape), parameter.numel() * parameter.element_size())
        for name, parameter in network.named_parameters()
    ]
    # Tied weights in blocks are buffers, which torch does not count once by itself.
    counted: set[tuple[int, int]] = set()
    for name, module in network.named_modules():
        if (
            isinstance(module, _InBlocks)
            and (place := (module.blocks.data_ptr(), len(module.blocks))) not in counted
        ):
            counted.add(place)
            tensors.append(Learned(f"{name}.weight", module.packed.shape, module.blocks.numel()))
    return tensors


def unpacked(network: NetworkT) -> NetworkT:
    """A copy of the network whose weights are all float32 parameters; itself where none stays in blocks."""
    if not any(isinstance(each, _InBlocks) for each in network.modules()):
        return network
    # The blocks are not copied: deepcopy takes those in its memo as they are.
    blocks = [each.blocks for each in network.modules() if isinstance(each, _InBlocks)]
    own = copy.deepcopy(network, {id(each): each for each in blocks})
    parameters: dict[tuple[int, int], nn.Parameter] = {}  # by their blocks: tied weights stay tied
    for name, module in list(own.named_modules()):
        if not isinstance(module, _InBlocks):
            continue
        rows, columns = module.packed.shape
        place = module.blocks.data_ptr(), rows
        if place not in parameters:
            parameters[place] = nn.Parameter(module.packed.unpacked())
        # Neither draws a weight that is replaced at once: an embedding's, on the meta device, would make
        # torch import its compiler, which takes seconds.
        plain: Any = (
            nn.Embedding.from_pretrained(parameters[place])  # type: ignore[no-untyped-call]
            if isinstance(module, nn.Embedding)
            else Linear(columns, rows, device="meta")
        )
        plain.weight = parameters[place]
        if isinstance(module, PackedLinear):
            plain.bias = module.bias
        _exchange(own, name, plain.train(module.training))
    return own
