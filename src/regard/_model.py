"""`regard.load` and the `Model` that it returns: where all capabilities meet."""

from collections.abc import Sequence
from dataclasses import asdict
from os import PathLike
from typing import TYPE_CHECKING, Any, overload

from torch import Tensor

from regard.checkpoints import DEFAULT_MODEL, licence_of
from regard.core import Mask, Taps
from regard.core.errors import InputError
from regard.models import (
    Loaded,
    Network,
    NetworkConfig,
    Output,
    load_checkpoint,
    masks_of,
    positions_of,
)
from regard.text import Tokenizer
from regard.tracing import LensNetwork, Parity, Trace, bytes_at, compare, trace_ids, trace_text
from regard.tracing import lens as _lens
from regard.views import Comparison

if TYPE_CHECKING:
    import torch


_PROBE_TOKENS = 13


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
        depths = " + ".join(str(self.network.depth(kind)) for kind in self.network.prefixes)
        return (
            f"Model({self.name!r}, {self.loaded.family}, "
            f"{depths} layers x {config.num_heads} heads, d_model {config.d_model})"
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

    @property
    def parity(self) -> Parity:
        """How exactly a short trace of this model gives back what the model itself computes.

        Of a lens it is the check on creation, with the untouched model's output beside it; of a model that
        regard loaded, a trace of the first ids of its table, made when this is asked for.

        Example:
            >>> import regard
            >>> parity = regard.load().parity
            >>> parity.largest <= parity.bound
            True
        """
        if isinstance(self.network, LensNetwork):
            return self.network.parity
        limits = [limit for kind in self.network.prefixes if (limit := self.network.limit(kind)) is not None]
        ids = [place % self.config.vocab_size for place in range(min([_PROBE_TOKENS, *limits]))]
        return trace_ids(self.loaded, ids, ids if len(self.network.prefixes) == 2 else None).parity()

    def describe(self, num_tokens: int | None = None) -> dict[str, Any]:
        """Family, sizes and where it came from, as plain values.

        Args:
            num_tokens: how long a text `trace_bytes` is for; by default 512, or what the model takes.

        Raises:
            InputError: more tokens than the model takes, or none.
        """
        parameters = list(self.network.parameters())
        limits = [limit for kind in self.network.prefixes if (limit := self.network.limit(kind)) is not None]
        tokens = min([512, *limits]) if num_tokens is None else num_tokens
        return {
            "name": self.name,
            "family": self.loaded.family,
            **_sizes(self.config),
            "positions": positions_of(self.network),
            "masks": masks_of(self.network),
            "parameters": sum(parameter.numel() for parameter in parameters),
            "bytes": sum(parameter.numel() * parameter.element_size() for parameter in parameters),
            "dtype": str(parameters[0].dtype).removeprefix("torch."),
            "trace_tokens": tokens,
            "trace_bytes": bytes_at(self.loaded, tokens),
            "found_in": self.loaded.source.kind,
            "folder": str(self.loaded.source.folder),
            "licence": licence_of(self.loaded.source.folder),
            "left_out": list(self.loaded.left_out),
        }

    def __call__(
        self,
        token_ids: Tensor,
        *,
        mask: Tensor | Mask | None = None,
        token_types: Tensor | None = None,
        positions: Tensor | None = None,
        decoder_token_ids: Tensor | None = None,
        decoder_mask: Tensor | Mask | None = None,
        logits: bool = True,
        taps: Taps | None = None,
    ) -> Output:
        """Run the network: see `regard.models.Network.forward`."""
        output: Output = self.loaded.network(
            token_ids,
            mask=mask,
            token_types=token_types,
            positions=positions,
            decoder_token_ids=decoder_token_ids,
            decoder_mask=decoder_mask,
            logits=logits,
            taps=taps,
        )
        return output

    @overload
    def trace(self, text: str, pair: str | None = None, *, target: str | None = None) -> Trace: ...
    @overload
    def trace(
        self, *, token_ids: Sequence[int] | Tensor, target_ids: Sequence[int] | Tensor | None = None
    ) -> Trace: ...
    @overload
    def trace(self, text: list[str] | tuple[str, ...]) -> list[Trace]: ...
    def trace(
        self,
        text: str | list[str] | tuple[str, ...] | None = None,
        pair: str | None = None,
        *,
        target: str | None = None,
        token_ids: Sequence[int] | Tensor | None = None,
        target_ids: Sequence[int] | Tensor | None = None,
    ) -> Trace | list[Trace]:
        """Run the model on a text and keep what its attention is a function of.

        Args:
            text: a text, or a list of texts, which gives a list of traces.
            pair: a second text, with a single first one.
            target: what the decoder of an encoder-decoder reads, after its start token; by default only that.
            token_ids: in place of a text, what the model reads, (N,); needs no tokenizer.
            target_ids: with token_ids, what the decoder reads, its start token first.

        Returns:
            The trace: see `regard.tracing.Trace`.

        Raises:
            InputError: empty text, or more tokens than the model takes; nothing is ever cut off.
        """
        if (text is None) == (token_ids is None):
            raise InputError(
                f"text or token_ids must be given, and not both; got {'neither' if text is None else 'both'}."
            )
        if token_ids is not None:
            if pair is not None or target is not None:
                raise InputError("pair and target must be None with token_ids; give target_ids.")
            return trace_ids(self.loaded, token_ids, target_ids)
        if target_ids is not None:
            raise InputError("target_ids must be None with a text; give target, or token_ids.")
        if isinstance(text, list | tuple):
            if pair is not None or target is not None:
                raise InputError("pair and target must be None with a list of texts; trace each by itself.")
            return [trace_text(self.loaded, each) for each in text]
        assert text is not None
        return trace_text(self.loaded, text, pair, target=target)

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


def lens(hf_model: Any, tokenizer: Any = None, *, name: str | None = None) -> Model:
    """Look at any `transformers` model that calls attention through transformers' registry.

    The model runs as it is: its own modules, its own fused attention, with what enters and leaves attention
    read on the way. Nothing is left behind in it, also after an exception.

    Args:
        hf_model: a `transformers.PreTrainedModel` in evaluation mode.
        tokenizer: its tokenizer, from transformers or tokenizers; None where only token ids will be given.
        name: what it is called; by default the name it was loaded by, or its class.

    Returns:
        The same `Model` as `load` gives; `model.parity` is what the check on creation found.

    Raises:
        InputError: a model that cannot be seen (the message names what), or a tokenizer that is none.
        RegardError: the check on creation found other numbers than the model's.
        MissingExtraError: transformers is not installed.

    Example:
        >>> import regard
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> config = GPT2Config(vocab_size=31, n_embd=6, n_layer=2, n_head=3, n_positions=17)
        >>> model = regard.lens(GPT2LMHeadModel(config).eval())
        >>> model.trace(token_ids=[3, 1, 4]).weights(layer=1, head=0).shape
        torch.Size([3, 3])
    """
    return Model(_lens(hf_model, tokenizer, name=name))


def _sizes(config: NetworkConfig) -> dict[str, Any]:
    """The config's fields that are plain values; rotations and the kinds of layers are told in words."""
    plain = asdict(config)  # type: ignore[call-overload]
    return {name: value for name, value in plain.items() if not isinstance(value, dict | tuple)}
