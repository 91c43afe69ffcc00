"""What a measure reads of a trace and its network: states, projections, logits, and the loss of these.

What is not there is refused by its name, with what to do.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import TypeVar

import torch
from torch import Tensor, nn

from regard.core import Taps
from regard.core.errors import InputError
from regard.models import Kind, Network, Projection, StackKind, attention_name, stack_of
from regard.tracing.record import Trace
from regard.tracing.run import rerun

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
    found = trace.require_model().network.projection(kind, layer)
    if found is None:
        raise InputError(
            "this needs an output projection that is a plain linear layer on the joined heads; in "
            f"{kind} layer {layer} of {trace.model} none can be seen. Ask for weights or context."
        )
    return found


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
    for layer in layers:
        is_last = layer == len(hidden) - 1
        with torch.no_grad():
            # A trace may have kept the states in another type than the model's.
            logits = network.readout(hidden[layer][list(rows)][None].to(dtype), normed=is_last)
            if logits is not None and not (is_last and "logits" in edited.written):
                yield logits[0]
            elif is_last:  # what the model says, with its edits
                yield _by_pass(trace, edited, kind, None, rows)
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
    if outermost(loaded.network) == "decoder":
        size = getattr(config, "decoder_vocab_size", size)
    if isinstance(tokens, list) and len(tokens) != count:
        raise InputError(f"{name} must have a token for each of the {count} positions; got {len(tokens)}.")
    found = []
    for token in tokens if isinstance(tokens, list) else [tokens] * count:
        if isinstance(token, str):
            token = loaded.require_tokenizer().id_of(token)
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < size:
            raise InputError(f"{name} must be a token, an id from 0 to {size - 1}; got {token!r}.")
        found.append(token)
    return found


def _by_pass(
    trace: Trace, network: Network, kind: StackKind, hidden: Tensor | None, rows: Sequence[int]
) -> Tensor:
    """Run the model, whose last layer hands on these states in place of its own."""
    point = f"{network.prefixes[kind]}layers.{network.depth(kind) - 1}.output"
    if point not in network.tap_names():
        raise InputError(
            f"this needs the output of the last layer, which {trace.model} does not show through the lens."
        )

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
    found = torch.full((len(ids),), torch.nan)
    if len(ids) > 1:
        last = len(hidden_of(trace, kind)) - 1
        [logits] = logits_of_layers(trace, [last], range(len(ids) - 1))
        wide = logits.float() if logits.dtype.itemsize < 4 else logits
        targets = torch.tensor(ids[1:], device=wide.device)
        found[1:] = torch.nn.functional.cross_entropy(wide, targets, reduction="none").float().cpu()
    return found
