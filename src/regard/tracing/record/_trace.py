"""What is read off a trace: weights, scores, contexts and embeddings; its file, and its size in memory."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from os import PathLike
from pathlib import Path
from typing import Self, SupportsIndex

import torch
from torch import Tensor

from regard.core import AttentionInputs, attention_scores, attention_weights
from regard.core.errors import InputError
from regard.core.memory import check_room
from regard.models import Kind, Loaded
from regard.tracing.record._files import HasLoaded, read_trace, write_trace
from regard.tracing.record._keep import Partial
from regard.tracing.record._selectors import (
    Numbers,
    Selector,
    WordOrToken,
    numbers_of,
    positions_of,
    token_of,
)
from regard.tracing.record._stacks import Stacks, TracedStack

MOST_SECONDS = 600.0
"""What no call should take that could be asked for in parts."""


def check_cost(what: str, *, seconds: float, num_bytes: float, device: torch.device, way_out: str) -> None:
    """Refuse what takes more than ten minutes, or more memory than is free, by a forecast for two cores.

    `what` is asked for, and `way_out` is what to ask for instead: both are for the message.
    """
    if seconds > MOST_SECONDS:
        raise InputError(f"{what} would take about {seconds:.0f} s, more than {MOST_SECONDS:.0f}; {way_out}.")
    check_room(what, num_bytes, device, way_out)


# To ask the system how much is free takes as long as the weights of some hundred tokens.
_LITTLE = 2**26


def kept_bytes(trace: Stacks | tuple[TracedStack | Tensor, ...]) -> int:
    """What a trace holds of its stacks in memory; tensors that share memory count once.

    Example:
        >>> import regard
        >>> kept_bytes(regard.load().trace("time flies like an arrow"))
        430080
    """
    stacks = (trace.encoder, trace.decoder) if isinstance(trace, Stacks) else trace
    # By address: tensors of one storage count once.
    storages = {
        storage.data_ptr(): storage.nbytes()
        for tensor in tensors_of(stacks)
        if (storage := tensor.untyped_storage()).nbytes()
    }
    return sum(storages.values())


def tensors_of(value: object) -> Iterator[Tensor]:
    """Every tensor that a record holds."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        # In order, so that the first found is reported first.
        for each in value:
            yield from tensors_of(each)
    elif isinstance(value, Partial):
        yield from tensors_of(tuple(value.kept.values()))
    elif is_dataclass(value) and not isinstance(value, type):
        # Only what lies in the record itself counts: a field that was not kept is none.
        inside = getattr(value, "__dict__", None)
        for field in fields(value):
            yield from tensors_of(getattr(value, field.name) if inside is None else inside.get(field.name))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Trace(Stacks):
    """What is read off a record by itself: weights, scores, contexts, embeddings; and its file."""

    def weights(
        self,
        layer: Numbers = None,
        head: Numbers = None,
        *,
        kind: Kind | None = None,
        query: Selector | None = None,
        key: Selector | None = None,
    ) -> Tensor:
        """Attention weights, after the softmax: how much each query attends to each key.

        To read one head's beside their tokens: `print(trace.table(layer, head))`.

        Args:
            layer: attention layer, 0 to L - 1; a list or slice of them; None gives all.
            head: 0 to H - 1; a list or slice of them; None gives all.
            kind: "encoder", "decoder" or "cross"; needed only where there are several.
            query, key: which tokens: an index, a slice, a word, or a list of indexes and words; a word of
                several pieces gives one row or column each; None gives all.

        Returns:
            float32 on the CPU, (layers, heads, queries, keys); a layer or head given as one number has no
            axis, so one layer and one head give (queries, keys). Rows are normalised over all keys, so a
            selection is a part of the whole matrix. A model with attention sinks has a last column for them,
            if `key` is None.

        Raises:
            InputError: a layer, head, token or word does not exist, `kind` is missing, the layers have
                different numbers of heads, or the result does not fit in memory.

        Example:
            >>> import regard
            >>> trace = regard.load().trace("time flies like an arrow")
            >>> trace.weights(layer=5, head=0).sum(dim=1).round(decimals=5)
            tensor([1., 1., 1., 1., 1., 1., 1.])
            >>> trace.weights(head=[0, 3], query="flies").shape
            torch.Size([6, 2, 1, 7])
        """
        return self._of_pairs("weights", attention_weights, layer, head, kind, query, key)

    def scores(
        self,
        layer: Numbers = None,
        head: Numbers = None,
        *,
        kind: Kind | None = None,
        query: Selector | None = None,
        key: Selector | None = None,
    ) -> Tensor:
        """Attention scores, before the softmax: q k^T, scaled, and capped, biased and masked as in the model.

        Arguments, result and errors are those of `weights`.
        """
        return self._of_pairs("scores", attention_scores, layer, head, kind, query, key)

    def _of_pairs(
        self,
        what: str,
        compute: Callable[[AttentionInputs, Tensor | None, Tensor | None], Tensor],
        layer: Numbers,
        head: Numbers,
        kind: Kind | None,
        query: Selector | None,
        key: Selector | None,
    ) -> Tensor:
        # Everything that was asked for is checked, and its size known, before anything is computed.
        kind = self.kind(kind)
        layers: Sequence[int] = [layer]  # type: ignore[list-item]
        if layer is None:
            layers = self._layers_with(kind)
        elif isinstance(layer, list | tuple | range | slice):
            # Numbers count over all layers of the stack.
            layers = numbers_of("layer", layer, self.sides(kind)[0].depth)
        asked = []
        for number in layers:
            # Layers may have different numbers of heads.
            inputs = self.attention_of(number, kind).inputs
            asked.append((inputs, None if head is None else numbers_of("head", head, inputs.num_heads)))
        # Rows of a tensor must be equally long.
        counts = {inputs.num_heads if heads is None else len(heads) for inputs, heads in asked}
        if len(counts) > 1:
            raise InputError(
                f"layer must name layers with as many heads each, or head one head; got {sorted(counts)}."
            )
        device = asked[0][0].q.device
        of_queries, of_keys = (each.encoding for each in self.sides(kind))
        queries = positions_of("query", of_queries, query, device)
        keys = positions_of("key", of_keys, key, device)
        rows = len(of_queries.tokens) if queries is None else len(queries)
        # Attention sinks add a column.
        columns = asked[0][0].num_columns if keys is None else len(keys)
        # float32: 4 bytes a weight.
        num_bytes = 4 * len(layers) * max(counts) * rows * columns
        if num_bytes >= _LITTLE:
            check_room(
                f"{what} of {len(layers)} x {max(counts)} heads, {rows} x {columns} tokens,",
                num_bytes,
                device,
                "ask for some of them with query=, key=, head= or layer=, or for trace.statistics(), which "
                "makes no N x N",
            )
        # A bias may be learned, and would build a graph.
        with torch.no_grad():
            # All heads in one product; some of them one by one, so that no other is computed.
            tables = [
                compute(inputs, queries, keys)[0].float()
                if heads is None
                else torch.cat([compute(inputs.head(one), queries, keys)[0].float() for one in heads])
                for inputs, heads in asked
            ]
        # (layers, heads, queries, keys); a number instead of a list takes its axis away.
        table = tables[0][None] if len(tables) == 1 else torch.stack(tables)
        table = table[:, 0] if isinstance(head, SupportsIndex) else table
        return (table[0] if isinstance(layer, SupportsIndex) else table).cpu()

    def q(
        self, layer: int, head: int | None = None, *, kind: Kind | None = None, query: Selector | None = None
    ) -> Tensor:
        """The queries as attention uses them, after rotation and norm.

        Args:
            layer, head, kind, query: as in `weights`, but one layer, and one head or None for all.

        Returns:
            float32 on the CPU, (queries, head_dim), or (heads, queries, head_dim) where head is None.

        Example:
            >>> import regard
            >>> trace = regard.load().trace("time flies like an arrow")
            >>> trace.q(3, 5).shape, trace.k(3, 5, key="flies").shape, trace.output(3).shape
            (torch.Size([7, 32]), torch.Size([1, 32]), torch.Size([7, 384]))
        """
        return self._of_tokens("q", layer, head, kind, query)

    def k(
        self, layer: int, head: int | None = None, *, kind: Kind | None = None, key: Selector | None = None
    ) -> Tensor:
        """The keys as attention uses them, (keys, head_dim), or (kv_heads, keys, head_dim) without `head`.

        `head` counts query heads, and gives the keys that this head reads. The rest is as in `q`.
        """
        return self._of_tokens("k", layer, head, kind, key)

    def v(
        self, layer: int, head: int | None = None, *, kind: Kind | None = None, key: Selector | None = None
    ) -> Tensor:
        """The values, (keys, v_dim), or (kv_heads, keys, v_dim) without `head`; the rest is as in `k`."""
        return self._of_tokens("v", layer, head, kind, key)

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
            layer, head, kind, query: as in `q`.

        Returns:
            float32 on the CPU, (queries, v_dim), or (heads, queries, v_dim) where head is None.
        """
        return self._of_tokens("context", layer, head, kind, query)

    def output(self, layer: int, *, kind: Kind | None = None, query: Selector | None = None) -> Tensor:
        """The output of an attention layer, before it is added to the residual stream: (queries, d_model).

        Raises:
            InputError: it was not kept, or cannot be seen through the lens.
        """
        return self._of_tokens("output", layer, None, kind, query)

    def _of_tokens(
        self, name: str, layer: int, head: int | None, kind: Kind | None, token: Selector | None
    ) -> Tensor:
        """q, k, v, context or output of some tokens."""
        kind = self.kind(kind)
        traced = self.attention_of(layer, kind)
        value: Tensor | None = getattr(traced if name in ("context", "output") else traced.inputs, name)
        if value is None:
            raise InputError(
                f'the output of attention layer {layer} is not in this trace: trace with keep="all"; through '
                "the lens some models do not show it."
            )
        # (1, heads, tokens, head_dim), of one text.
        value = value[0] if value.ndim == 4 else value
        if head is not None:
            # With grouped queries, several heads read the same k and v.
            groups = traced.inputs.num_heads // len(value)
            value = value[self.head_index(head, kind, layer) // groups]
        # Keys and values belong to the side of the keys.
        side, argument = (1, "key") if name in ("k", "v") else (0, "query")
        positions = positions_of(argument, self.sides(kind)[side].encoding, token, value.device)
        picked = value if positions is None else value.index_select(-2, positions)
        return picked.detach().float().cpu()

    def embedding(self, token: WordOrToken, layer: int | str = -1, *, kind: Kind | None = None) -> Tensor:
        """The vector of a token or a word at an embedding layer.

        Args:
            token: an index, a word of the text, or a span of it, such as (16, 20); a word of several pieces
                gives their mean.
            layer: 0 is the learned embedding (the row of the table); i >= 1 is the output of attention layer
                i - 1; L, or -1, is the contextual embedding, after the last norm; "input" is the input of
                attention layer 0, made of table row, position and norm.
            kind: "encoder" or "decoder"; needed only where there are both.

        Returns:
            float32 on the CPU, (d_model,).

        Raises:
            InputError: a layer, token or word that is not there, or a kind that is not said.
        """
        traced = self.stack(kind)
        rows = token_of("token", traced.encoding, token)
        # A word of several tokens: their mean.
        return traced.embeddings(layer)[list(rows)].float().cpu().mean(dim=0)

    def embeddings(self, layer: int | str = -1, *, kind: Kind | None = None) -> Tensor:
        """The vectors of all tokens at an embedding layer: float32 on the CPU, (tokens, d_model)."""
        return self.stack(kind).embeddings(layer).float().cpu()

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the trace to a safetensors file, whole or not at all.

        With it go the tokens and words, every mask and bias as the rule that it is, and which model it is of;
        not the model's parameters. Weights of a trace that is opened again are the same to the last bit.

        Args:
            path: the file; one that is there is replaced.

        Raises:
            InputError: a mask that is an arbitrary `Predicate`, which no file can hold.
            OutputError: the file cannot be written; nothing is left behind.

        Example:
            >>> import regard, tempfile
            >>> trace = regard.load().trace("time flies like an arrow", keep="qk")
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     again = regard.Trace.open(trace.save(f"{folder}/arrow.safetensors"))
            ...     torch.equal(again.weights(layer=3), trace.weights(layer=3))
            True
        """
        return write_trace(self, path)

    @classmethod
    def open(cls, path: str | PathLike[str], model: HasLoaded | Loaded | None = None) -> Self:
        """Open a trace that `save` wrote. Tensors stay in the file until they are used, on the CPU.

        Args:
            path: the file.
            model: the model that it is of, for what needs its parameters; without it, that raises.

        Raises:
            CheckpointError: no such file (a FileNotFoundError too), or one that is damaged, no trace, or of
                another format.
            InputError: another model than the trace's.
        """
        return cls(**read_trace(path, model))


def check_trace(name: str, value: object) -> Trace:
    """Check that an argument is a trace, and return it."""
    if not isinstance(value, Trace):
        raise InputError(f"{name} must be a trace, as model.trace gives it; got {type(value).__name__}.")
    return value
