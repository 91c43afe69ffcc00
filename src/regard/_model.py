"""`regard.load` and the `Model` that it returns: where all capabilities meet."""

from collections.abc import Sequence
from dataclasses import asdict
from os import PathLike
from typing import TYPE_CHECKING, Any, overload

from torch import Tensor

from regard.checkpoints import DEFAULT_MODEL
from regard.core import Mask
from regard.core.errors import InputError
from regard.models import Loaded, Network, NetworkConfig, Output, load_checkpoint
from regard.text import Tokenizer
from regard.tracing import Trace, compare, trace_text
from regard.views import Comparison

if TYPE_CHECKING:
    import torch


class Model:
    """A network with its tokenizer; calling it calls the network.

    Example:
        >>> import regard
        >>> model = regard.load()
        >>> model
        Model('sentence-transformers/all-MiniLM-L6-v2', bert, 6 layers x 12 heads, d_model 384)
        >>> model.trace("time flies like an arrow").token_ids
        [101, 2051, 10029, 2066, 2019, 8612, 102]
    """

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded

    def __repr__(self) -> str:
        config = self.config
        return (
            f"Model({self.name!r}, {self.loaded.family}, "
            f"{config.num_layers} layers x {config.num_heads} heads, d_model {config.d_model})"
        )

    @property
    def name(self) -> str:
        """The name it was asked for by."""
        return self.loaded.source.name

    @property
    def config(self) -> NetworkConfig:
        """Its sizes."""
        return self.loaded.network.config

    @property
    def network(self) -> Network:
        """The torch module."""
        return self.loaded.network

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer.

        Raises:
            CheckpointError: the model came without one.
        """
        return self.loaded.require_tokenizer()

    def describe(self) -> dict[str, Any]:
        """Family, sizes and where it came from, as plain values."""
        parameters = list(self.network.parameters())
        return {
            "name": self.name,
            "family": self.loaded.family,
            **asdict(self.config),  # type: ignore[call-overload]
            "parameters": sum(parameter.numel() for parameter in parameters),
            "dtype": str(parameters[0].dtype).removeprefix("torch."),
            "found_in": self.loaded.source.kind,
            "folder": str(self.loaded.source.folder),
            "left_out": list(self.loaded.left_out),
        }

    def __call__(
        self,
        token_ids: Tensor,
        *,
        mask: Tensor | Mask | None = None,
        token_types: Tensor | None = None,
    ) -> Output:
        """Run the network: see `regard.models.Network.forward`."""
        output: Output = self.loaded.network(token_ids, mask=mask, token_types=token_types)
        return output

    @overload
    def trace(self, text: str, pair: str | None = None) -> Trace: ...
    @overload
    def trace(self, text: list[str] | tuple[str, ...]) -> list[Trace]: ...
    def trace(self, text: str | list[str] | tuple[str, ...], pair: str | None = None) -> Trace | list[Trace]:
        """Run the model on a text and keep what its attention is a function of.

        Args:
            text: a text, or a list of texts, which gives a list of traces.
            pair: a second text, with a single first one.

        Returns:
            The trace: see `regard.tracing.Trace`.

        Raises:
            InputError: empty text, or more tokens than the model takes; nothing is ever cut off.
        """
        if not isinstance(text, list | tuple):
            return trace_text(self.loaded, text, pair)
        if pair is not None:
            raise InputError("pair must be None with a list of texts; trace each pair by itself.")
        return [trace_text(self.loaded, each) for each in text]

    def compare(self, texts: Sequence[str], word: str | Sequence[str]) -> Comparison:
        """One word between several texts, at every embedding layer: see `regard.tracing.compare`."""
        if isinstance(texts, str):
            raise InputError("texts must be a list of two texts or more; got one text.")
        return compare(self.trace(list(texts)), word)


def load(
    name_or_folder: str | PathLike[str] | None = None,
    *,
    dtype: "torch.dtype | None" = None,
    device: "torch.device | str | None" = None,
) -> Model:
    """Load a model with its tokenizer.

    A name is looked up, in this order, as a folder, an installed model package, in the Hugging Face cache,
    and on the Hugging Face hub.

    Args:
        name_or_folder: None is sentence-transformers/all-MiniLM-L6-v2.
        dtype: what the weights are converted to; None keeps the stored one.
        device: where they are put; None is the CPU.

    Returns:
        The model, in evaluation mode.

    Raises:
        ModelNotFoundError: nothing of that name can be loaded from here.
        CheckpointError: the files are damaged, of a family regard does not implement, or do not fit.

    Example:
        >>> import regard
        >>> regard.load().config.num_layers
        6
    """
    name = DEFAULT_MODEL if name_or_folder is None else name_or_folder
    return Model(load_checkpoint(name, dtype=dtype, device=device))
