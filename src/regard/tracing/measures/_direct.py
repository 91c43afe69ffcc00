"""Direct logit attribution: a logit as the sum of what each head and each feed-forward layer wrote to it."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn

from regard.blocks import PostNorm, PreNorm, Residual, SandwichNorm
from regard.core import Taps
from regard.core.displayable import Displayable, plain_table
from regard.core.errors import InputError
from regard.models import Kind, Network, StackKind, bound_of, relative_error
from regard.tracing.measures._frozen import frozen
from regard.tracing.measures._readout import (
    check_head,
    hidden_of,
    outermost,
    output_of,
    projection_of,
    vocabulary_ids,
    widened,
)
from regard.tracing.record import Selector, Trace, chosen_of
from regard.tracing.run import rerun

if TYPE_CHECKING:
    from rich.console import RenderableType

# Of a large model few parts count: as many as a screen has.
_SHOWN: Final = 12

Token = int | str
"""A token of the vocabulary: its id, or as the vocabulary writes it."""

Target = Token | tuple[Token, Token] | list[Token] | Tensor
"""What is attributed: a token's logit, the difference of two tokens' logits, a list with a token for each
position, or the dot product of the last hidden state with a direction (d_model,)."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DirectAttribution(Displayable):
    """The parts that sum to a logit, in float64 on the CPU: of one position (), of several with an axis (P,).

    `print` shows the largest ones of each position.

    Args:
        positions: which tokens' last hidden states the logits are read from.
        value: what the model gives, before a soft cap of the head, which is no sum.
        embedding: of what layer 0 reads.
        heads: for each layer (heads,) or (P, heads), of its self-attention.
        cross_heads: the same of cross-attention; () where there is none.
        attention_bias: (L,) or (P, L), of the biases of the output projections, cross-attention's too.
        ffn: (L,) or (P, L), of the feed-forward networks, with their biases.
        norm_bias: of the biases of all norms on the way.
        head_bias: of the head's own bias.
        edited: of what edits wrote into the residual stream, or in the place of a layer's attention; 0
            without such edits.
    """

    positions: tuple[int, ...]
    value: Tensor
    embedding: Tensor
    heads: tuple[Tensor, ...]
    cross_heads: tuple[Tensor, ...]
    attention_bias: Tensor
    ffn: Tensor
    norm_bias: Tensor
    head_bias: Tensor
    edited: Tensor

    @property
    def total(self) -> Tensor:
        """The sum of all parts."""
        # Parts with an axis of heads or layers are summed over it.
        many = (*self.heads, *self.cross_heads, self.attention_bias, self.ffn)
        alone = self.embedding + self.norm_bias + self.head_bias + self.edited
        return alone + sum(each.sum(dim=-1) for each in many)

    @property
    def error(self) -> Tensor:
        """total - value: rounding in the model's type."""
        return self.total - self.value

    def to_rows(self) -> list[dict[str, Any]]:
        """A row a part of each position: its name, its layer and head where it has them, and what it adds."""
        parts: list[tuple[str, int | None, int | None, Tensor]] = [
            (name, None, None, getattr(self, name))
            for name in ("embedding", "norm_bias", "head_bias", "edited")
        ]
        for name, layers in (("head", self.heads), ("cross_head", self.cross_heads)):
            parts += [
                (name, layer, head, each[..., head])
                for layer, each in enumerate(layers)
                for head in range(each.shape[-1])
            ]
        for name in ("attention_bias", "ffn"):
            each = getattr(self, name)
            parts += [(name, layer, None, each[..., layer]) for layer in range(each.shape[-1])]
        return [
            {"position": position, "part": name, "layer": layer, "head": head, "value": value}
            for name, layer, head, values in parts
            for position, value in zip(self.positions, values.reshape(-1).tolist(), strict=True)
        ]

    def __repr__(self) -> str:
        many = f"{len(self.positions)} positions, {len(self.heads)} layers"
        error = f"error {float(self.error.abs().max()):.1e}"
        if self.value.ndim:
            return f"DirectAttribution({many}; {error})"
        return (
            f"DirectAttribution({float(self.value):.6g} at position {self.positions[0]}: "
            f"embedding {float(self.embedding):.3g}, "
            f"heads {sum(float(each.sum()) for each in self.heads):.3g}, "
            f"feed-forward {float(self.ffn.sum()):.3g}, {len(self.heads)} layers; {error})"
        )

    def _parts(self) -> "Iterator[RenderableType]":
        rows = self.to_rows()
        for at, position in enumerate(self.positions):
            if at:
                yield ""
            value = float(self.value.reshape(-1)[at])
            yield f"What adds up to {value:.3f} at position {position}:\n"
            own = sorted(
                (row for row in rows if row["position"] == position), key=lambda row: -abs(row["value"])
            )
            cells = [(_named(row), f"{row['value']:+.3f}") for row in own[:_SHOWN]]
            if rest := own[_SHOWN:]:
                cells.append((f"{len(rest)} others", f"{sum(row['value'] for row in rest):+.3f}"))
            yield plain_table(["part", "adds"], cells)


