"""What a measure reads of a trace and its network: states, projections, logits, the loss; and the logit lens.

What is not there is refused by its name, with what to do.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, overload

import torch
from torch import Tensor, nn

from regard.core import Taps
from regard.core.displayable import Displayable, plain_table
from regard.core.errors import InputError
from regard.models import Kind, Network, Projection, StackKind, attention_name, stack_of
from regard.text import Tokenizer
from regard.tracing.record import Selector, Trace, chosen_of
from regard.tracing.run import rerun

if TYPE_CHECKING:
    from rich.console import RenderableType


M = TypeVar("M", bound=nn.Module)


def hidden_of(trace: Trace, kind: "StackKind") -> Sequence[Tensor]:
    """The residual stream of a stack: L + 1 tensors (tokens, d_model)."""
    hidden = trace.stack(kind).hidden
    if not hidden:
        raise InputError(
            f"this needs the hidden states of the {kind}, and the trace of {trace.model} has none: trace "
            'with keep="all", or, through the lens, where they cannot be seen, ask for weights or context.'
        )
    return hidden


def output_of(trace: Trace, kind: Kind, layer: int) -> Tensor:
    """What an attention layer gave: (queries, d_model)."""
    output = trace.attention_of(layer, kind).output
    if output is None:
        raise InputError(
            f"this needs the attention output of {kind} layer {layer}, which the trace of {trace.model} does "
            'not have; trace with keep="all".'
        )
    return output


def attention_tap(network: Network, kind: Kind, layer: int) -> str:
    """The name of a layer's attention, with which the names of its taps begin."""
    return f"{network.prefixes[stack_of(kind)]}layers.{layer}.{attention_name(kind)}"


def projection_of(trace: Trace, kind: Kind, layer: int) -> Projection:
    """The output projection of one attention layer."""
    projection = trace.require_model().network.projection(kind, layer)
    if projection is None:
        raise InputError(
            "this needs an output projection that is a plain linear layer on the joined heads; in "
            f"{kind} layer {layer} of {trace.model} none can be seen. Ask for weights or context."
        )
    return projection


def widened(module: M) -> M:
    """A copy in float64."""
    return deepcopy(module).double().requires_grad_(False)


def logits_of_layers(trace: Trace, layers: Sequence[int], rows: Sequence[int]) -> Iterator[Tensor]:
    """What the model's last norm and head make of the states after each of the layers: (rows, vocab_size)."""
    edited = trace.require_model().network
    network, kind = edited.plain, outermost(edited)
    hidden = hidden_of(trace, kind)
    check_head(trace)
    dtype = next(network.parameters()).dtype
    # 0 is the input of the first layer; the last is after the last norm already.
    for layer in layers:
        is_last = layer == len(hidden) - 1
        with torch.no_grad():
            # A trace may have kept the states in another type than the model's.
            logits = network.readout(hidden[layer][list(rows)][None].to(dtype), normed=is_last)
            if logits is not None and not (is_last and "logits" in edited.written):
                # The states are in the trace: no pass is needed.
                yield logits[0]
            elif is_last:
                yield _by_pass(trace, edited, kind, None, rows)
            # Only a pass makes the logits of models of the lens.
            else:
                yield _by_pass(trace, network, kind, hidden[layer], rows)


def outermost(network: Network) -> StackKind:
    """The stack that the head reads: the decoder where there is one."""
    return list(network.prefixes)[-1]


def check_head(trace: Trace) -> None:
    """Refuse a model without a head that gives every position a logit for each token.

    The table of learned embeddings is not used in its place: what it gives would not be the model's logits.
    """
    if not trace.require_model().network.has_vocabulary_head:
        raise InputError(
            f"{trace.model} has no head that gives every position a logit for each token: load a checkpoint "
            "with its language-model or masked-language-model head (through the lens, hand in that model)."
        )


