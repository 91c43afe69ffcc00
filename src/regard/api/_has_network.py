"""What a model is made of, and what it tells of itself."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from regard import foreign, tracing
from regard.blocks import learned
from regard.checkpoints import licence_of
from regard.core import Mask
from regard.core.errors import InputError
from regard.models import (
    Loaded,
    Network,
    NetworkConfig,
    Output,
    as_named,
    check_alone,
    heads_told,
    masks_of,
    positions_of,
    removed_words,
)
from regard.text import Encoding

if TYPE_CHECKING:
    from torch import Tensor

    from regard.models import Parity
    from regard.text import Tokenizer

_PROBE_TOKENS = 13

_OF_A_PASS = tuple(inspect.signature(Network.forward).parameters)[1:]
_THEIRS = {
    "position_ids": "positions",
    "decoder_input_ids": "decoder_token_ids",
    "decoder_attention_mask": "decoder_mask",
}
"""What transformers calls the arguments of a pass, where that differs from what it calls those of a text."""


class HasNetwork:
    """A loaded network with its tokenizer: what every capability of a model is a function of."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded

    def __repr__(self) -> str:
        config = self.config
        depths = " + ".join(str(self.network.depth(kind)) for kind in self.network.prefixes)
        return (
            f"Model({self.name!r}, {self.loaded.family}{' through the lens' * bool(self.network.foreign)}, "
            f"{depths} layers x {heads_told(self.network)}, d_model {config.d_model})"
        )

    @property
    def name(self) -> str:
        """The name under which the model was loaded."""
        return self.loaded.source.name

    @property
    def config(self) -> NetworkConfig:
        """The network's configuration: its sizes and choices."""
        return self.loaded.network.config

    @property
    def network(self) -> Network:
        """The network itself, a `torch.nn.Module`."""
        return self.loaded.network

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer.

        Raises:
            CheckpointError: the model came without one.
        """
        return self.loaded.require_tokenizer()

    def parity(self) -> Parity:
        """How exactly a short trace agrees with what the model itself computes.

        For a lens this is the check made on creation, which also compares with the untouched model's output.
        For a model that regard loaded, the first ids of its table are traced now.

        Example:
            >>> import regard
            >>> parity = regard.load().parity()
            >>> parity.largest <= parity.bound
            True
        """
        # Edits change what is computed, not how.
        network = self.network.plain
        if isinstance(network, foreign.LensNetwork):
            return network.parity
        # As many ids as the shortest table of positions takes, 13 at most.
        limits = [limit for kind in self.network.prefixes if (limit := self.network.limit(kind)) is not None]
        # The first ids of the table, over and over where it is small.
        ids = [place % self.config.vocab_size for place in range(min([_PROBE_TOKENS, *limits]))]
        plain = replace(self.loaded, network=network)
        read = Encoding.from_ids(ids)
        return tracing.trace_read(plain, read, read if len(network.prefixes) == 2 else None).parity()

    def describe(self, num_tokens: int | None = None) -> dict[str, Any]:
        """Describe the model in plain values: family, sizes, positions, masks, memory, origin, licence.

        Args:
            num_tokens: the length of text that `trace_bytes` is for (in an encoder-decoder, also of the
                target); by default 512, or the model's limit if that is smaller.

        Raises:
            InputError: more tokens than the model takes, or none.
        """
        weights = learned(self.network)
        limits = [limit for kind in self.network.prefixes if (limit := self.network.limit(kind)) is not None]
        tokens = min([512, *limits]) if num_tokens is None else num_tokens
        both = tokens if len(self.network.prefixes) == 2 else None
        # None where something of it cannot be traced.
        traced = self.network.untraced is None
        return {
            "name": self.name,
            "family": self.loaded.family,
            **_sizes(self.config),
            "positions": positions_of(self.network),
            "masks": masks_of(self.network),
            "parameters": sum(each.count for each in weights),
            "bytes": sum(each.bytes for each in weights),
            "dtype": str(next(self.network.parameters()).dtype).removeprefix("torch."),
            "trace_tokens": tokens if traced else None,
            "trace_bytes": tracing.forecast(self.loaded, tokens, both).kept if traced else None,
            "found_in": self.loaded.source.kind,
            "folder": str(self.loaded.source.folder),
            "licence": licence_of(self.loaded.source.folder),
            "left_out": list(self.loaded.left_out),
            "notes": list(self.loaded.notes),
            "removed_heads": removed_words(self.network),
        }

    def __call__(self, token_ids: Tensor | Mapping[str, Any] | None = None, **others: Any) -> Output:
        """Run the network, with the arguments of `regard.models.Network.forward` or those of transformers.

        Args:
            token_ids: int64 (batch, N); or all that a tokenizer gave, as tensors.
            others: by name, as in `model(**tokenizer(texts, padding=True, return_tensors="pt"))`.

        Raises:
            InputError: ids that cannot be read alone: with padding and no mask, with two texts and no types.
        """
        if isinstance(token_ids, Mapping):
            # A tokenizer's output first, then what is given by name.
            others, token_ids = {**token_ids, **others}, None
        # Names of transformers become those of `Network.forward`.
        named = as_named({"token_ids": token_ids} | others, _OF_A_PASS, **_THEIRS)
        if "token_ids" not in named:
            raise InputError("token_ids must be given: int64 (batch, N).")
        # Texts packed into one row have positions of their own, and a mask that is made for them.
        if "positions" not in named and not isinstance(named.get("mask"), Mask):
            types = "token_types" in named
            check_alone(self.loaded, named["token_ids"], mask=named.get("mask"), has_types=types)
        output: Output = self.loaded.network(**named)
        return output


def _sizes(config: NetworkConfig) -> dict[str, Any]:
    """The config's fields that are plain values; rotations and the kinds of layers are told in words."""
    plain = asdict(config)  # type: ignore[call-overload]
    # Nested settings are told in words elsewhere.
    return {name: value for name, value in plain.items() if not isinstance(value, dict | tuple)}
