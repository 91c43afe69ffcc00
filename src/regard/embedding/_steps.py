"""What becomes of a pooled vector: the steps of a checkpoint, fewer entries, and fewer bits for each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from regard.checkpoints import Fields, read_config, read_tensors
from regard.core.errors import CheckpointError, InputError, RegardError
from regard.core.tensors import unit

ACTIVATIONS: Final[Mapping[str, Callable[[Tensor], Tensor]]] = MappingProxyType(
    {
        "ELU": functional.elu,
        "GELU": functional.gelu,
        "Identity": lambda x: x,
        "LeakyReLU": functional.leaky_relu,
        "Mish": functional.mish,
        "ReLU": functional.relu,
        "SiLU": functional.silu,
        "Sigmoid": torch.sigmoid,
        "Softplus": functional.softplus,
        "Tanh": torch.tanh,
    }
)
"""Activations of dense layers, by the names of torch's classes; each as the class does without arguments."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Dense:
    """y = activation(W x + b), and the input or a projection of it added where the checkpoint says so.

    Args:
        weight: float32 (d_out, d_in).
        bias: float32 (d_out,), or None.
        activation: a name in `ACTIVATIONS`.
        adds_input: whether the input is added to the output.
        projection: float32 (d_out, d_in), what the input is multiplied by before it is added; None for
            nothing.

    Example:
        >>> Dense(weight=torch.tensor([[1.0, -1.0]]), activation="ReLU")(torch.tensor([[5.0, 2.0]]))
        tensor([[3.]])

    Source: the layer is that of sentence-transformers, `2_Dense`.
    """

    weight: Tensor
    bias: Tensor | None = None
    activation: str = "Tanh"
    adds_input: bool = False
    projection: Tensor | None = None

    def __call__(self, vectors: Tensor) -> Tensor:
        """(..., d_in) -> (..., d_out), in the type of the vectors."""
        weight, bias = self._as(vectors, self.weight), self._as(vectors, self.bias)
        assert weight is not None
        # (.., d_in) -> (.., d_out)
        output = ACTIVATIONS[self.activation](functional.linear(vectors, weight, bias))
        if not self.adds_input:
            return output
        projection = self._as(vectors, self.projection)
        return output + (vectors if projection is None else functional.linear(vectors, projection))

    @staticmethod
    def _as(like: Tensor, weight: Tensor | None) -> Tensor | None:
        return None if weight is None else weight.to(dtype=like.dtype, device=like.device)


@dataclass(frozen=True, kw_only=True, eq=False)
class Norm:
    """y = (x - mean) / sqrt(variance + 1e-5) * weight + bias, over the entries of each vector.

    Args:
        weight, bias: float32 (d,).

    Example:
        >>> Norm(weight=torch.ones(2), bias=torch.zeros(2))(torch.tensor([[1.0, 3.0]])).round().tolist()
        [[-1.0, 1.0]]

    Source: Ba, Kiros and Hinton 2016, arXiv 1607.06450, equation 4.
    """

    weight: Tensor
    bias: Tensor

    def __call__(self, vectors: Tensor) -> Tensor:
        """(..., d) -> the same shape and type; in float64, where no square of an entry is infinite."""
        wide = vectors.double()
        weight, bias = self.weight.to(wide), self.bias.to(wide)
        return functional.layer_norm(wide, weight.shape, weight, bias, 1e-5).to(vectors.dtype)


@dataclass(frozen=True)
class Unit:
    """y = x / |x|, the length 1, at any scale; a vector of zeros stays one.

    Example:
        >>> Unit()(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist()
        [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """

    def __call__(self, vectors: Tensor) -> Tensor:
        """(..., d) -> the same shape and type."""
        return unit(vectors)


Step = Dense | Norm | Unit
"""What can come after the pooling."""


