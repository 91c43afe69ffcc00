"""Direct logit attribution: a logit as the sum of what each head and each feed-forward layer wrote to it."""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from regard.blocks import PostNorm, Residual, SandwichNorm, Stack
from regard.core.errors import InputError
from regard.models import Kind, LanguageModelHead, StackKind, Transformer
from regard.tracing.measures._layers import (
    is_row_wise,
    recorded_outputs,
    stack_at_hand,
    sublayers_of,
    widened,
)
from regard.tracing.measures._needed import context_of, hidden_of
from regard.tracing.measures._network import projection_of
from regard.tracing.measures._norms import pull_back
from regard.tracing.measures._readout import check_head, outermost, output_layer_of
from regard.tracing.record import Trace, token_of

Target = int | str | tuple[int | str, int | str] | Tensor
"""What is attributed: a token's logit, the difference of two tokens' logits, or the dot product of the last
hidden state with a direction (d_model,)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DirectAttribution:
    """The parts that sum to a logit, in float64.

    Args:
        position: which token's last hidden state the logit is read from.
        value: what the model gives, before a soft cap of the head, which is no sum.
        embedding: of what layer 0 reads.
        heads: for each layer (heads,), of its self-attention.
        cross_heads: the same of cross-attention; () where there is none.
        attention_bias: (L,), of the biases of the output projections, cross-attention's too.
        ffn: (L,), of the feed-forward networks, with their biases.
        norm_bias: of the biases of all norms on the way.
        head_bias: of the head's own bias.
    """

    position: int
    value: float
    embedding: float
    heads: tuple[Tensor, ...]
    cross_heads: tuple[Tensor, ...]
    attention_bias: Tensor
    ffn: Tensor
    norm_bias: float
    head_bias: float

    @property
    def total(self) -> float:
        """The sum of all parts."""
        tensors = (*self.heads, *self.cross_heads, self.attention_bias, self.ffn)
        return self.embedding + self.norm_bias + self.head_bias + sum(float(each.sum()) for each in tensors)

    @property
    def error(self) -> float:
        """total - value: rounding in the model's type."""
        return self.total - self.value

    def __repr__(self) -> str:
        return (
            f"DirectAttribution({self.value:.6g} at position {self.position}: "
            f"embedding {self.embedding:.3g}, heads {sum(float(each.sum()) for each in self.heads):.3g}, "
            f"feed-forward {float(self.ffn.sum()):.3g}, {len(self.heads)} layers; error {self.error:.1e})"
        )


@dataclass(eq=False)
class _Step:
    """A sublayer at one position: what it was given and gave, and what surrounds it."""

    name: str
    residual: Residual
    x: Tensor
    output: Tensor


def direct_attribution(trace: Trace, target: Target, *, token: int | str = -1) -> DirectAttribution:
    """Split a logit into what the embedding, each head and each feed-forward layer add to it directly.

        logit_t = u . x_0 + sum_l (sum_h u_l . context_h W_O^h + u_l . b_O + u_l' . ffn_l) + biases

    u is row t of the head's matrix, drawn back through the last norm and, layer by layer, through every other
    norm on the residual stream. Each norm's scale is taken as it was in this run: with it frozen a norm is
    linear, so the sum is exact with norms before the sublayers (GPT-2), after them (BART), or both (Gemma).
    What a part adds through later layers counts for those.

    Args:
        target: a token of the vocabulary, by id or as the vocabulary writes it; two of them, for the
            difference of their logits; or a direction (d_model,), for its dot product with the last hidden
            state, which needs no head.
        token: whose position the logit is read at: an index or a word, of which the last piece is meant.

    Returns:
        See `DirectAttribution`; `error` is how far the sum is from the model's own number.

    Raises:
        InputError: the model is seen through the lens, or not at hand; its head is not linear (a
            masked-language head: give a direction), or there is none; a token that is not there.

    Example:
        >>> import torch
        >>> import regard
        >>> trace = regard.load().trace("time flies like an arrow")
        >>> found = trace.direct_attribution(torch.eye(384)[7], token="flies")
        >>> abs(found.error) < 1e-5 * sum(float(heads.abs().sum()) for heads in found.heads)
        True

    Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", section "The residual
    stream as a communication channel"; the norms' scales are frozen there, too.
    """
    network = trace.require_model().network
    kind = outermost(network)
    stack = stack_at_hand(trace, kind, "direct attribution")
    assert isinstance(network, Transformer)
    for layer in stack.layers:
        if not is_row_wise(layer):
            raise InputError(
                f"direct attribution knows attention and feed-forward layers; {trace.model} has a "
                f"{type(layer).__name__}, which writes to the residual stream otherwise."
            )
    position = token_of("token", trace.passage(kind).encoding, token)[-1]
    layers, last = _steps(trace, kind, stack, position)
    direction, head_bias = _direction(trace, network, target)
    direction, norm_bias = pull_back(stack.norm, last, direction)
    heads: dict[str, list[Tensor]] = {"attention": [], "cross_attention": []}
    biases, ffn = torch.zeros(2, len(layers), dtype=torch.float64)
    for index in reversed(range(len(layers))):
        for step in reversed(layers[index]):
            written, direction, constant = _through(step, direction)
            norm_bias += constant
            if step.name == "ffn":
                ffn[index] = written @ step.output
                continue
            each: Kind = "cross" if step.name == "cross_attention" else kind
            projection = projection_of(trace, each, index)
            context = context_of(trace, each, index)[:, position].double()
            heads[step.name].insert(0, torch.einsum("hv,hvd,d->h", context, projection.weight, written).cpu())
            if projection.bias is not None:
                biases[index] += float(projection.bias @ written)
    hidden = hidden_of(trace, kind)
    return DirectAttribution(
        position=position,
        value=_value(trace, network, target, hidden[-1][position]),
        embedding=float(direction @ hidden[0][position].double()),
        heads=tuple(heads["attention"]),
        cross_heads=tuple(heads["cross_attention"]),
        attention_bias=biases,
        ffn=ffn,
        norm_bias=norm_bias,
        head_bias=head_bias,
    )