def _named(row: dict[str, Any]) -> str:
    """A part as it is written in tables: head 5.11, ffn 4, embedding."""
    place = ".".join(str(row[axis]) for axis in ("layer", "head") if row[axis] is not None)
    return f"{row['part'].replace('_', ' ')} {place}".rstrip()


@dataclass(eq=False)
class _Step:
    """A sublayer: what it was given and gave, and what surrounds it. Or what an edit added, by itself."""

    name: str
    layer: int
    tap: str
    residual: Residual
    x: Tensor
    output: Tensor


_PLAIN = PreNorm(nn.Identity())
"""What surrounds a sublayer that adds to the residual stream, and no more."""


def direct_attribution(trace: Trace, target: Target, *, token: Selector | None = -1) -> DirectAttribution:
    """Split a logit into what the embedding, each head and each feed-forward layer add to it directly.

        logit_t = u . x_0 + sum_l (sum_h u_l . context_h W_O^h + u_l . b_O + u_l' . ffn_l) + biases

    u is row t of the head's matrix, drawn back through the last norm and, layer by layer, through every other
    norm on the residual stream. Each norm's scale is taken as it was in this run: with it frozen a norm is
    linear, so the sum is exact with norms before the sublayers (GPT-2), after them (BART), or both (Gemma).
    What a part adds through later layers counts for those. The model runs once more, for what its
    feed-forward networks give. In an edited model the parts are what they were after the edits.

    Through the lens the sublayers must add to the residual stream with nothing after them, as in GPT-2, Llama
    and most decoders; that is checked with the recorded numbers.

    Args:
        target: a token of the vocabulary, by id or as the vocabulary writes it; two of them as a tuple, for
            the difference of their logits; a list with a token for each position; or a direction (d_model,),
            for its dot product with the last hidden state, which needs no head.
        token: at whose position the logit is read: an index, or a word, of which the last piece is meant; or
            a slice, or None for all.

    Returns:
        See `DirectAttribution`; `error` is how far the sum is from the model's own number.

    Raises:
        InputError: the model is not at hand; its head is not linear (a masked-language head: give a
            direction), or there is none; its layers do more than add up; a token that is not there.

    Example:
        >>> import torch
        >>> import regard
        >>> trace = regard.load().trace("time flies like an arrow")
        >>> found = trace.direct_attribution(torch.eye(384)[7], token="flies")
        >>> abs(found.error) < 1e-5 * sum(float(heads.abs().sum()) for heads in found.heads)
        tensor(True)
        >>> trace.direct_attribution(torch.eye(384)[7], token=slice(1, 4)).heads[0].shape
        torch.Size([3, 12])

    Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", section "The residual
    stream as a communication channel"; the norms' scales are frozen there, too.
    """
    # The stack that the head reads, whose last hidden state makes the logits.
    network = trace.require_model().network
    kind = outermost(network)
    encoding = trace.stack(kind).encoding
    # One position, or several with an axis of their own.
    alone = token is not None and not isinstance(token, slice)
    chosen = chosen_of("token", encoding, token)
    rows = [chosen[-1]] if alone else list(chosen)
    # The direction of the target (positions, d_model); what the head adds; the model's own number.
    u, head_bias, value = _target(trace, network, target, hidden_of(trace, kind)[-1][rows])
    steps, last, after = sublayers_of(trace, network, kind, rows)
    edited = (u * after).sum(dim=1)
    # From the logit back to the embedding: each norm on the way turns the direction in which a part counts.
    u, norm_bias = _pull_back(network.final_norm(kind), last, u)
    heads: dict[str, list[Tensor]] = {"attention": [], "cross_attention": []}
    biases, ffn = torch.zeros(2, len(rows), network.depth(kind), dtype=torch.float64, device=u.device)
    # From the last sublayer to the first.
    for step in reversed(steps):
        # The directions at this sublayer's output, those at its input, and what the norm adds by its
        # bias.
        written, u, constant = _through(step, u)
        norm_bias = norm_bias + constant
        # What the whole sublayer wrote, along the direction.
        whole = (written * step.output).sum(dim=1)
        if step.name == "edit":
            edited = edited + whole
        elif step.name == "ffn":
            ffn[:, step.layer] = whole
        else:
            each: Kind = "cross" if step.name == "cross_attention" else kind
            projection = projection_of(trace, each, step.layer)
            context = trace.attention_of(step.layer, each).context[:, rows].double()
            # context: (heads, positions, v_dim); weight: (heads, v_dim, d_model); so each head's own
            # part.
            parts = torch.einsum("hpv,hvd,pd->ph", context, projection.weight, written)
            # In front, since layers come from the last to the first.
            heads[step.name].insert(0, parts.cpu())
            if projection.bias is not None:
                biases[:, step.layer] += written @ projection.bias
            # What stands there is more than its heads gave.
            if step.tap in network.written:
                edited = edited + whole - (written * projection.of_contexts(context)).sum(dim=1)

    def told(values: Tensor) -> Tensor:
        return (values[0] if alone else values).cpu()

    return DirectAttribution(
        positions=tuple(rows),
        value=told(value),
        embedding=told((u * hidden_of(trace, kind)[0][rows].double()).sum(dim=1)),
        heads=tuple(map(told, heads["attention"])),
        cross_heads=tuple(map(told, heads["cross_attention"])),
        attention_bias=told(biases),
        ffn=told(ffn),
        norm_bias=told(norm_bias),
        head_bias=told(head_bias),
        edited=told(edited),
    )


