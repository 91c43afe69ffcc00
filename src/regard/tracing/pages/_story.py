"""One word's way through a stack, from a trace: what the page's story draws, step by step."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from regard.blocks import Embeddings
from regard.models import Kind, StackKind
from regard.tracing.pages._ending import ending_of
from regard.tracing.pages._explain import Sublayer, sublayers
from regard.tracing.pages._page_measures import as_array
from regard.tracing.record import Trace, TracedStack
from regard.views import SHOWN, StoryNeurons, StoryPart, StoryRecord, StoryRow

MOST_TOKENS = 64
"""Tokens whose story a page holds; of a longer text, so many around one place."""

_TOP = 5  # neurons that are named, of each token and layer


def story_record(
    trace: Trace, kind: StackKind, around: int = 0, *, with_words: bool = True
) -> StoryRecord | None:
    """The way of a stack's tokens through it; `around` is in the middle where not all are held. `with_words`:
    see `ending_of`.

    None where the trace does not have the residual stream. A RegardError where a layer's steps do not lead to
    what was recorded.
    """
    traced = trace.stack(kind)
    if not traced.keeping.hidden or traced.keeping.layers is not None or traced.learned is None:
        return None
    if len(traced.hidden) != len(traced.attention) + 1:
        return None
    count = len(traced.encoding.tokens)
    start = max(0, min(around - MOST_TOKENS // 2, count - MOST_TOKENS))
    tokens = list(range(start, min(count, start + MOST_TOKENS)))
    stack = None if trace.loaded is None else trace.loaded.network.stack(kind)
    embeddings = None if stack is None else stack.embeddings
    made = _Rows(trace, kind, tokens)
    made.embed(embeddings)
    for layer in range(len(traced.attention)):
        made.walk(layer)
    return StoryRecord(
        tokens=tuple(tokens),
        ids=tuple(traced.encoding.token_ids[place] for place in tokens),
        vocabulary=None if embeddings is None else embeddings.tokens.num_embeddings,
        rows=tuple(made.rows),
        moved=_moved(traced, tokens),
        neurons=made.neurons(),
        heads=made.heads,
        ending=ending_of(trace, kind, around, with_words=with_words),
    )


class _Rows:
    """The vectors of some tokens, as they come."""

    def __init__(self, trace: Trace, kind: StackKind, tokens: list[int]) -> None:
        self._trace, self._kind, self._tokens = trace, kind, tokens
        self._traced = trace.stack(kind)
        self.rows: list[StoryRow] = []
        self.heads: dict[tuple[str, int], np.ndarray] = {}
        self._hidden: dict[int, Tensor] = {}
        self._stream = 0  # the row that holds the residual stream

    def embed(self, embeddings: Embeddings | None) -> None:
        """What enters layer 0, and what it is made of."""
        traced, first = self._traced, self._traced.hidden[0]
        assert traced.learned is not None
        given = [("learned", traced.learned), ("scaled", traced.scaled)]
        for name, vectors in given:
            if vectors is not None:
                self._add(name, "embedding", None, vectors)
        base = len(self.rows) - 1
        total = (traced.learned if traced.scaled is None else traced.scaled).double()
        parts = [base]
        for name, vectors in (("position", traced.positions), ("token type", traced.token_types)):
            if vectors is not None:
                self._add(name, "embedding", None, vectors)
                parts.append(len(self.rows) - 1)
                total = total + vectors.double()
        if len(parts) > 1:
            self._add("sum", "embedding", None, total, total=tuple(parts))
        if total.shape != first.shape or not torch.allclose(total, first.double(), rtol=1e-5, atol=1e-6):
            norm = None if embeddings is None else embeddings.norm
            name = "enters layer 0" if norm is None else type(norm).__name__
            projected = embeddings is not None and embeddings.projection is not None
            self._add(f"{name}, projected" if projected else name, "embedding", None, first)
        self._reads(0)

    def walk(self, layer: int) -> None:
        """The steps of a layer."""
        parts = sublayers(self._trace, self._kind, layer, self._tokens, widen=False)
        if parts:
            for part in parts:
                self._sublayer(layer, part)
        else:
            output = self._trace.attention_of(layer, self._kind).output
            if output is not None:
                self._add("attention", "attention", layer, output)
            self._add("output", "output", layer, self._traced.hidden[layer + 1])
        self._reads(layer + 1)
        kinds: list[Kind] = [self._kind]
        if self._kind == "decoder" and "cross" in self._trace.kinds:
            kinds.append("cross")
        for kind in kinds:
            self._heads(kind, layer)

    def neurons(self) -> StoryNeurons | None:
        """The largest of each layer's neurons."""
        if not self._hidden:
            return None
        layers = tuple(self._hidden)
        count = min(hidden.shape[1] for hidden in self._hidden.values())
        places = [hidden.abs().topk(min(_TOP, count), dim=1).indices for hidden in self._hidden.values()]
        values = [hidden.gather(1, of) for hidden, of in zip(self._hidden.values(), places, strict=True)]
        active = [(hidden > 0).sum(dim=1) for hidden in self._hidden.values()]
        return StoryNeurons(
            layers=layers,
            count=count,
            places=torch.stack(places).int().cpu().numpy(),
            values=as_array(torch.stack(values)),
            active=torch.stack(active).int().cpu().numpy(),
        )

    def _sublayer(self, layer: int, part: Sublayer) -> None:
        name: StoryPart = part.name  # type: ignore[assignment]
        for step in part.steps:
            if step.name == "hidden":
                self._hidden[layer] = step.value
                continue
            last = len(self.rows) - 1
            final = step.name.startswith("final ")
            total = (self._stream, last) if step.total else ()
            self._add(step.name, "final" if final else name, layer, step.value, total=total, whole=False)
        self._stream = len(self.rows) - 1

    def _heads(self, kind: Kind, layer: int) -> None:
        """How long what each head adds to the attention's output is."""
        if layer not in self._trace.layers_of(kind) or self._trace.loaded is None:
            return
        traced = self._trace.attention_of(layer, kind)
        projection = self._trace.loaded.network.projection(kind, layer)
        if projection is None or traced.output_written:
            return
        context = traced.context[:, self._tokens]
        added = [projection.of_values(context, head).norm(dim=1) for head in range(len(context))]
        self.heads[kind, layer] = as_array(torch.stack(added, dim=1))

    def _reads(self, layer: int) -> None:
        """The last row is what this layer reads."""
        self.rows[-1] = replace(self.rows[-1], hidden=layer)
        self._stream = len(self.rows) - 1

    def _add(
        self,
        name: str,
        part: StoryPart,
        layer: int | None,
        vectors: Tensor,
        *,
        total: tuple[int, ...] = (),
        whole: bool = True,
    ) -> None:
        """A row of these vectors: of all tokens of the text where they are `whole`, else of those told of."""
        vectors = vectors[self._tokens] if whole else vectors
        self.rows.append(
            StoryRow(
                name=name,
                part=part,
                layer=layer,
                values=as_array(vectors[:, :SHOWN]),
                lengths=as_array(vectors.double().norm(dim=1)),
                dim=vectors.shape[1],
                total=total,
            )
        )


def _moved(traced: TracedStack, tokens: Sequence[int]) -> np.ndarray:
    """How alike each state is to the learned embedding, layer 0's input and the state before, and how far."""
    assert traced.learned is not None
    states = [state[list(tokens)].double() for state in traced.hidden]
    learned = traced.learned[list(tokens)].double()
    found = np.full((2, 3, len(states), len(tokens)), np.nan, np.float32)
    for place, state in enumerate(states):
        for to, other in enumerate((learned, states[0], states[max(0, place - 1)])):
            if other.shape == state.shape:
                found[0, to, place] = as_array(torch.cosine_similarity(state, other, dim=1))
                found[1, to, place] = as_array((state - other).norm(dim=1))
    return found