def read_dense(folder: Path) -> Dense:
    """A `Dense` module's folder: `config.json` and its weights."""
    config = read_config(folder)
    d_in, d_out = config.require("in_features", int), config.require("out_features", int)
    has_bias = config.get("bias", bool, True)
    adds_input = config.get("use_residual", bool, False)
    activation = _activation(config)
    _of_sentences(config)
    config.done(inert=())
    # What must be stored, by what the config says.
    shapes: dict[str, tuple[int, ...]] = {"linear_weight": (d_out, d_in)}
    if has_bias:
        shapes["linear_bias"] = (d_out,)
    if adds_input and d_in != d_out:
        shapes["residual_weight"] = (d_out, d_in)
    tensors = _weights(folder, config, **shapes)
    return Dense(
        weight=tensors["linear_weight"],
        bias=tensors.get("linear_bias"),
        activation=activation,
        adds_input=adds_input,
        projection=tensors.get("residual_weight"),
    )


def read_norm(folder: Path) -> Norm:
    """A `LayerNorm` module's folder."""
    config = read_config(folder)
    size = config.require("dimension", int)
    config.done(inert=())
    tensors = _weights(folder, config, norm_weight=(size,), norm_bias=(size,))
    return Norm(weight=tensors["norm_weight"], bias=tensors["norm_bias"])


def read_unit(folder: Path) -> Unit:
    """The folder of a `Normalize` module. Most often it is empty or missing."""
    if (folder / "config.json").exists():
        config = read_config(folder)
        _of_sentences(config)
        config.done(inert=())
    return Unit()


def _activation(config: Fields) -> str:
    """A dense layer's, by its class in torch; the library that writes the files takes Tanh by default."""
    stated = config.get("activation_function", str, "torch.nn.Tanh")
    package, _, name = stated.rpartition(".")
    if (package == "torch.nn" or package.startswith("torch.nn.modules.")) and name in ACTIVATIONS:
        return name
    raise CheckpointError(
        f"{config.file}: the field 'activation_function' must be one of torch.nn's {', '.join(ACTIVATIONS)}; "
        f"got {stated!r}"
    )


def _of_sentences(config: Fields) -> None:
    """Check that a module reads and writes the vector of the text, not those of its tokens."""
    config.expect("module_input_name", ("sentence_embedding",), "sentence_embedding")
    config.expect("module_output_name", ("sentence_embedding", None), None)


def _weights(folder: Path, config: Fields, **shapes: tuple[int, ...]) -> dict[str, Tensor]:
    """The tensors of a module by their names, with _ for the dot: these, of these shapes, and no others."""
    reader = read_tensors(folder)
    wanted = {name.replace("_", "."): shape for name, shape in shapes.items()}
    stored = {name: reader.shape(name) for name in reader.names()}
    # A tensor more or less means another module.
    if stored != wanted:
        raise CheckpointError(
            f"{folder}: by {config.file.name} the tensors must be {_told(wanted)}; got {_told(stored)}"
        )
    return {name: reader.read(name.replace("_", ".")).float() for name in shapes}


def _told(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} of shape {shape}" for name, shape in sorted(shapes.items())) or "none"


Storage = Literal["float32", "float16", "int8", "ubinary"]
"""How the entries of a vector are stored."""

_INT8: Final = 127
"""The largest entry of a vector in int8; -128 has no counterpart."""

_FLOAT16: Final = float(np.finfo(np.float16).max)


def finished(
    vectors: Tensor,
    steps: Sequence[Step] = (),
    *,
    truncate_dim: int | None = None,
    normalize: bool | None = None,
) -> Tensor:
    """Pooled vectors, through the checkpoint's steps, cut, and brought to the length 1.

    Args:
        vectors: (..., d).
        steps: as in `SentenceSettings`.
        truncate_dim: how many entries are kept, from the first; None for all.
        normalize: True: vectors have the length 1 at the end. None: only where a step sees to it, and then
            before they are cut. False: never, and a step that does it at the end is left out.

    Returns:
        (..., truncate_dim).

    Raises:
        InputError: more entries are to be kept than there are, or none.

    Example:
        >>> import torch
        >>> finished(torch.tensor([[3.0, 4.0, 12.0]]), truncate_dim=2, normalize=True)
        tensor([[0.6000, 0.8000]])

    Source: the order is that of sentence-transformers' `encode`. Vectors that can be cut: Kusupati et al.
    2022, arXiv 2205.13147.
    """
    steps = tuple(steps)
    # Explicitly unnormed: the checkpoint's own last step goes too.
    if normalize is False:
        while steps and isinstance(steps[-1], Unit):
            steps = steps[:-1]
    for step in steps:
        vectors = step(vectors)
    if truncate_dim is not None:
        if not 1 <= truncate_dim <= vectors.shape[-1]:
            raise InputError(
                f"truncate_dim must be from 1 to {vectors.shape[-1]}, the size of the vectors; "
                f"got {truncate_dim}."
            )
        # The first entries, of models that were trained for it.
        vectors = vectors[..., :truncate_dim]
    return unit(vectors) if normalize else vectors


