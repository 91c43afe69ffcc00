"""The same sum in a model that is seen through the lens: what it shows, and how queries and keys read it."""

from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

from regard.models import Kind, keys_of, relative_error, stack_of
from regard.positions import Rotation
from regard.tracing.measures import frozen, sublayers_of
from regard.tracing.reasons._side import Side, Written
from regard.tracing.reasons._writers import Writer, readers_of
from regard.tracing.record import Trace


def side_of(
    trace: Trace, layer: int, head: int, kind: Kind, side: Literal["q", "k"], rows: Sequence[int]
) -> Side:
    """See `Side`."""
    is_seen = trace.require_model().network.plain.foreign is not None
    return (SeenSide if is_seen else Side)(trace, layer, head, kind, side, rows)


class SeenSide(Side):
    """Queries or keys where layers add to the residual stream, with nothing after, as in GPT-2 and Llama.

    That they add, and that queries and keys are what linear layers make of the stream, is checked with the
    recorded numbers. A turn by the position is no module, and is read off queries and keys of all heads.
    """

    def __init__(
        self, trace: Trace, layer: int, head: int, kind: Kind, side: Literal["q", "k"], rows: Sequence[int]
    ) -> None:
        readers, network = readers_of(trace, kind, layer), trace.require_model().network
        self._trace, self._network, self._rows = trace, network, list(rows)
        self._dtype = next(network.parameters()).dtype
        self.kind = keys_of(kind) if side == "k" else stack_of(kind)
        inputs, reader = trace.attention_of(layer, kind).inputs, readers[side == "k"]
        # (heads, rows, head_dim)
        recorded = [each[0][:, self._rows].double() for each in (inputs.q, inputs.k)]
        # Grouped queries share a key and value head.
        number = head // (inputs.num_heads // len(reader.weight))
        self._w, self._wanted = reader.weight[number], recorded[side == "k"][number]
        self._told = f"{'queries' if side == 'q' else 'keys'} of {kind} layer {layer}, head {head}"
        self._scale, self._norm = self._w.new_ones(len(rows), 1), None
        self._constant = torch.zeros_like(self._wanted) + reader.bias[number]
        x = self._state(layer)
        as_it_was = frozen(reader.norm, x)
        # What the linear layers read, after the norm.
        read = x if as_it_was is None else as_it_was.applied(x)
        plain = [read @ each.weight.mT + each.bias[:, None] for each in readers]
        # Rotation is seen, not known: it is worked out from what went in and what came out.
        self._rotation = _rotation(torch.cat(plain), torch.cat(recorded))
        self._through(as_it_was)
        steps, _, _ = sublayers_of(trace, network, self.kind, self._rows)
        # Only what was written before this layer.
        self._before = [step for step in steps if step.layer < layer]

    def _parts(self) -> Iterator[Written]:
        for step in reversed(self._before):
            if step.name == "ffn":
                yield self._written("ffn", step.output, step.layer)
            else:
                yield from self._heads(step.layer, self._kind_of(step.name))
        yield self._written("embedding", self._state(0))
        # Models without any bias have no such part.
        if bool(self._constant.any()):
            yield Written(Writer("biases", kind=self.kind), self._constant)


def _rotation(plain: Tensor, turned: Tensor) -> Rotation | None:
    """The turn of each row that makes vectors of all heads these, (heads, rows, head_dim); None for none.

    With two heads or more, of queries and keys, there are more numbers than angles: what is no turn is found
    where the parts are compared with what the model had.
    """
    best, least = None, relative_error(plain, turned)
    layouts: tuple[Literal["half", "interleaved"], ...] = (
        ("half", "interleaved") if plain.shape[2] % 2 == 0 else ()
    )
    # Both layouts of pairs are tried.
    for layout in layouts:
        (a, b), (c, d) = (
            each.chunk(2, dim=-1) if layout == "half" else (each[..., ::2], each[..., 1::2])
            for each in (plain, turned)
        )
        size = (a * a + b * b).sum(dim=0)
        # The turn of each pair (a, b) to (c, d), by least squares over the heads.
        cos, sin = (a * c + b * d).sum(dim=0) / size, (a * d - b * c).sum(dim=0) / size
        each = torch.cat([cos, cos], dim=-1) if layout == "half" else cos.repeat_interleave(2, dim=-1)
        rotation = Rotation(each, sin, layout)
        # Only a clear improvement over no turn at all.
        if (apart := relative_error(rotation.apply(plain), turned)) < 0.1 * least:
            best, least = rotation, apart
    return best
