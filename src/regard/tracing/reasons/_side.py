"""One side of a head's scores: its queries, or its keys, as a sum over what wrote the residual stream."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from torch import Tensor, nn

from regard.blocks import Embeddings, PostNorm, Residual, SandwichNorm
from regard.core import attention_weights
from regard.core.errors import InputError
from regard.models import Kind, attention_name, bound_of, keys_of, relative_error, stack_of
from regard.positions import Rotation
from regard.tracing.measures import Frozen, frozen, hidden_of, output_of, projection_of
from regard.tracing.reasons._writers import Writer, WriterName, attention_of, layer_of
from regard.tracing.record import Trace

Taken = Callable[[int, Tensor], Tensor]
"""A head's part of a row, by the tokens that it took from: each one's product with a vector, (keys,)."""


def most_of(sources: Tensor) -> int:
    """The token that gave most of what they sum to."""
    return int((sources if float(sources.sum()) >= 0 else -sources).argmax())


@dataclass(frozen=True, eq=False)
class Written:
    """A part: who wrote it, (rows, head_dim) before the turn, and of a head from where it came."""

    writer: Writer
    values: Tensor
    taken: Taken | None = None


@dataclass(frozen=True, eq=False)
class _Step:
    """A sublayer: what surrounds it, what it gave, and the norm after it as it was."""

    name: str
    residual: Residual
    output: Tensor
    norm: Frozen | None


class Side:
    """The queries or the keys of one head at some tokens.

        q_i = turn_i(norm(W norm(x_i) + b)),   x_i = sum of what was written before

    Each norm has its scale as it was at that token: then it is linear. The scale alone differs between
    tokens, so that one map (head_dim, d_model) is drawn back through the layers for all of them.

    Raises:
        InputError: parts of the trace or the model that are not at hand, or what `attention_of` refuses.
    """

    def __init__(
        self, trace: Trace, layer: int, head: int, kind: Kind, side: Literal["q", "k"], rows: Sequence[int]
    ) -> None:
        attention, network = attention_of(trace, kind, layer), trace.require_model().network
        self._trace, self._network, self._rows = trace, network, list(rows)
        self._dtype = next(network.parameters()).dtype
        self.kind = keys_of(kind) if side == "k" else stack_of(kind)
        recorded = getattr(trace.attention_of(layer, kind).inputs, side)[0]
        # Grouped queries share a key and value head.
        number = head // (attention.num_heads // len(recorded))
        linear: nn.Linear = getattr(attention, side)
        # The rows of W that belong to the head.
        of_head = slice(number * recorded.shape[2], (number + 1) * recorded.shape[2])
        self._w = linear.weight.detach()[of_head].double()
        self._wanted = recorded[number, self._rows].double()
        self._told = f"{'queries' if side == 'q' else 'keys'} of {kind} layer {layer}, head {head}"
        self._scale = self._w.new_ones(len(rows), 1)
        # Biases, drawn through the same map as everything else.
        self._constant = torch.zeros_like(self._wanted)
        if linear.bias is not None:
            self._constant += linear.bias.detach()[of_head].double()
        # Cross-attention's queries read what this layer's self-attention left.
        self._start, self._names = layer, ("attention",) if kind == "cross" else ()
        # The encoder's output, after its last norm.
        if side == "k" and kind == "cross":
            self._start, self._names = network.depth(self.kind), ()
            x, norm = self._state(self._start), network.final_norm(self.kind)
            if norm is not None:
                _, x = self._sublayers(self._start - 1, ("attention", "ffn"))
        else:
            _, x = self._sublayers(layer, self._names)
            norm = _before(getattr(layer_of(trace, self.kind, layer), f"{attention_name(kind)}_residual"))
        self._through(frozen(norm, x))
        # A norm of queries or keys, frozen at the head's own vectors.
        self._norm = frozen(getattr(attention, f"{side}_norm"), self._mapped(x) + self._constant)
        stack, self._rotation = network.stack(self.kind), None
        assert stack is not None, "its layer was checked"
        if kind != "cross" and (rotary := stack.patterns[layer].rotary) is not None:
            ids = torch.tensor([trace.stack(self.kind).encoding.token_ids], device=x.device)
            # Rounded as the model's own.
            turns = rotary.rotation(stack.numbering(ids), dtype=self._dtype)
            cos, sin = (each[0, 0, self._rows].double() for each in (turns.cos, turns.sin))
            self._rotation = Rotation(cos, sin, turns.layout)

    def turned(self, values: Tensor, *, row: int | None = None, back: bool = False) -> Tensor:
        """Vectors (.., rows, head_dim) turned as their positions turn them, or back; or all as one row's."""
        if self._rotation is None:
            return values
        at = slice(None) if row is None else slice(row, row + 1)
        cos, sin = self._rotation.cos[at], self._rotation.sin[at]
        return Rotation(cos, -sin if back else sin, self._rotation.layout).apply(values)

    def parts(self) -> Iterator[Written]:
        """All parts, the last that was written first; biases at the end.

        Raises:
            InputError: their sum is not what the model had.
        """
        total = torch.zeros_like(self._wanted)
        for part in self._parts():
            total += part.values
            yield part
        # The sum must be the recorded vector: nothing is told that does not add up.
        apart = relative_error(self.turned(total), self._wanted)
        rounding = max(map(bound_of, (self._dtype, hidden_of(self._trace, self.kind)[0].dtype)))
        if not apart <= rounding:
            raise InputError(
                f"the parts of the {self._told}, do not sum to the model's own: {apart:.1e} of the largest "
                f"apart, and rounding is {rounding:.0e}. An edit wrote there, or {self._trace.model} does "
                "more than add up."
            )

    def _parts(self) -> Iterator[Written]:
        # This layer's own sublayers first, then layer by layer back to the embedding.
        for step in reversed(self._sublayers(self._start, self._names)[0] if self._names else []):
            yield from self._of_step(self._start, step)
        for layer in reversed(range(self._start)):
            residual, names = (
                layer_of(self._trace, self.kind, layer).ffn_residual,
                ["attention", "cross_attention"],
            )
            # A trace has of the last layer only what the last norm made of it.
            if isinstance(residual, PostNorm) or layer + 1 == self._network.depth(self.kind):
                names.append("ffn")
            steps, x = self._sublayers(layer, names)
            if names[-1] != "ffn":
                # What the feed-forward added is what was handed on less what was there: it need not run.
                yield self._written("ffn", self._state(layer + 1) - x, layer)
            for step in reversed(steps):
                yield from self._of_step(layer, step)
        yield from self._embedded()
        # What all the biases together give.
        biases = self._normed(self._constant)
        if self._norm is not None and self._norm.bias is not None:
            biases = biases + self._norm.bias
        # Some models have none.
        if bool(biases.any()):
            yield Written(Writer("biases", kind=self.kind), biases)

    def _embedded(self) -> Iterator[Written]:
        traced, stack = self._trace.stack(self.kind), self._network.stack(self.kind)
        assert stack is not None, "its layers were checked"
        embeddings, word = stack.embeddings, traced.learned if traced.scaled is None else traced.scaled
        if type(embeddings) is not Embeddings or word is None:
            yield self._written("embedding", self._state(0))
            return
        # Embeddings of another width, as ELECTRA's: the map goes through the projection.
        if (projection := embeddings.projection) is not None:
            self._add(projection.bias)
            self._w = self._w @ projection.weight.detach().double()
        names: tuple[WriterName, ...] = ("word", "position", "token_type")
        summands = zip(names, (word, traced.positions, traced.token_types), strict=True)
        parts = {name: x[self._rows].double() for name, x in summands if x is not None}
        # The norm after the sum of word, position and type.
        self._through(frozen(embeddings.norm, torch.stack([*parts.values()]).sum(dim=0)))
        for name, x in parts.items():
            yield self._written(name, x)

    def _of_step(self, layer: int, step: _Step) -> Iterator[Written]:
        # The map of the residual stream, which goes past a sandwich's norms.
        stream = self._w, self._scale
        self._through(step.norm)
        if step.name == "ffn":
            yield self._written("ffn", step.output, layer)
        else:
            yield from self._heads(layer, self._kind_of(step.name))
        # The residual stream itself goes past its norms.
        if isinstance(step.residual, SandwichNorm):
            self._w, self._scale = stream

    def _heads(self, layer: int, kind: Kind) -> Iterator[Written]:
        traced, projection = self._trace.attention_of(layer, kind), projection_of(self._trace, kind, layer)
        inputs, scale = traced.inputs, self._scale
        self._add(projection.bias)
        # (heads, v_dim, head_dim): from a context to this head's queries or keys.
        maps = projection.weight @ self._w.mT
        values = scale * torch.bmm(traced.context[:, self._rows].double(), maps)

        # Heads of one layer ask for the same rows.
        @cache
        def weights_of(row: int) -> Tensor:
            return attention_weights(inputs, torch.tensor([self._rows[row]], device=scale.device))[0, :, 0]

        def taken_by(head: int) -> Taken:
            def taken(row: int, toward: Tensor) -> Tensor:
                # The direction drawn back: turn, norm, and then through the map.
                back = self.turned(toward[None], row=row, back=True)[0]
                if self._norm is not None:
                    back = self._norm.back(back) * self._norm.scale[row]
                v = inputs.v[0, head // (inputs.num_heads // inputs.v.shape[1])].double()
                # A sink has a weight, and no value.
                weights: Tensor = weights_of(row)[head, : len(v)].double()
                # Each key's weight x value, along the direction.
                return weights * (v @ (maps[head] @ back)) * scale[row]

            return taken

        for head, value in enumerate(values):
            # Where an edit wrote a context, it is not weights x values.
            taken = None if head in traced.written_heads else taken_by(head)
            yield Written(Writer("head", layer, head, kind), self._normed(value), taken)

    def _sublayers(self, layer: int, names: Sequence[str]) -> tuple[list[_Step], Tensor]:
        """These sublayers of a layer, and what the last of them handed on."""
        x, steps = self._state(layer), list[_Step]()
        own = layer_of(self._trace, self.kind, layer) if names else None
        for name in names:
            # A layer without cross-attention.
            if not hasattr(own, name):
                continue
            residual: Residual = getattr(own, f"{name}_residual")
            if name == "ffn":
                norm, read = _before(residual), x.to(self._dtype)[None]
                # Not in the trace: it is worked out from what the sublayer was given.
                with torch.no_grad():
                    output = getattr(own, name)(read if norm is None else norm(read))[0].double()
            else:
                output = output_of(self._trace, self._kind_of(name), layer)[self._rows].double()
            after, summed = None, output
            if isinstance(residual, PostNorm):
                # x + output goes into the norm.
                after, summed = residual.norm, x + output
            elif isinstance(residual, SandwichNorm):
                after = residual.after
            steps.append(_Step(name, residual, output, as_it_was := frozen(after, summed)))
            normed = summed if as_it_was is None else as_it_was.applied(summed)
            # After the norm, or added to the stream.
            x = normed if isinstance(residual, PostNorm) else x + normed
        return steps, x

    def _state(self, layer: int) -> Tensor:
        return hidden_of(self._trace, self.kind)[layer][self._rows].double()

    def _kind_of(self, name: str) -> Kind:
        return "cross" if name == "cross_attention" else self.kind

    def _through(self, norm: Frozen | None) -> None:
        """Draw the map back through a norm."""
        if norm is not None:
            self._add(norm.bias)
            # W' = W . norm, and the scale of each position beside it.
            self._w, self._scale = norm.back(self._w), self._scale * norm.scale

    def _add(self, bias: Tensor | None) -> None:
        """What the map makes of a bias is one of the biases."""
        if bias is not None:
            self._constant = self._constant + self._scale * (self._w @ bias.detach().double())

    def _mapped(self, x: Tensor) -> Tensor:
        made: Tensor = self._scale * (x @ self._w.mT)
        return made

    def _written(self, name: WriterName, x: Tensor, layer: int | None = None) -> Written:
        return Written(Writer(name, layer, kind=self.kind), self._normed(self._mapped(x)))

    def _normed(self, values: Tensor) -> Tensor:
        return values if self._norm is None else self._norm.forth(values)


def _before(residual: Residual) -> nn.Module | None:
    """The norm between the residual stream and a sublayer; None where there is none."""
    if isinstance(residual, PostNorm):
        return None
    return residual.before if isinstance(residual, SandwichNorm) else residual.norm
