"""What a trace keeps of one forward pass, and the weights, scores, contexts and embeddings read from it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.core import AttentionInputs, attention_scores, attention_weights
from regard.core.errors import InputError
from regard.models import Change, Kind, Loaded, keys_of, stack_of
from regard.text import Encoding
from regard.tracing.record._keep import places
from regard.tracing.record._origin import Origin
from regard.tracing.record._passage import AttentionTrace, Passage, counted
from regard.tracing.record._selectors import Selector, positions_of, token_of


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """One text's way through a model: queries, keys and values of every layer, and the residual stream.

    Nothing of size tokens x tokens is kept. Weights and scores are computed from q and k when somebody asks,
    exactly as the model's own. Attention layers and heads count from 0 to L - 1 and H - 1, embedding layers
    from 0 (the learned embedding) to L; negative numbers count from the end. Where a model has an encoder and
    a decoder, `kind` says which is meant.

    Args:
        model: the model's name.
        encoder, decoder: what each stack did; None where the model has none.
        loaded: the model itself, for what is a function of its parameters too; None where it is not at hand.
        origin: which model it is of, where it came from a file.
        edits: what each edit of an edited model did in this pass, in order.

    Example:
        >>> import regard
        >>> trace = regard.load().trace("time flies like an arrow")
        >>> trace.weights(layer=0, head=3, query="flies").shape
        torch.Size([1, 7])
    """

    model: str
    encoder: Passage | None = None
    decoder: Passage | None = None
    loaded: Loaded | None = None
    origin: Origin | None = None
    edits: tuple[Change, ...] = ()

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of attention that there are."""
        kinds: list[Kind] = [] if self.encoder is None else ["encoder"]
        if self.decoder is not None:
            kinds += ["decoder", "cross"] if self.decoder.cross_attention else ["decoder"]
        return tuple(kinds)

    @property
    def source(self) -> Passage:
        """The stack that reads the text: the encoder where there is one, else the decoder."""
        passage = self.decoder if self.encoder is None else self.encoder
        assert passage is not None, "a trace has a stack"
        return passage

    @property
    def encoding(self) -> Encoding:
        """The text's tokens and words; of a decoder beside an encoder: `trace.decoder.encoding`."""
        return self.source.encoding

    @property
    def num_layers(self) -> int:
        """Attention layers, L, of the stack that reads the text."""
        return len(self.source.attention)

    @property
    def num_heads(self) -> int:
        """Query heads a layer, of the stack that reads the text; the most, where some were removed."""
        return max(_head_counts(self.source.attention))

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
            f"{len(each.attention)} layers"
            + (f" x {_told(_head_counts(each.attention))} heads" if places(each.attention) else "")
            for each in stacks
        )
        return f"Trace({self.model!r}, {sizes}, {layers}{self.source.keeping})"

    def weights(
        self,
        layer: int,
        head: int | None = None,
        *,
        kind: Kind | None = None,
        query: Selector | None = None,
        key: Selector | None = None,
    ) -> Tensor:
        """Attention weights, after the softmax: how much each query attends to each key.

        Args:
            layer: attention layer, 0 to L - 1.
            head: 0 to H - 1; None gives all heads.
            kind: "encoder", "decoder" or "cross"; needed only where there are several.
            query, key: which tokens: an index, a slice, a word, or a list of indexes and words; a word of
                several pieces gives one row or column each; None gives all.

        Returns:
            float32 on the CPU, (queries, keys), or (heads, queries, keys) where head is None. Rows are
            normalised over all keys, so that a selection is a part of the whole matrix. A model with
            attention sinks has a last column of them, where `key` is None.

        Raises:
            InputError: a layer, head, token or word that is not there, or a kind that is not said.

        Example:
            >>> import regard
            >>> trace = regard.load().trace("time flies like an arrow")
            >>> trace.weights(layer=5, head=0).sum(dim=1).round(decimals=5)
            tensor([1., 1., 1., 1., 1., 1., 1.])
        """
        inputs, queries, keys = self._asked(layer, head, kind, query, key)
        with torch.no_grad():  # a bias may be learned
            return _delivered(attention_weights(inputs, queries, keys)[0], head)

    def scores(
        self,
        layer: int,
        head: int | None = None,
        *,
        kind: Kind | None = None,
        query: Selector | None = None,
        key: Selector | None = None,
    ) -> Tensor:
        """The softmax's exact argument: q k^T scaled, and where the model does so capped, biased, masked.

        Args, returns and errors are those of `weights`.
        """
        inputs, queries, keys = self._asked(layer, head, kind, query, key)
        with torch.no_grad():
            return _delivered(attention_scores(inputs, queries, keys)[0], head)

    def context(
        self,
        layer: int,
        head: int | None = None,
        *,
        kind: Kind | None = None,
        query: Selector | None = None,
    ) -> Tensor:
        """The weighted sum of the values, before the heads are joined, as the model computed it.

        Args:
            layer, head, kind, query: as in `weights`.

        Returns:
            float32 on the CPU, (queries, v_dim), or (heads, queries, v_dim) where head is None.
        """
        kind = self.kind(kind)
        context = self.attention_of(layer, kind).context
        if head is not None:
            context = context[self.head_index(head, kind, layer)][None]
        positions = positions_of("query", self.sides(kind)[0].encoding, query, context.device)
        return _delivered(context if positions is None else context.index_select(1, positions), head)

    def embedding(self, token: int | str, layer: int | str = -1, *, kind: Kind | None = None) -> Tensor:
        """A token's or a word's vector.

        Args:
            token: an index, or a word of the text; a word of several pieces gives their mean.
            layer: 0 is the learned embedding (the row of the table), i >= 1 the output of attention layer
                i - 1, so L, or -1, the contextual embedding, after the last norm; "input" is what layer 0
                reads: table row, position and norm.
            kind: "encoder" or "decoder"; needed only where there are both.

        Returns:
            float32 on the CPU, (d_model,).

        Raises:
            InputError: a layer, token or word that is not there, or a kind that is not said.
        """
        passage = self.passage(kind)
        rows = token_of("token", passage.encoding, token)
        return passage.embeddings(layer)[list(rows)].float().cpu().mean(dim=0)

    def embeddings(self, layer: int | str = -1, *, kind: Kind | None = None) -> Tensor:
        """Every token's vector at an embedding layer: float32 on the CPU, (tokens, d_model)."""
        return self.passage(kind).embeddings(layer).float().cpu()

    def require_model(self) -> Loaded:
        """The model that the trace is of.

        Raises:
            InputError: it is not at hand.
        """
        if self.loaded is None:
            raise InputError(
                f"this needs the parameters of {self.model}, and the trace came without the model; open it "
                "with regard.Trace.open(path, model)."
            )
        return self.loaded

    def kind(self, kind: Kind | None) -> Kind:
        """The kind of attention that is meant.

        Raises:
            InputError: there is none of that kind, or several and none is said.
        """
        kinds = self.kinds
        if kind is None and len(kinds) == 1:
            return kinds[0]
        if kind is None or kind not in kinds:
            listed = " or ".join(f'"{each}"' for each in kinds)
            raise InputError(f"kind must be {listed}, the attention that this model has; got {kind!r}.")
        return kind

    def passage(self, kind: Kind | None = None) -> Passage:
        """The stack that is meant; "cross" is none.

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

    def sides(self, kind: Kind) -> tuple[Passage, Passage]:
        """The stacks whose tokens are the queries and the keys of a kind of attention."""
        return self.passage(stack_of(kind)), self.passage(keys_of(kind))

    def attention(self, kind: Kind | None = None) -> Sequence[AttentionTrace]:
        """The attention of a kind, of each layer that has it: of "cross", some decoders' layers have none.

        Reading that of a layer that was not kept raises an InputError; `layers_of` tells which were.
        """
        kind = self.kind(kind)
        passage = self.sides(kind)[0]
        return passage.cross_attention if kind == "cross" else passage.attention

    def attention_of(self, layer: int, kind: Kind | None = None) -> AttentionTrace:
        """One layer's attention of a kind; layers count as in the names of taps.

        Raises:
            InputError: a layer that is not there, was not kept, or has no attention of this kind, or a kind
                that is not said.
        """
        index = self.layer_index(layer, kind)
        kind = self.kind(kind)
        return self.attention(kind)[self._layers_with(kind).index(index)]

    def layer_index(self, layer: int, kind: Kind | None = None) -> int:
        """A layer's number from 0 to L - 1, whatever end it was counted from.

        Raises:
            InputError: a layer that is not there, or has no attention of this kind.
        """
        kind = self.kind(kind)
        index = _checked("layer", layer, len(self.sides(kind)[0].attention))
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
        passage = self.sides(kind)[0]
        if kind == "cross" and passage.cross_layers is not None:
            return passage.cross_layers
        return range(len(self.attention(kind)))

    def head_index(self, head: int, kind: Kind | None = None, layer: int | None = None) -> int:
        """A query head's number from 0 to H - 1, whatever end it was counted from.

        Args:
            head, kind: as in `weights`.
            layer: whose heads are counted; layers have unlike numbers where some were removed. None: any's.
        """
        attention = self._one_of(self.attention(kind)) if layer is None else self.attention_of(layer, kind)
        return _checked("head", head, attention.inputs.num_heads)

    def _one_of(self, attention: Sequence[AttentionTrace]) -> AttentionTrace:
        """A layer that was kept, for what all have in common; raises where there is none."""
        return attention[next(iter(places(attention)), 0)]

    def _asked(
        self, layer: int, head: int | None, kind: Kind | None, query: Selector | None, key: Selector | None
    ) -> tuple[AttentionInputs, Tensor | None, Tensor | None]:
        kind = self.kind(kind)
        inputs = self.attention_of(layer, kind).inputs
        if head is not None:
            inputs = inputs.head(self.head_index(head, kind, layer))
        of_queries, of_keys = self.sides(kind)
        device = inputs.q.device
        return (
            inputs,
            positions_of("query", of_queries.encoding, query, device),
            positions_of("key", of_keys.encoding, key, device),
        )


def check_trace(name: str, value: object) -> Trace:
    """The trace that an argument has to be.

    Raises:
        InputError: it is none.
    """
    if not isinstance(value, Trace):
        raise InputError(f"{name} must be a trace, as model.trace gives it; got {type(value).__name__}.")
    return value


def _head_counts(attention: Sequence[AttentionTrace]) -> set[int]:
    """How many heads the layers have that were kept; of no layer, what asking one says."""
    return {attention[place].inputs.num_heads for place in [*places(attention)] or [0]}


def _told(counts: set[int]) -> str:
    return " to ".join(map(str, sorted({min(counts), max(counts)})))


def _delivered(values: Tensor, head: int | None) -> Tensor:
    return (values if head is None else values[0]).float().cpu()


def _checked(name: str, value: int, count: int) -> int:
    index = counted(value, count)
    if index is None:
        raise InputError(
            f"{name} must be from 0 to {count - 1}, or negative to count from the end; got {value!r}."
        )
    return index