class NotFiniteError(RegardError):
    """Vectors with entries that are infinite or not a number; `places` says which, by row."""

    def __init__(self, message: str, places: NDArray[np.int64]) -> None:
        super().__init__(message)
        self.places = places


@dataclass(frozen=True, kw_only=True, eq=False)
class Packed:
    """Vectors in a smaller type.

    Args:
        vectors: float32, float16 or int8 (..., d); uint8 (..., ceil(d / 8)) of the storage "ubinary".
        scales: float32 (...), what the entries of each int8 vector are multiplied by to get the float32 ones
            back; None elsewhere.
    """

    vectors: NDArray[Any]
    scales: NDArray[np.float32] | None = None


def packed(vectors: Tensor | NDArray[Any], storage: Storage) -> Packed:
    """Vectors in a smaller type, each by itself: it does not depend on the others.

        float16    rounded to the nearest
        int8       round(127 x / max |x|), with the scale max |x| / 127; cosines lose some 1e-4
        ubinary    a bit for each entry, 1 where x > 0, eight to a byte, the first entry's highest; the last
                   byte is filled up with 0

    Args:
        vectors: (..., d).
        storage: a name above, or "float32".

    Returns:
        The vectors, and the scales of int8.

    Raises:
        InputError: an unknown storage, or an entry that float16 has no number for.
        NotFiniteError: an entry that is infinite or not a number, in any storage.

    Example:
        >>> packed(np.array([[0.5, -1.0, 0.25]]), "int8").vectors
        array([[  64, -127,   32]], dtype=int8)
        >>> packed(np.array([[0.5, -1.0, 0.25]]), "ubinary").vectors
        array([[160]], dtype=uint8)

    Source: "ubinary" is that of sentence-transformers. Its int8 is another: it takes the ranges
    of each entry from a sample of vectors, so that a vector's numbers depend on the others'.
    """
    wide = vectors.detach().cpu().float().numpy() if isinstance(vectors, Tensor) else vectors
    wide = np.asarray(wide, dtype=np.float32)
    # Rows with an entry that is no number.
    odd = np.flatnonzero(~np.isfinite(wide).all(axis=tuple(range(1, wide.ndim))))
    if len(odd):
        raise NotFiniteError(
            f"{len(odd)} of {len(wide)} vectors have numbers that are not finite: the model's weights are "
            "damaged, or its layers overflow; load another checkpoint.",
            odd,
        )
    match storage:
        case "float32":
            return Packed(vectors=wide)
        case "float16":
            if not bool((np.abs(wide) <= _FLOAT16).all()):
                raise InputError(
                    f"storage='float16' has no number for an entry above {_FLOAT16:g} in size; give "
                    "storage='float32'."
                )
            return Packed(vectors=wide.astype(np.float16))
        case "int8":
            largest = np.abs(wide).max(axis=-1, keepdims=True, initial=0.0)
            # One for each vector: entry = code * scale.
            scales = largest / np.float32(_INT8)
            # A vector of zeros, or of numbers so small that their scale is none.
            steps = np.divide(wide, scales, out=np.zeros_like(wide), where=scales > 0)
            codes = np.clip(np.rint(steps), -_INT8, _INT8).astype(np.int8)
            return Packed(vectors=codes, scales=scales[..., 0])
        case "ubinary":
            return Packed(vectors=np.packbits(wide > 0, axis=-1))
    raise InputError(f"storage must be float32, float16, int8 or ubinary; got {storage!r}.")
