"""What every network offers to the floors above, whatever its family."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from regard.blocks import Embeddings
from regard.core import Mask, Padding, Taps
from regard.core.errors import InputError

_WHOLE = (torch.int64, torch.int32)


class NetworkConfig(Protocol):
    """The sizes that every family's config has, under these names."""

    @property
    def vocab_size(self) -> int:
        """Rows of the table of learned embeddings."""
        ...

    @property
    def d_model(self) -> int:
        """Size of the residual stream."""
        ...

    @property
    def num_layers(self) -> int:
        """Attention layers."""
        ...

    @property
    def num_heads(self) -> int:
        """Query heads a layer."""
        ...

    @property
    def max_seq_len(self) -> int:
        """The most tokens that the network takes."""
        ...

    @property
    def num_token_types(self) -> int:
        """Rows of the table of token types; 0 where there is none."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Output:
    """What a network returns.

    Args:
        last_hidden_state: (batch, positions, d_model), the contextual embeddings.
        pooled: (batch, d_model), from the pooler where the checkpoint has one, else None.
    """

    last_hidden_state: Tensor
    pooled: Tensor | None = None


class Network(nn.Module, ABC):
    """A transformer encoder; families say how it is built.

    Attributes:
        config: its sizes.
        embeddings: from token ids to the input of layer 0.
        layers: the `regard.blocks.EncoderLayer`s.
    """

    config: NetworkConfig
    embeddings: Embeddings
    layers: nn.ModuleList

    @abstractmethod
    def forward(
        self,
        token_ids: Tensor,
        *,
        mask: Tensor | Mask | None = None,
        token_types: Tensor | None = None,
        taps: Taps | None = None,
    ) -> Output:
        """Run the network.

        Args:
            token_ids: int64 (batch, N).
            mask: which positions may be attended to: bool (batch, N), True = a token, False = padding; or a
                `regard.core.Mask`; None where there is no padding.
            token_types: int64 (batch, N), which sentence of a pair; by default all 0.
            taps: listeners, or None.

        Raises:
            InputError: ids or lengths out of range, shapes that do not fit, an unknown tap.
        """

    def tap_names(self) -> list[str]:
        """Every point at which this network offers a value, in the order of the forward pass."""
        token_types = ["token_types"] if self.config.num_token_types else []
        embeddings = ["tokens", "positions", *token_types, "output"]
        attention = ["q", "k", "v", "inputs", "scores", "weights", "context", "output"]
        layer = ["input", *(f"attention.{name}" for name in attention), "ffn.hidden", "ffn.output", "output"]
        return [f"embeddings.{name}" for name in embeddings] + [
            f"layers.{index}.{name}" for index in range(self.config.num_layers) for name in layer
        ]

    def encode(
        self, token_ids: Tensor, mask: Tensor | Mask | None, token_types: Tensor | None, taps: Taps | None
    ) -> Tensor:
        """Check the input, embed it and run the layers: (batch, N, d_model)."""
        _check_ids(token_ids, token_types, self.config)
        if taps is not None:
            taps.check(self.tap_names())
        attention_mask = _as_mask(mask, token_ids)
        x: Tensor = self.embeddings(
            token_ids, token_types=token_types, taps=None if taps is None else taps.at("embeddings")
        )
        for index, layer in enumerate(self.layers):
            x = layer(x, mask=attention_mask, taps=None if taps is None else taps.at(f"layers.{index}"))
        return x


def check_sizes(config: NetworkConfig) -> None:
    """Raise InputError for a size or a probability that no encoder can have."""
    sizes = ("vocab_size", "d_model", "num_layers", "num_heads", "d_ff", "max_seq_len")
    for name, least in (*((size, 1) for size in sizes), ("num_token_types", 0), ("norm_eps", 0)):
        if not least <= getattr(config, name) < 2**31:
            raise InputError(f"{name} must be at least {least} and below 2^31; got {getattr(config, name)}.")
    for name in ("dropout_p", "attention_dropout_p"):
        if not 0.0 <= getattr(config, name) < 1.0:
            raise InputError(f"{name} must be a probability below 1; got {getattr(config, name)}.")


def _check_ids(token_ids: Tensor, token_types: Tensor | None, config: NetworkConfig) -> None:
    for name, given in (("token_ids", token_ids), ("token_types", token_types)):
        if given is not None and not isinstance(given, Tensor):
            raise InputError(
                f"{name} must be a tensor; got {type(given).__name__}. Make one: torch.tensor(...)."
            )
    if token_ids.ndim != 2 or not token_ids.shape[0] or token_ids.dtype not in _WHOLE:
        raise InputError(
            "token_ids must be int64 of shape (batch, positions), with at least one row; "
            f"got {token_ids.dtype} of shape {tuple(token_ids.shape)}."
        )
    if not 1 <= token_ids.shape[1] <= config.max_seq_len:
        raise InputError(
            f"token_ids must hold from 1 to {config.max_seq_len} positions, the model's limit; "
            f"got {token_ids.shape[1]}."
        )
    pairs = [("token_ids", token_ids, config.vocab_size)]
    if token_types is not None:
        if not config.num_token_types:
            raise InputError("token_types must be None: this model has no token types.")
        if token_types.shape != token_ids.shape:
            raise InputError(
                f"token_types must have the shape of token_ids, {tuple(token_ids.shape)}; "
                f"got {tuple(token_types.shape)}."
            )
        if token_types.dtype not in _WHOLE:
            raise InputError(f"token_types must be int64; got {token_types.dtype}.")
        pairs.append(("token_types", token_types, config.num_token_types))
    for name, ids, size in pairs:
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= size:
            raise InputError(f"{name} must be from 0 to {size - 1}; got {low if low < 0 else high}.")


def _as_mask(mask: Tensor | Mask | None, token_ids: Tensor) -> Mask | None:
    if mask is None or isinstance(mask, Mask):
        return mask
    if mask.shape != token_ids.shape or mask.dtype != torch.bool:
        raise InputError(
            f"mask must be bool of the shape of token_ids, {tuple(token_ids.shape)}, True for a token, or a "
            f"regard.core.Mask; got {mask.dtype} of shape {tuple(mask.shape)}. Convert 0/1 with .bool()."
        )
    return Padding(mask)