def sublayers_of(
    trace: Trace, network: Network, kind: StackKind, rows: list[int]
) -> tuple[list[_Step], Tensor, Tensor]:
    """All that writes to the residual stream, in order; what the last norm gets; what edits add after it."""
    hidden, prefix, depth = hidden_of(trace, kind), network.prefixes[kind], network.depth(kind)
    states = [state[rows].double() for state in hidden]
    seen = _seen(trace, network, prefix, rows)
    dtypes = (hidden[0].dtype, next(network.parameters()).dtype)
    # The coarser of trace and model bounds how exactly a sum can agree.
    bound = max(bound_of(dtype) for dtype in dtypes)

    def check(made: Tensor, wanted: Tensor, what: str) -> None:
        if not relative_error(made, wanted) <= bound:
            raise InputError(
                f"a sum of parts needs sublayers that add to the residual stream; {what} of {trace.model}"
                " does more. Where regard has the family, load the checkpoint's folder with regard.load."
            )

    steps: list[_Step] = []
    x = states[0]
    for index in range(depth):
        layer, at = network.layer(kind, index), f"{prefix}layers.{index}"
        for name in ("attention", "cross_attention", "ffn"):
            tap = f"{at}.{name}.output"
            if tap not in network.tap_names():
                if name == "cross_attention":
                    # Some layers of a decoder have no cross-attention.
                    continue
                raise InputError(
                    f"a sum of parts needs the tap {tap!r}, which {trace.model} does not show through "
                    "the lens: a mixture of experts, or another layer whose parts cannot be told apart."
                )
            if name == "ffn":
                output = seen[tap].double()
            else:
                each: Kind = "cross" if name == "cross_attention" else kind
                output = output_of(trace, each, index)[rows].double()
            # How the sublayer is joined to the stream: plain, before a norm, after it, or both.
            residual = _PLAIN if layer is None else widened(getattr(layer, f"{name}_residual"))
            steps.append(_Step(name, index, tap, residual, x, output))
            # With its recorded output in its place.
            x = residual(x, lambda given, output=output: output)
            # An edit between the sublayers adds to the stream.
            if name != "ffn" and (middle := seen.get(f"{at}.middle")) is not None:
                x = _jump(steps, index, x, middle.double())
        # The sum goes on from the recorded state, so that rounding does not pile up through the layers.
        last = index == depth - 1
        wanted = seen.get(f"{at}.output", x).double() if last else states[index + 1]
        # Nothing is written at the end of the layer: the sum must be the recorded state.
        if {f"{at}.output", f"{prefix}layers.{index + 1}.input"}.isdisjoint(network.written):
            check(x, wanted, f"layer {index}")
            x = wanted
        else:
            x = _jump(steps, index, x, wanted)
    norm = network.final_norm(kind)
    end = x if norm is None else widened(norm)(x).double()
    if f"{prefix}output" not in network.written:
        check(end, states[-1], "the end")
        end = states[-1]
    return steps, x, states[-1] - end


