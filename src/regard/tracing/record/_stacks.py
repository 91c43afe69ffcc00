"""What a trace keeps of each attention layer and stack, of which model, and where in it things are found."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Self

import torch
from torch import Tensor

from regard.core import AttentionInputs
from regard.core.arguments import index_of
from regard.core.errors import InputError
from regard.models import Change, Kind, Loaded, keys_of, stack_of
from regard.text import Encoding
from regard.tracing.record._keep import EVERYTHING, KeepPolicy, ScoreInputs, places

# Entries of each parameter that are looked at, evenly spaced: all of it would take seconds for a large model.
_ENTRIES = 1024
# So many of them are written as numbers, for a model that was loaded in another type.
_WRITTEN = 2


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What tells one model from another."""

    family: str  # as in `Loaded`
    lens: str | None  # the class of the model of transformers, where it was seen through the lens
    sizes: dict[str, int]  # by name
    config: str  # a hash of the config, and of the names and shapes of all parameters
    dtype: str  # of the parameters
    mark: str  # a hash of up to 1,024 entries of each parameter
    values: list[float]  # two entries of each

    def check(self, loaded: Loaded, where: str) -> None:
        """Raise InputError, naming what differs and `where`, if the model is another one.

        A model that was loaded in another type is the same if its values are, to the precision of the lesser.
        """
        difference = self._difference(origin_of(loaded))
        if difference is not None:
            raise InputError(
                f"model must be the one that the trace in {where} is of: {difference}. Open it without a "
                "model to look at what needs none."
            )

    def _difference(self, other: "Origin") -> str | None:
        if other.family != self.family:
            return f"it is of a {self.family}, and the model a {other.family}"
        own = "regard's own, whose parameters have other names"
        if self.lens is None and other.lens is not None:
            return f"the model is seen through the lens, and the trace was made by {own}"
        if other.lens is None and self.lens is not None:
            return f"the trace was made through the lens, and the model is {own}"
        if other.lens != self.lens:
            return f"it is of a {self.lens}, and the model a {other.lens}"
        # Sizes of either, since one may have what the other lacks.
        for name in self.sizes | other.sizes:
            if self.sizes.get(name) != other.sizes.get(name):
                return f"{name} is {self.sizes.get(name)} there and {other.sizes.get(name)} in the model"
        if other.config != self.config:
            return "its config, or the names and shapes of its parameters, are others"
        if self.dtype == other.dtype:
            return None if self.mark == other.mark else "its parameters have other values"
        # The coarser of the two types bounds what rounding can do.
        lesser = max(torch.finfo(getattr(torch, each.dtype)).eps for each in (self, other))
        ours, theirs = (torch.tensor(each.values, dtype=torch.float64) for each in (self, other))
        # 1e-7: near 0 the numbers of float16 are 6e-8 apart.
        if bool(((ours - theirs).abs() > lesser * ours.abs() + 1e-7).any()):
            return f"its parameters, {other.dtype} in place of {self.dtype}, have other values"
        return None