def vocabulary_ids(name: str, trace: Trace, tokens: object, count: int) -> list[int]:
    """The ids of tokens of the vocabulary: one that stands for all positions, or a list with one for each."""
    loaded = trace.require_model()
    config = loaded.network.config
    size = config.vocab_size
    # A decoder may have a vocabulary of its own.
    if outermost(loaded.network) == "decoder":
        size = getattr(config, "decoder_vocab_size", size)
    if isinstance(tokens, list) and len(tokens) != count:
        raise InputError(f"{name} must have a token for each of the {count} positions; got {len(tokens)}.")
    ids = []
    for token in tokens if isinstance(tokens, list) else [tokens] * count:
        if isinstance(token, str):
            token = loaded.require_tokenizer().id_of(token)
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < size:
            raise InputError(f"{name} must be a token, an id from 0 to {size - 1}; got {token!r}.")
        ids.append(token)
    return ids


def _by_pass(
    trace: Trace, network: Network, kind: StackKind, hidden: Tensor | None, rows: Sequence[int]
) -> Tensor:
    """Run the model, whose last layer hands on these states in place of its own."""
    point = f"{network.prefixes[kind]}layers.{network.depth(kind) - 1}.output"
    if point not in network.tap_names():
        raise InputError(
            f"this needs the output of the last layer, which {trace.model} does not show through the lens."
        )

    # Nothing is put in place where the model's own states are meant.
    def put(value: Tensor) -> Tensor | None:
        return None if hidden is None else hidden[None].to(value.dtype)

    logits = rerun(trace, network, logits=True, taps=Taps({point: put})).logits
    assert logits is not None
    return logits[0, list(rows)]


def loss(trace: Trace) -> Tensor:
    """How much each token surprises the model that has read those before it.

        loss_i = -log softmax(logits_(i-1))[token_i],  in nats

    Of an encoder-decoder the tokens are the target's. The mean over the tokens that have a loss is what
    `transformers` gives for `labels`; its exponential is the perplexity.

    Returns:
        float32 on the CPU, (tokens,): NaN for the first token, which nothing predicts.

    Raises:
        InputError: no decoder, or no head over the vocabulary: the loss of a masked language model is of
            masked tokens, one pass for each; no hidden states, or the model is not at hand.

    Example:
        >>> import regard
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> config = GPT2Config(vocab_size=31, n_embd=6, n_layer=2, n_head=3, n_positions=17)
        >>> trace = regard.lens(GPT2LMHeadModel(config).eval()).trace(token_ids=[3, 1, 4, 1])
        >>> trace.loss().isnan()
        tensor([ True, False, False, False])

    Source: Bengio et al. 2003, "A Neural Probabilistic Language Model", section 2.
    """
    network = trace.require_model().network
    kind = outermost(network)
    check_head(trace)
    if kind != "decoder":
        raise InputError(
            f"loss is of a decoder, which predicts each next token; {trace.model} is an encoder, whose loss "
            "is of masked tokens: trace the text with its mask token, and take "
            "trace.logit_lens(position, of=token)."
        )
    ids = trace.stack(kind).encoding.token_ids
    # NaN for the first token, which nothing precedes.
    losses = torch.full((len(ids),), torch.nan)
    if len(ids) > 1:
        last = len(hidden_of(trace, kind)) - 1
        [logits] = logits_of_layers(trace, [last], range(len(ids) - 1))
        # A softmax in half precision would lose small probabilities.
        wide = logits.float() if logits.dtype.itemsize < 4 else logits
        targets = torch.tensor(ids[1:], device=wide.device)
        losses[1:] = torch.nn.functional.cross_entropy(wide, targets, reduction="none").float().cpu()
    return losses


_COLUMNS = 6
"""Positions that are drawn."""