def _jump(steps: list[_Step], layer: int, x: Tensor, written: Tensor) -> Tensor:
    """Note what an edit added to the residual stream."""
    steps.append(_Step("edit", layer, "", _PLAIN, x, written - x))
    return written


def _seen(trace: Trace, network: Network, prefix: str, rows: list[int]) -> dict[str, Tensor]:
    """What the feed-forward networks give, and what edits write where a trace keeps nothing."""
    inside = f"{prefix}layers."
    # The last layer's end is not among the hidden states, which are taken after the last norm.
    end = f"{inside}{network.depth(outermost(network)) - 1}.output"
    seen: dict[str, Tensor] = {}

    def keep(name: str, value: Tensor) -> None:
        seen[name] = value[0, rows]

    wanted = [name for name in network.tap_names() if name.startswith(inside)]
    # Only what is not in the trace.
    listeners = {
        name: partial(keep, name)
        for name in wanted
        if name == end
        or name.endswith(".ffn.output")
        or (name in network.written and name.endswith(".middle"))
    }
    with torch.no_grad():
        rerun(trace, network, taps=Taps(listeners))
    return seen


def _through(step: _Step, u: Tensor) -> tuple[Tensor, Tensor, Tensor | float]:
    """The directions drawn back to a sublayer's output, and to its input, and its norm's constants."""
    residual = step.residual
    # norm(x + output): both directions go through the norm.
    if isinstance(residual, PostNorm):
        back, constant = _pull_back(residual.norm, step.x + step.output, u)
        return back, back, constant
    # x + after(output): only the output's does.
    if isinstance(residual, SandwichNorm):
        back, constant = _pull_back(residual.after, step.output, u)
        return back, u, constant
    # x + output: the direction is the same at both.
    return u, u, 0.0


def _target(trace: Trace, network: Network, target: Target, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For each position: the target as a direction, the head's bias, and the model's own number."""
    count, width = state.shape
    if isinstance(target, Tensor):
        if target.shape != (width,) or not target.is_floating_point():
            raise InputError(
                f"target must be floating point of shape (d_model,) = ({width},) where it is a direction; "
                f"got {target.dtype} of shape {tuple(target.shape)}."
            )
        # A direction is its own target, without a bias.
        u = target.detach().double().to(state.device).expand(count, width)
        return u, u.new_zeros(count), (u * state.double()).sum(dim=1)
    check_head(trace)
    head = network.unembedding()
    if head is None:
        raise InputError(
            f"the head of {trace.model} is not linear in the last hidden state, so no logit of it is a sum; "
            "give a direction (d_model,) as target."
        )
    if isinstance(target, tuple) and len(target) != 2:
        raise InputError(f"target must be one token, or two for a difference; got {len(target)}.")
    # A difference of two logits is the logit of the difference of their rows.
    several = target if isinstance(target, tuple) else (target,)
    plus, *minus = (vocabulary_ids("target", trace, each, count) for each in several)
    (u, bias), at = head.rows(plus), range(count)
    with torch.no_grad():
        logits = head.logits(state).double()
    value = logits[at, plus]
    if minus:
        down, below = head.rows(minus[0])
        u, bias, value = u - down, bias - below, value - logits[at, minus[0]]
    return u, bias, value


def _pull_back(norm: nn.Module | None, x: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """The directions and constants by which u . norm(x') = u' . x' + c where x' has x's statistics.

    x is what the norm was given, and u directions after it, both (.., d); a norm of None is the identity.
    """
    as_it_was = frozen(norm, x)
    if as_it_was is None:
        return u, u.new_zeros(u.shape[:-1])
    # Drawn back, times the scale at each position; and the bias's own part.
    return as_it_was.back(u) * as_it_was.scale, as_it_was.constant(u)
