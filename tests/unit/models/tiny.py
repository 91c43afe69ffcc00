"""Tiny networks put together from blocks, of no family: an encoder, a decoder, and both."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.blocks import (
    DecoderLayer,
    Embeddings,
    FeedForward,
    GatedFeedForward,
    MultiHeadAttention,
    Pattern,
    PostNorm,
    PreNorm,
    RMSNorm,
    SelfAttentionLayer,
    Stack,
)
from regard.checkpoints import Source
from regard.core import Causal
from regard.models import Loaded, Network, Transformer
from regard.models._config import Rate, Rows, Size
from regard.positions import LearnedPositions, RelativeBias, Rotary
from regard.text import Tokenizer

VOCAB, TARGET_VOCAB, D_MODEL, MAX_SEQ_LEN = 31, 29, 30, 11
HEADS, DECODER_HEADS = 3, 5
ENCODER_DEPTH, DECODER_DEPTH = 2, 3
START = 4

IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2], [2, 6, 5, 3, 5, 30, 0]])
REAL = torch.arange(7) < torch.tensor([[7], [4]])
TARGET = torch.tensor([[4, 7, 1, 28, 2], [4, 0, 5, 5, 1]])


def loaded(network: Network, *, tokenizer: Tokenizer | None = None, family: str = "none") -> Loaded:
    """A network, of whatever family, as one that came from a folder called "tiny"."""
    source = Source(name="tiny", folder=Path("tiny"), kind="folder")
    return Loaded(network=network, tokenizer=tokenizer, source=source, family=family, left_out=())


@dataclass(frozen=True, kw_only=True)
class TinyConfig:
    """What `regard.models.NetworkConfig` wants, and a probability."""

    vocab_size: Size = VOCAB
    d_model: Size = D_MODEL
    num_layers: Size = ENCODER_DEPTH
    num_heads: Size = HEADS
    max_seq_len: Size | None = MAX_SEQ_LEN
    num_token_types: Rows = 2
    attention_dropout_p: Rate = 0.0


def shaken(network: Transformer) -> Transformer:
    """In evaluation mode and float64, every parameter drawn anew, norms too."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.3)
    return network.double().eval()


def encoder_stack(**kwargs: Any) -> Stack:
    """As BERT's: post-norm, learned positions, token types."""
    embeddings = Embeddings(
        VOCAB,
        D_MODEL,
        positions=LearnedPositions(MAX_SEQ_LEN, D_MODEL),
        num_token_types=2,
        norm=nn.LayerNorm(D_MODEL),
    )
    layers = [
        SelfAttentionLayer(
            MultiHeadAttention(D_MODEL, HEADS),
            FeedForward(D_MODEL, 17),
            attention_residual=PostNorm(nn.LayerNorm(D_MODEL)),
            ffn_residual=PostNorm(nn.LayerNorm(D_MODEL)),
        )
        for _ in range(ENCODER_DEPTH)
    ]
    return Stack(embeddings, layers, **kwargs)


def encoder(**kwargs: Any) -> Transformer:
    """An encoder alone."""
    return shaken(Transformer(TinyConfig(), encoder=encoder_stack(), **kwargs))


def decoder(**kwargs: Any) -> Transformer:
    """A decoder alone, as Llama: pre-norm, rotary, grouped heads, a last norm, no limit of length."""
    pattern = Pattern(mask=Causal(), rotary=Rotary(6, base=100.0))
    layers = [
        SelfAttentionLayer(
            MultiHeadAttention(D_MODEL, DECODER_HEADS, num_kv_heads=1, use_bias=False),
            GatedFeedForward(D_MODEL, 17, activation="silu"),
            attention_residual=PreNorm(RMSNorm(D_MODEL)),
            ffn_residual=PreNorm(RMSNorm(D_MODEL)),
        )
        for _ in range(DECODER_DEPTH)
    ]
    stack = Stack(
        Embeddings(VOCAB, D_MODEL), layers, patterns=[pattern] * DECODER_DEPTH, norm=RMSNorm(D_MODEL)
    )
    config = TinyConfig(
        num_layers=DECODER_DEPTH, num_heads=DECODER_HEADS, max_seq_len=None, num_token_types=0
    )
    return shaken(Transformer(config, decoder=stack, **kwargs))


def both(*, start_id: int | None = START, **kwargs: Any) -> Transformer:
    """An encoder and a decoder of other depth, heads and vocabulary, as T5: relative biases, unscaled."""

    def attention(heads: int) -> MultiHeadAttention:
        return MultiHeadAttention(D_MODEL, heads, use_bias=False, scale=1.0)

    def surrounded() -> PreNorm:
        return PreNorm(RMSNorm(D_MODEL))

    encoders = [
        SelfAttentionLayer(
            attention(HEADS),
            FeedForward(D_MODEL, 17),
            attention_residual=surrounded(),
            ffn_residual=surrounded(),
        )
        for _ in range(ENCODER_DEPTH)
    ]
    decoders = [
        DecoderLayer(
            attention(DECODER_HEADS),
            attention(DECODER_HEADS),
            FeedForward(D_MODEL, 17),
            attention_residual=surrounded(),
            cross_attention_residual=surrounded(),
            ffn_residual=surrounded(),
        )
        for _ in range(DECODER_DEPTH)
    ]
    network = Transformer(
        TinyConfig(max_seq_len=None, num_token_types=0),
        encoder=Stack(
            Embeddings(VOCAB, D_MODEL),
            encoders,
            norm=RMSNorm(D_MODEL),
            bias=RelativeBias(HEADS, 8, 5, bidirectional=True),
        ),
        decoder=Stack(
            Embeddings(TARGET_VOCAB, D_MODEL, positions=LearnedPositions(MAX_SEQ_LEN, D_MODEL)),
            decoders,
            norm=RMSNorm(D_MODEL),
            patterns=[Pattern(mask=Causal())] * DECODER_DEPTH,
            bias=RelativeBias(DECODER_HEADS, 8, 5, bidirectional=False),
        ),
        start_id=start_id,
        **kwargs,
    )
    return shaken(network)


def run(network: Transformer, **kwargs: Any) -> Tensor:
    """The last hidden state of `IDS`, and of `TARGET` where there are two stacks."""
    if len(network.prefixes) == 2:
        kwargs = {"decoder_token_ids": TARGET} | kwargs
    output: Tensor = network(IDS, **kwargs).last_hidden_state
    return output
