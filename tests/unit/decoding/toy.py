"""Decoders so small that every text which they can write is counted."""

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.models import Transformer
from regard.models.families.bart import build as build_pair
from regard.models.families.bart import original_transformer
from regard.models.families.gpt2 import Gpt2Config, build

VOCAB = 5


def decoder(vocab_size: int = VOCAB, *, max_seq_len: int = 19) -> Transformer:
    torch.manual_seed(3)
    config = Gpt2Config(
        vocab_size=vocab_size, d_model=6, num_layers=2, num_heads=2, d_ff=11, max_seq_len=max_seq_len
    )
    return _sharpened(build(config))


def pair(vocab_size: int = VOCAB) -> Transformer:
    torch.manual_seed(4)
    config = original_transformer(
        vocab_size, d_model=6, num_layers=2, num_heads=2, d_ff=11, max_seq_len=19, dropout_p=0.5
    )
    return _sharpened(build_pair(config))


def _sharpened(network: Transformer) -> Transformer:
    """In double precision, and far from giving every token the same probability, or one of them the most."""
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            noise = torch.randn(parameter.shape)
            parameter.copy_(noise if parameter.ndim > 1 else 0.2 * noise + ("norm.weight" in name))
    # Of its own, so that a token does not call for itself, and no row of it is longer than others.
    rows = torch.nn.functional.normalize(torch.randn(network.config.vocab_size, network.config.d_model))
    network.head.output.weight = torch.nn.Parameter(3 * rows)  # type: ignore[union-attr]
    return network.double().eval()


@torch.no_grad()
def log_probabilities(network: Transformer, text: list[int], written: list[int], start: int) -> Tensor:
    """(len(written) + 1, vocab_size), of each next token, by one pass over the whole."""
    if network.encoder is None:
        logits = network(torch.tensor([text + written])).logits[0, len(text) - 1 :]
    else:
        logits = network(torch.tensor([text]), decoder_token_ids=torch.tensor([[start, *written]])).logits[0]
    return torch.log_softmax(logits, dim=1)


def every_text(
    network: Transformer, text: list[int], *, end: int, longest: int, start: int = 0, vocab_size: int = VOCAB
) -> Iterator[tuple[tuple[int, ...], float, int]]:
    """All that can be written: the tokens without the end, log p, and the length with the end."""

    def go_on(written: list[int], total: float) -> Iterator[tuple[tuple[int, ...], float, int]]:
        after = log_probabilities(network, text, written, start)[-1].tolist()
        for token in range(vocab_size):
            if token == end:
                yield tuple(written), total + after[token], len(written) + 1
            elif len(written) + 1 == longest:
                yield (*written, token), total + after[token], longest
            else:
                yield from go_on([*written, token], total + after[token])

    return go_on([], 0.0)