_MOST = 1000
"""Best tokens that are kept of each position; a token further down is asked for by `of`."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LogitLens(Displayable):
    """The best tokens at each layer and position.

    Args:
        layers: of the hidden states, as `Trace.embedding` counts them: "input", which layer 0 reads, then 1
            to L, which is what the model says.
        positions: which tokens of the text, P of them.
        tokens, token_pieces: what they are, as people read them and as the vocabulary writes them.
        ids: int64 (L + 1, P, k), the best tokens, best first.
        logits: float32 (L + 1, P, k), their logits.
        log_probabilities: float32 (L + 1, P, k), their logarithms after the softmax over the vocabulary.
        tokenizer: names the ids; None where there is none.
    """

    layers: tuple[int | str, ...]
    positions: tuple[int, ...]
    tokens: tuple[str, ...]
    token_pieces: tuple[str, ...]
    ids: Tensor
    logits: Tensor
    log_probabilities: Tensor
    tokenizer: Tokenizer | None = field(default=None, repr=False)

    @cached_property
    def pieces(self) -> tuple[tuple[tuple[str, ...], ...], ...]:
        """The ids as the vocabulary writes them; ids as text where there is no tokenizer."""
        return self._named(lambda tokenizer, id: tokenizer.piece_of(id) or str(id))

    @cached_property
    def shown(self) -> tuple[tuple[tuple[str, ...], ...], ...]:
        """The ids as people read them."""
        return self._named(lambda tokenizer, id: tokenizer.shown(id))

    def _named(self, name: Callable[[Tokenizer, int], str]) -> tuple[tuple[tuple[str, ...], ...], ...]:
        def written(number: int) -> str:
            return str(number) if self.tokenizer is None else name(self.tokenizer, number)

        return tuple(tuple(tuple(map(written, place)) for place in layer) for layer in self.ids.tolist())

    def __repr__(self) -> str:
        layers, positions, k = self.ids.shape
        return f"LogitLens({layers} layers x {positions} positions, the best {k})"

    def to_rows(self) -> list[dict[str, Any]]:
        """A row for each layer, position and rank."""
        return [
            {
                "layer": str(layer),
                "position": position,
                "token": self.tokens[at],
                "token_piece": self.token_pieces[at],
                "rank": rank + 1,
                "id": int(self.ids[row, at, rank]),
                "shown": self.shown[row][at][rank],
                "piece": piece,
                "logit": float(self.logits[row, at, rank]),
                "log_probability": float(self.log_probabilities[row, at, rank]),
            }
            for row, layer in enumerate(self.layers)
            for at, position in enumerate(self.positions)
            for rank, piece in enumerate(self.pieces[row][at])
        ]

    def _parts(self) -> "Iterator[RenderableType]":
        best = [[place[0] for place in layer] for layer in self.shown]
        yield from _by_layer(self.layers, self.tokens, best)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TokenLens(Displayable):
    """How a chosen token fares at each layer and position.

    Args:
        layers, positions, tokens, token_pieces: as in `LogitLens`.
        of: the id of the chosen token at each position, (P,).
        logits: float32 (L + 1, P), its logits.
        log_probabilities: float32 (L + 1, P), after the softmax over the vocabulary.
        ranks: int64 (L + 1, P), 1 for the best token: one more than the tokens with a larger logit.
    """

    layers: tuple[int | str, ...]
    positions: tuple[int, ...]
    tokens: tuple[str, ...]
    token_pieces: tuple[str, ...]
    of: tuple[int, ...]
    logits: Tensor
    log_probabilities: Tensor
    ranks: Tensor

    @property
    def probabilities(self) -> Tensor:
        """float32 (L + 1, P)."""
        return self.log_probabilities.exp()

    def __repr__(self) -> str:
        first, last = (int(row.min()) for row in (self.ranks[0], self.ranks[-1]))
        layers, positions = self.ranks.shape
        return f"TokenLens({layers} layers x {positions} positions, best rank {first} -> {last})"

    def to_rows(self) -> list[dict[str, Any]]:
        """A row for each layer and position."""
        return [
            {
                "layer": str(layer),
                "position": position,
                "token": self.tokens[at],
                "token_piece": self.token_pieces[at],
                "of": self.of[at],
                "rank": int(self.ranks[row, at]),
                "logit": float(self.logits[row, at]),
                "log_probability": float(self.log_probabilities[row, at]),
            }
            for row, layer in enumerate(self.layers)
            for at, position in enumerate(self.positions)
        ]

    def _parts(self) -> "Iterator[RenderableType]":
        if len(self.positions) > 1:
            yield from _by_layer(
                self.layers, self.tokens, [list(map(str, row)) for row in self.ranks.tolist()]
            )
            return
        cells = zip(self.layers, self.logits[:, 0], self.probabilities[:, 0], self.ranks[:, 0], strict=True)
        rows = [[str(layer), f"{a:.3f}", f"{b:.4f}", str(int(rank))] for layer, a, b, rank in cells]
        yield plain_table(["layer", "logit", "probability", "rank"], rows)


def _by_layer(
    layers: tuple[int | str, ...], tokens: tuple[str, ...], cells: list[list[str]]
) -> "Iterator[RenderableType]":
    rows = ([str(layer), *row[:_COLUMNS]] for layer, row in zip(layers, cells, strict=True))
    yield plain_table(["layer", *tokens[:_COLUMNS]], rows)
    if len(tokens) > _COLUMNS:
        yield f"The first {_COLUMNS} of {len(tokens)} positions."


@overload
def logit_lens(trace: Trace, token: Selector | None = None, *, of: None = None, k: int = 5) -> LogitLens: ...
@overload
def logit_lens(
    trace: Trace, token: Selector | None = None, *, of: int | str | list[int | str] | list[int]
) -> TokenLens: ...
def logit_lens(
    trace: Trace,
    token: Selector | None = None,
    *,
    of: int | str | list[int | str] | list[int] | None = None,
    k: int = 5,
) -> LogitLens | TokenLens:
    """Apply the last norm and the head to the hidden state after every layer.

        logits_l = head(norm(x_l)),  l = 0 .. L;  logits_L are the model's own

    On regard's own models norm and head run alone; through the lens the whole model runs once a layer, with
    x_l in the place of what its last layer hands on. x_0 is embedding layer "input", which layer 0 reads.

    Args:
        token: which positions, of the decoder where there is one: an index, a slice or a word; None: all.
        of: a token of the vocabulary, by id or as the vocabulary writes it, whose logit, rank and probability
            are wanted; or a list with a token for each position. None gives the best tokens.
        k: how many of the best tokens, at most 1,000.

    Returns:
        See `LogitLens`; with `of`, `TokenLens`.

    Raises:
        InputError: no head over the vocabulary, no hidden states, a token that is not there, or a k that is
            not from 1 to the size of the vocabulary, or to 1,000.

    Example:
        >>> import torch
        >>> import regard
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> config = GPT2Config(vocab_size=31, n_embd=6, n_layer=2, n_head=3, n_positions=17)
        >>> trace = regard.lens(GPT2LMHeadModel(config).eval()).trace(token_ids=[3, 1, 4])
        >>> trace.logit_lens(-1, k=2)
        LogitLens(3 layers x 1 positions, the best 2)
        >>> fares = trace.logit_lens(slice(0, 2), of=[1, 4])  # the next tokens
        >>> fares.layers, fares.ranks.shape
        (('input', 1, 2), torch.Size([3, 2]))

    Source: nostalgebraist 2020, "interpreting GPT: the logit lens", LessWrong.
    """
    loaded = trace.require_model()
    kind = outermost(loaded.network)
    check_head(trace)
    traced = trace.stack(kind)
    rows = chosen_of("token", traced.encoding, token)
    depth = len(hidden_of(trace, kind))
    which = None if of is None else vocabulary_ids("of", trace, of, len(rows))
    first: list[Tensor] = []
    logits, logs = [], []
    for layer in logits_of_layers(trace, range(depth), rows):
        # A sum over the vocabulary in half precision would lose its small terms.
        wide = layer.float() if layer.dtype.itemsize < 4 else layer
        if which is None:
            most = min(_MOST, wide.shape[1])
            if not isinstance(k, int) or isinstance(k, bool) or not 1 <= k <= most:
                raise InputError(
                    f"k must be from 1 to {most}; got {k!r}. A chosen token is asked for by of=."
                )
            # The best tokens at each position: (positions, k).
            values, ids = wide.topk(k, dim=1)
            first.append(ids.cpu())
        else:
            values = wide[range(len(rows)), which][:, None]
            # Rank: 1 + how many have a larger logit.
            first.append((1 + (wide > values).sum(dim=1)).cpu())
            values = values[:, 0]
        logits.append(values.float().cpu())
        # log softmax = logit - logsumexp
        whole = wide.logsumexp(dim=1)
        logs.append((values - (whole[:, None] if which is None else whole)).float().cpu())
    common: dict[str, Any] = {
        "layers": ("input", *range(1, depth)),
        "positions": rows,
        "tokens": tuple(traced.shown[row] for row in rows),
        "token_pieces": tuple(traced.tokens[row] for row in rows),
        "logits": torch.stack(logits),
        "log_probabilities": torch.stack(logs),
    }
    if which is None:
        return LogitLens(ids=torch.stack(first), tokenizer=loaded.tokenizer, **common)
    return TokenLens(of=tuple(which), ranks=torch.stack(first), **common)
