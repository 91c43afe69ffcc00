"""What a trace keeps of one forward pass, and everything that can be computed from it."""

import operator
from dataclasses import dataclass
from os import PathLike

import torch
from torch import Tensor

from regard.core import AttentionInputs, attention_scores, attention_weights, fused_attention
from regard.core.errors import InputError
from regard.text import Encoding
from regard.views import Explanation, Page, render_page, write_page

Selector = int | slice | str
"""Some tokens: an index (negative from the end), a slice, or a word of the text ("bank", "bank#2")."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """One text's way through a model: queries, keys and values of every layer, and the residual stream.

    Nothing of size tokens x tokens is kept. Weights, scores and contexts are computed from q, k and v when
    somebody asks, exactly as the model's own. Attention layers and heads count from 0 to L - 1 and H - 1,
    embedding layers from 0 (the learned embedding) to L; negative numbers count from the end.

    Args:
        model: the model's name.
        encoding: the tokens and words, with their spans in the text.
        attention: for each layer the `regard.core.AttentionInputs`, of batch size 1.
        learned: (tokens, d_model), the rows of the table of learned embeddings.
        positions: (tokens, d_model), what was added for the position.
        token_types: the same for the token type, or None.
        hidden: L + 1 tensors (tokens, d_model): the input of layer 0, then the output of each layer.
        outputs: for each layer (tokens, d_model), what attention adds to the residual stream.

    Example:
        >>> import regard
        >>> trace = regard.load().trace("time flies like an arrow")
        >>> trace.weights(layer=0, head=3, query="flies").shape
        torch.Size([1, 7])
    """

    model: str
    encoding: Encoding
    attention: tuple[AttentionInputs, ...]
    learned: Tensor
    positions: Tensor
    token_types: Tensor | None
    hidden: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @property
    def num_layers(self) -> int:
        """Attention layers, L."""
        return len(self.attention)

    @property
    def num_heads(self) -> int:
        """Query heads a layer."""
        return self.attention[0].num_heads

    @property
    def tokens(self) -> list[str]:
        """The tokens, as the vocabulary writes them."""
        return [token.text for token in self.encoding.tokens]

    @property
    def token_ids(self) -> list[int]:
        """The tokens' places in the vocabulary."""
        return list(self.encoding.token_ids)

    @property
    def words(self) -> list[str]:
        """The words of the text (of both, where there is a pair), by Unicode word boundaries."""
        return [word.text for word in self.encoding.words]

    def __repr__(self) -> str:
        return (
            f"Trace({self.model!r}, {len(self.encoding.tokens)} tokens, "
            f"{self.num_layers} layers x {self.num_heads} heads)"
        )

    def weights(
        self,
        layer: int,
        head: int | None = None,
        *,
        query: Selector | None = None,
        key: Selector | None = None,
    ) -> Tensor:
        """Attention weights, after the softmax: how much each query attends to each key.

        Args:
            layer: attention layer, 0 to L - 1.
            head: 0 to H - 1; None gives all heads.
            query, key: which tokens; a word of several pieces gives one row or column each; None gives all.

        Returns:
            float32 on the CPU, (queries, keys), or (heads, queries, keys) where head is None. Rows are
            normalised over all keys, so that a selection is a part of the whole matrix.

        Raises:
            InputError: a layer, head, token or word that is not there.

        Example:
            >>> import regard
            >>> trace = regard.load().trace("time flies like an arrow")
            >>> trace.weights(layer=5, head=0).sum(dim=1).round(decimals=5)
            tensor([1., 1., 1., 1., 1., 1., 1.])
        """
        inputs = self._inputs(layer, head)
        matrix = attention_weights(inputs, self._positions(query), self._positions(key))[0]
        return _delivered(matrix, head)

    def scores(
        self,
        layer: int,
        head: int | None = None,
        *,
        query: Selector | None = None,
        key: Selector | None = None,
    ) -> Tensor:
        """The softmax's exact argument: q k^T scaled, and where the model does so capped, biased, masked.

        Args, returns and errors are those of `weights`.
        """
        inputs = self._inputs(layer, head)
        matrix = attention_scores(inputs, self._positions(query), self._positions(key))[0]
        return _delivered(matrix, head)

    def context(self, layer: int, head: int | None = None, *, query: Selector | None = None) -> Tensor:
        """The weighted sum of the values, before the heads are joined.

        Args:
            layer, head, query: as in `weights`.

        Returns:
            float32 on the CPU, (queries, v_dim), or (heads, queries, v_dim) where head is None.
        """
        inputs = self._inputs(layer, head)
        context = fused_attention(inputs)[0]
        positions = self._positions(query)
        if positions is not None:
            context = context.index_select(1, positions)
        return _delivered(context, head)

    def embedding(self, token: int | str, layer: int | str = -1) -> Tensor:
        """A token's or a word's vector.

        Args:
            token: an index, or a word of the text; a word of several pieces gives their mean.
            layer: 0 is the learned embedding (the row of the table), i >= 1 the output of attention layer
                i - 1, so L, or -1, the contextual embedding; "input" is what layer 0 reads: table row,
                position and norm.

        Returns:
            float32 on the CPU, (d_model,).

        Raises:
            InputError: a layer, token or word that is not there.
        """
        rows = self.encoding.find(token)
        return self.embeddings(layer)[list(rows)].mean(dim=0)

    def embeddings(self, layer: int | str = -1) -> Tensor:
        """Every token's vector at an embedding layer: float32 on the CPU, (tokens, d_model)."""
        if layer == "input":
            return self.hidden[0].float().cpu()
        index = _index(layer, self.num_layers + 1)
        if index is None:
            raise InputError(
                f'layer must be from 0 (learned) to {self.num_layers} (contextual), or "input", or negative '
                f"to count from the end; got {layer!r}."
            )
        return (self.learned if index == 0 else self.hidden[index]).float().cpu()

    def explain(self, token: int | str, layer: int = -1, head: int = 0) -> Explanation:
        """Work out one row of attention, step by step: see `regard.tracing.explain`."""
        from regard.tracing._explain import explain

        return explain(self, token, layer, head)

    def page(self) -> Page:
        """The interactive page of this trace: `trace.page().html`; `write_page` puts it in a file."""
        from regard.tracing._page import page_record

        return render_page(page_record(self))

    def write_page(self, path: str | PathLike[str]) -> Page:
        """Write the interactive page, whole or not at all.

        Raises:
            OutputError: the file cannot be written.
        """
        from regard.tracing._page import page_record

        return write_page(page_record(self), path)

    def layer_index(self, layer: int) -> int:
        """An attention layer's number from 0 to L - 1, whatever end it was counted from."""
        return _checked("layer", layer, self.num_layers)

    def head_index(self, head: int) -> int:
        """A query head's number from 0 to H - 1, whatever end it was counted from."""
        return _checked("head", head, self.num_heads)

    def _inputs(self, layer: int, head: int | None) -> AttentionInputs:
        inputs = self.attention[self.layer_index(layer)]
        return inputs if head is None else inputs.head(self.head_index(head))

    def _positions(self, selector: Selector | None) -> Tensor | None:
        if selector is None:
            return None
        if isinstance(selector, slice):
            chosen = tuple(range(len(self.encoding.tokens))[selector])
            if not chosen:
                raise InputError(
                    f"{selector} must pick at least one of the {len(self.encoding.tokens)} tokens."
                )
        else:
            chosen = self.encoding.find(selector)
        return torch.tensor(chosen, device=self.learned.device)


def _delivered(values: Tensor, head: int | None) -> Tensor:
    return (values if head is None else values[0]).float().cpu()


def _checked(name: str, value: int, count: int) -> int:
    index = _index(value, count)
    if index is None:
        raise InputError(
            f"{name} must be from 0 to {count - 1}, or negative to count from the end; got {value!r}."
        )
    return index


def _index(value: object, count: int) -> int | None:
    """The number from 0 to count - 1 that is meant, or None."""
    try:
        # operator.index lets numpy's integers pass; a bool is an integer to it, and never meant as one.
        index = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None
    return index % count if -count <= index < count and not isinstance(value, bool) else None