def origin_of(loaded: Loaded) -> Origin:
    """The origin of traces of a model."""
    network = loaded.network
    config = network.config
    # Sizes that people know come first in messages.
    sizes = {name: getattr(config, name) for name in ("vocab_size", "d_model", "num_heads")}
    depths = {f"layers of the {kind}": network.depth(kind) for kind in network.prefixes}
    # Buffers that are not stored follow from the config; some grow with the texts that were seen.
    stored = network.state_dict().keys()
    buffers = ((name, each) for name, each in network.named_buffers() if name in stored)
    tensors = dict(chain(network.named_parameters(), buffers))
    # Names and shapes of all that is stored, for the hash.
    shapes = [(name, tuple(each.shape)) for name, each in tensors.items()]
    values = [_some_of(each) for each in tensors.values()]
    mark = hashlib.sha256()
    # One hash over a sample of every parameter: a fine-tuned model differs in some of them.
    for each in values:
        mark.update(each.numpy().tobytes())
    return Origin(
        family=loaded.family,
        lens=network.plain.foreign,
        sizes=sizes | depths,
        config=hashlib.sha256(repr((config, shapes)).encode()).hexdigest(),
        dtype=str(next(network.parameters()).dtype).removeprefix("torch."),
        mark=mark.hexdigest(),
        values=[
            value for each in values for value in each[:: max(1, len(each) // _WRITTEN)][:_WRITTEN].tolist()
        ],
    )


def _some_of(tensor: Tensor) -> Tensor:
    """Up to 1,024 of its entries, evenly spaced, as float64."""
    flat = tensor.detach().reshape(-1)
    # Evenly spaced from the first entry to the last.
    at = torch.linspace(0, len(flat) - 1, min(len(flat), _ENTRIES), dtype=torch.float64).round().long()
    return flat[at.to(flat.device)].double().cpu()


@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionTrace:
    """One attention layer: what it is a function of, and what the model made of it.

    Args:
        inputs: of batch size 1; the weights are computed from them when somebody asks.
        context: (heads, queries, v_dim), the weighted values, as the model computed them.
        output: (queries, d_model), what the layer makes of the joined contexts; None where it cannot be seen.
        written_heads: the heads whose contexts an edit wrote, so that they are not weights x values. Weights
            that an edit wrote are in `inputs`, and whatever needs these heads' scores refuses them.
        output_written: whether an edit wrote the output, so that it is not the heads joined.
    """

    inputs: AttentionInputs
    context: Tensor
    output: Tensor | None = None
    written_heads: tuple[int, ...] = ()
    output_written: bool = False


class ScoreTrace(AttentionTrace):
    """An attention layer of a trace that keeps queries and keys, and no values or contexts."""

    def __init__(self, inputs: ScoreInputs) -> None:
        # Not by the dataclass's own __init__: `context` is a property here, and cannot be set.
        self.__dict__.update(inputs=inputs, output=None)

    @property
    def context(self) -> Tensor:
        """Not kept: always an InputError."""
        raise InputError(
            'contexts are not in this trace, which was kept with keep="qk": that is enough for weights and '
            'scores. Trace again with keep="qkv" or keep="all".'
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class TracedStack:
    """One sequence's way through one stack.

    Args:
        encoding: the tokens and words, with their spans in the text.
        attention: for each layer its self-attention; reading a layer that was not kept raises.
        cross_attention: the attention to the encoder of each layer that has it; () where there is none.
        cross_layers: the numbers of these layers, where some layer has none; None where all have it.
        hidden: L + 1 tensors (tokens, d_model): the input of layer 0, then what each layer hands on, the last
            one after the stack's last norm; () where they cannot be seen. One that was not kept raises.
        learned: (tokens, d), the rows of the table of learned embeddings; None where they cannot be seen, or
            were not kept.
        scaled: (tokens, d), these rows times the model's factor, or None where it has none.
        positions: (tokens, d), what was added for the position, or None.
        token_types: the same for the token type, or None.
        keeping: what was asked to be kept.
    """

    encoding: Encoding
    attention: Sequence[AttentionTrace]
    cross_attention: Sequence[AttentionTrace] = ()
    cross_layers: tuple[int, ...] | None = None
    hidden: Sequence[Tensor] = ()
    learned: Tensor | None = None
    scaled: Tensor | None = None
    positions: Tensor | None = None
    token_types: Tensor | None = None
    keeping: KeepPolicy = EVERYTHING

    @property
    def depth(self) -> int:
        """Layers with attention, of whatever kind: a recurrent stack has none to itself."""
        return len(self.attention) or len(self.cross_attention)

    @property
    def tokens(self) -> list[str]:
        """The tokens, as the vocabulary writes them."""
        return [token.text for token in self.encoding.tokens]

    @property
    def shown(self) -> tuple[str, ...]:
        """The tokens, as people read them."""
        return tuple(token.shown for token in self.encoding.tokens)

    def embeddings(self, layer: int | str = -1) -> Tensor:
        """Every token's vector at an embedding layer: (tokens, d_model); see `Trace.embedding`."""
        # Not kept, as asked.
        if not self.keeping.hidden:
            raise InputError(
                f'embeddings are not in this trace, which was kept with keep="{self.keeping.keep}". Trace '
                'again with keep="residual" or keep="all".'
            )
        # Kept, and not there: only the lens has models that do not show them.
        if not self.hidden or self.learned is None:
            raise InputError(
                "this model's hidden states cannot be seen through the lens, and so no embeddings; ask for "
                "weights, scores or context."
            )
        if layer == "input":
            return self.hidden[0]
        last = len(self.hidden) - 1
        index = index_of(
            "layer", layer, last + 1, also=', or "input"', hint=f" 0 is learned, {last} contextual."
        )
        # Layer 0 is the learned embedding, the row of the table, without positions.
        return self.learned if index == 0 else self.hidden[index]


@dataclass(frozen=True, kw_only=True, eq=False)
class Stacks:
    """What a pass left in an encoder, a decoder, or both, and how a layer, head or token is found in it."""

    model: str
    encoder: TracedStack | None = None
    decoder: TracedStack | None = None
    loaded: Loaded | None = None
    origin: Origin | None = None
    edits: tuple[Change, ...] = ()

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of attention that there are."""
        by_kind: dict[Kind, Sequence[AttentionTrace]] = {}
        if self.encoder is not None:
            by_kind["encoder"] = self.encoder.attention
        if self.decoder is not None:
            # A decoder has both kinds, in the order of the forward pass.
            by_kind |= {"decoder": self.decoder.attention, "cross": self.decoder.cross_attention}
        return tuple(kind for kind, layers in by_kind.items() if layers)

    @property
    def source(self) -> TracedStack:
        """The stack that reads the text: the encoder where there is one, else the decoder."""
        traced = self.decoder if self.encoder is None else self.encoder
        assert traced is not None, "a trace has a stack"
        return traced

    @property
    def encoding(self) -> Encoding:
        """The text's tokens and words; of a decoder beside an encoder: `trace.decoder.encoding`."""
        return self.source.encoding

    @property
    def num_layers(self) -> int:
        """Attention layers, L, of the stack that reads the text; 0 where that is recurrent."""
        return len(self.source.attention)

    @property
    def num_heads(self) -> int:
        # Layers may have lost heads.
        """Query heads a layer, of the stack that reads the text; the most, where some were removed."""
        return max(_head_counts(self.source.attention), default=0)

    @property
    def tokens(self) -> list[str]:
        """The tokens of the text, as the vocabulary writes them."""
        return self.source.tokens

    @property
    def token_ids(self) -> list[int]:
        """The tokens' places in the vocabulary."""
        return list(self.encoding.token_ids)

    @property
    def words(self) -> list[str]:
        """The words of the text (of both, where there is a pair), by Unicode word boundaries."""
        return [word.text for word in self.encoding.words]

    def __repr__(self) -> str:
        stacks = [each for each in (self.encoder, self.decoder) if each is not None]
        sizes = " + ".join(f"{len(each.encoding.tokens)} tokens" for each in stacks)
        layers = " + ".join(
            f"{each.depth} layers"
            + (f" x {_range_of(_head_counts(each.attention))} heads" if places(each.attention) else "")
            for each in stacks
        )
        return f"Trace({self.model!r}, {sizes}, {layers}{self.source.keeping})"

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: all but the model, which every process can load for itself."""
        return {
            **vars(self),
            "loaded": None,
            # Without the model, what tells it from others goes along.
            "origin": self.origin or (self.loaded and origin_of(self.loaded)),
        }

    # Nothing in a trace changes, and a copy would double its memory.
    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def require_model(self) -> Loaded:
        """The model that the trace is of.

        Raises:
            InputError: it is not at hand.
        """
        if self.loaded is None:
            raise InputError(
                f"this needs the parameters of {self.model}, and the trace came without the model, from a "
                "file or a pickle; open a saved one with regard.Trace.open(path, model)."
            )
        return self.loaded

    def kind(self, kind: Kind | None) -> Kind:
        """The kind of attention that is meant.

        Raises:
            InputError: there is none of that kind, or several and none is said.
        """
        kinds = self.kinds
        # With one kind there is nothing to choose.
        if kind is None and len(kinds) == 1:
            return kinds[0]
        if kind is None or kind not in kinds:
            listed = " or ".join(f'"{each}"' for each in kinds)
            got = "" if kind is None else f"; got {kind!r}"
            raise InputError(f"kind must be {listed}, the attention that this model has{got}.")
        return kind

    def stack(self, kind: Kind | None = None) -> TracedStack:
        """The stack that is meant; "cross" is not one.

        Raises:
            InputError: there is none of that kind, or there are two and none is said.
        """
        stacks = {"encoder": self.encoder, "decoder": self.decoder}
        present = {name: each for name, each in stacks.items() if each is not None}
        if kind is None and len(present) == 1:
            return self.source
        if kind is None or kind not in tuple(present):
            listed = " or ".join(f'"{each}"' for each in present)
            raise InputError(f"kind must be {listed}, the stack whose embeddings are meant; got {kind!r}.")
        return present[kind]

    def sides(self, kind: Kind) -> tuple[TracedStack, TracedStack]:
        """The stacks whose tokens are the queries and the keys of a kind of attention."""
        return self.stack(stack_of(kind)), self.stack(keys_of(kind))

    def attention(self, kind: Kind | None = None) -> Sequence[AttentionTrace]:
        """The attention of a kind, of each layer that has it: of "cross", some decoders' layers have none.

        Reading that of a layer that was not kept raises an InputError; `layers_of` tells which were.
        """
        kind = self.kind(kind)
        # The stack of the queries has the layers.
        traced = self.sides(kind)[0]
        return traced.cross_attention if kind == "cross" else traced.attention

    def attention_of(self, layer: int, kind: Kind | None = None) -> AttentionTrace:
        """One layer's attention of a kind; layers count as in the names of taps.

        Raises:
            InputError: a layer that is not there, was not kept, or has no attention of this kind, or a kind
                that is not said.
        """
        index = self.layer_index(layer, kind)
        kind = self.kind(kind)
        # Place among those with attention of this kind, which for "cross" may be fewer.
        return self.attention(kind)[self._layers_with(kind).index(index)]

    def layer_index(self, layer: int, kind: Kind | None = None) -> int:
        """A layer's number from 0 to L - 1, counted from either end.

        Raises:
            InputError: a layer that is not there, or has no attention of this kind.
        """
        kind = self.kind(kind)
        index = index_of("layer", layer, self.sides(kind)[0].depth)
        layers = self._layers_with(kind)
        if index not in layers:
            raise InputError(
                f"layer must be one with cross-attention, of {', '.join(map(str, layers))}; got {layer!r}."
            )
        return index

    def layers_of(self, kind: Kind) -> Sequence[int]:
        """The numbers of the layers whose attention of a kind was kept."""
        layers = self._layers_with(kind)
        return tuple(layers[place] for place in places(self.attention(kind)))

    def _layers_with(self, kind: Kind) -> Sequence[int]:
        """The numbers of the layers with attention of a kind, kept or not."""
        traced = self.sides(kind)[0]
        if kind == "cross" and traced.cross_layers is not None:
            return traced.cross_layers
        return range(len(self.attention(kind)))

    def head_index(self, head: int, kind: Kind | None, layer: int) -> int:
        """A query head's number from 0 to H - 1 in a layer, counted from either end."""
        return index_of("head", head, self.attention_of(layer, kind).inputs.num_heads)


def _head_counts(attention: Sequence[AttentionTrace]) -> set[int]:
    """The head counts of the layers that were kept; where none was, an InputError says why."""
    if not attention:
        return set()
    # Layers that were kept are asked; where none was, the first one raises and says why.
    return {attention[place].inputs.num_heads for place in [*places(attention)] or [0]}


def _range_of(counts: set[int]) -> str:
    return " to ".join(map(str, sorted({min(counts), max(counts)})))
