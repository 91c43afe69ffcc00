"""What a decoder has read of a text, kept so that the next word costs one token's work and not the text's."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from regard.core import AttentionInputs, Taps, attention_weights
from regard.models import Loaded, Transformer
from regard.text import Encoding
from regard.tracing.measures import attention_tap, logits_of_layers, norm_weighted
from regard.tracing.run import TraceOfRun

_BACK = 64
"""Tokens that a text may lose at its end, as it is typed over, and is still read on."""

_MOST_TOKENS = 4096
"""The tokens of all texts that are kept; with SmolLM2 their keys and values take 190 MB."""


class Said(NamedTuple):
    """What a text leads to.

    Attributes:
        logits: of the next token, in float64.
        taken: (tokens,), how long what all heads take from each for it is.
        rests: the share of attention on the first token, the mean of all heads.
    """

    logits: Tensor
    taken: Tensor
    rests: float


class Reads:
    """The texts that a decoder read last; what goes on from one of them is not read anew."""

    def __init__(self) -> None:
        self._kept: list[_Read] = []

    def reader(self, loaded: Loaded, ids: Sequence[int]) -> "_Read | _Whole":
        """Who reads a text of token ids."""
        network, limit = loaded.network, loaded.network.limit("decoder")
        # What cannot be read on is read whole each time.
        if type(network) is not Transformer or (limit is not None and len(ids) > limit):
            return _Whole(loaded)
        # The one that has most of the text goes on.
        goes_on = [each for each in self._kept if each.goes_on(ids)]
        reader = max(goes_on, key=lambda each: each.shared(ids)) if goes_on else _Read(network)
        # The one just read goes to the end: the first is the oldest.
        self._kept = [*(each for each in self._kept if each is not reader), reader]
        while len(self._kept) > 1 and sum(len(each.ids) for each in self._kept) > _MOST_TOKENS:
            del self._kept[0]
        return reader


class _Whole:
    """Reads every text from its beginning, for edited models, which know positions, and those under the lens;
    and refuses one that is too long."""

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded

    @torch.no_grad()
    def logits(self, ids: Sequence[int]) -> Tensor:
        """The logits of the next token, in float64."""
        logits: Tensor = self._loaded.network(torch.tensor([ids])).logits[0, -1]
        return logits.double()

    def said(self, encoding: Encoding) -> Said:
        """What a text leads to."""
        trace = TraceOfRun.of_encoding(self._loaded, encoding)
        last, layers = len(encoding.tokens) - 1, trace.layers_of("decoder")
        # After the last layer, at the last token.
        (logits,) = logits_of_layers(trace, [len(trace.stack("decoder").hidden) - 1], [last])
        taken = torch.stack([norm_weighted(trace, layer, query=last)[:, 0].sum(dim=0) for layer in layers])
        rests = torch.cat([trace.weights(layer, query=last)[:, 0, 0] for layer in layers])
        return Said(logits[0].double(), taken.sum(dim=0), float(rests.mean()))


class _Read:
    """A text that was read token by token."""

    def __init__(self, network: Transformer) -> None:
        self._network, self._state = network, network.begin(back=_BACK)
        self._layers = [attention_tap(network, "decoder", layer) for layer in range(len(self._state.layers))]
        self.ids: list[int] = []
        self._norms: dict[str, Tensor] = {}  # (heads, tokens): how long what each head makes of a value is
        self._said: Said | None = None

    def shared(self, ids: Sequence[int]) -> int:
        """With how many of its tokens a text begins."""
        # Up to the first token that differs.
        both = list(zip(ids, self.ids, strict=False))
        return next((place for place, (one, other) in enumerate(both) if one != other), len(both))

    def goes_on(self, ids: Sequence[int]) -> bool:
        """Whether a text has most of it, so that it may as well be forgotten."""
        return len(self.ids) - (same := self.shared(ids)) <= min(_BACK, same)

    def logits(self, ids: Sequence[int]) -> Tensor:
        """The logits of the next token, in float64."""
        return self._read(ids).logits

    def said(self, encoding: Encoding) -> Said:
        """What a text leads to."""
        return self._read(encoding.token_ids)

    @torch.no_grad()
    def _read(self, ids: Sequence[int]) -> Said:
        # Asked for the same once more.
        if self._said is not None and self.ids == [*ids]:
            return self._said
        # One token at least is read, for its logits.
        same = min(self.shared(ids), len(ids) - 1)
        self._said, self.ids = None, self.ids[:same]
        # What differs is forgotten.
        self._state.cut(same)
        seen: dict[str, AttentionInputs] = {}
        taps = Taps({f"{layer}.inputs": partial(seen.__setitem__, layer) for layer in self._layers})
        output: Any = self._network.decode(torch.tensor([ids[same:]]), self._state, last=True, taps=taps)
        taken, rests = torch.zeros(len(ids)), list[Tensor]()
        for number, (layer, inputs) in enumerate(seen.items()):
            projection: Any = self._network.projection("decoder", number)
            # Values of the new tokens only.
            v, heads = inputs.v[0, :, same - len(ids) :], range(inputs.num_heads)
            new = torch.stack([projection.of_values(v, head).norm(dim=1) for head in heads]).float()
            norms = torch.cat((self._norms.get(layer, new[:, :0])[:, :same], new), dim=1)
            # (heads, keys) of the last token
            weights = attention_weights(inputs, queries=range(inputs.q_len - 1, inputs.q_len))[0, :, 0]
            # What a window has let go of has no weight.
            weights = functional.pad(weights, (len(ids) - weights.shape[1], 0))
            # Weight times length: how much of each token enters the last one.
            taken += (weights * norms).sum(dim=0)
            rests.append(weights[:, 0])
            self._norms[layer] = norms
        self.ids = [*ids]
        self._said = Said(output.logits[0, -1].double(), taken, float(torch.cat(rests).mean()))
        return self._said