def _steps(trace: Trace, kind: StackKind, stack: Stack, row: int) -> tuple[list[list[_Step]], Tensor]:
    """Every sublayer at one position, in float64, and what the stack's norm is given."""
    hidden, found = hidden_of(trace, kind), []
    x = torch.empty(0)
    for index, layer in enumerate(stack.layers):
        x = hidden[index][row].double()
        known = recorded_outputs(trace, kind, layer, index)
        steps = []
        for name in sublayers_of(layer):
            residual: Residual = widened(getattr(layer, f"{name}_residual"))
            if name == "ffn":
                ffn = widened(cast(nn.Module, layer.ffn))
                seen: list[Tensor] = []

                def work(given: Tensor, ffn: nn.Module = ffn, seen: list[Tensor] = seen) -> Tensor:
                    seen.append(ffn(given))
                    return seen[0]

                after = residual(x, work)
                output = seen[0]
            else:
                output = known[name][0, row].double()
                after = residual(x, lambda given, output=output: output)
            steps.append(_Step(name, residual, x, output))
            x = after
        found.append(steps)
    return found, x


def _through(step: _Step, u: Tensor) -> tuple[Tensor, Tensor, float]:
    """The direction at what a sublayer wrote, the one at what it read, and the constant of its norm."""
    residual = step.residual
    if isinstance(residual, PostNorm):
        back, constant = pull_back(residual.norm, step.x + step.output, u)
        return back, back, constant
    if isinstance(residual, SandwichNorm):
        back, constant = pull_back(residual.after, step.output, u)
        return back, u, constant
    return u, u, 0.0


def _direction(trace: Trace, network: Transformer, target: Target) -> tuple[Tensor, float]:
    """The direction of the last hidden state that is the target, and the head's own constant."""
    width = network.config.d_model
    if isinstance(target, Tensor):
        if target.shape != (width,) or not target.is_floating_point():
            raise InputError(
                f"target must be floating point of shape (d_model,) = ({width},) where it is a direction; "
                f"got {target.dtype} of shape {tuple(target.shape)}."
            )
        return target.detach().double().to(next(network.parameters()).device), 0.0
    check_head(trace)
    output = output_layer_of(network)
    if not isinstance(network.head, LanguageModelHead) or output is None:
        raise InputError(
            f"the head of {trace.model} is not linear in the last hidden state, so no logit of it is a sum; "
            "give a direction (d_model,) as target."
        )
    plus, *minus = (_id(trace, each, len(output.weight)) for each in _tokens(target))
    weight, bias = network.head.scale * output.weight.detach().double(), _bias(network.head, output)
    if not minus:
        return weight[plus], float(bias[plus])
    return weight[plus] - weight[minus[0]], float(bias[plus] - bias[minus[0]])


def _bias(head: LanguageModelHead, output: nn.Linear) -> Tensor:
    total = torch.zeros(len(output.weight), dtype=torch.float64, device=output.weight.device)
    if output.bias is not None:
        total = total + output.bias.detach().double()
    return total if head.bias is None else total + head.bias[0].double()


def _tokens(target: object) -> tuple[object, ...]:
    tokens = target if isinstance(target, tuple) else (target,)
    if len(tokens) not in (1, 2):
        raise InputError(f"target must be one token, or two for a difference; got {len(tokens)}.")
    return tokens


def _id(trace: Trace, token: object, rows: int) -> int:
    if isinstance(token, str):
        return trace.require_model().require_tokenizer().id_of(token)
    if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < rows:
        raise InputError(f"target must be a token, an id from 0 to {rows - 1}; got {token!r}.")
    return token


def _value(trace: Trace, network: Transformer, target: Target, state: Tensor) -> float:
    """The model's own number, in its own type, before a soft cap."""
    if isinstance(target, Tensor):
        return float(state.double() @ target.double().to(state.device))
    head = network.head
    assert isinstance(head, LanguageModelHead)
    with torch.no_grad():
        state = state.to(head.output.weight.dtype)  # a trace may have kept it in another
        logits = head.output(state * head.scale if head.scale != 1.0 else state).double()
    if head.bias is not None:
        logits = logits + head.bias[0].double()
    ids = [_id(trace, each, len(logits)) for each in _tokens(target)]
    return float(logits[ids[0]] - (logits[ids[1]] if len(ids) == 2 else 0.0))
