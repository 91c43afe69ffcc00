"""The loss of a language model at each token of a text."""

import torch
from torch import Tensor

from regard.core.errors import InputError
from regard.tracing.measures._needed import hidden_of
from regard.tracing.measures._readout import check_head, logits_of_layers, outermost
from regard.tracing.record import Trace


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
