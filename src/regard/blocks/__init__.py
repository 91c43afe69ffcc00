"""The parts that transformers are built from, as modules that carry taps."""

from regard.blocks._embeddings import Embeddings
from regard.blocks._feed_forward import ACTIVATIONS, FeedForward
from regard.blocks._layers import DecoderLayer, EncoderLayer
from regard.blocks._multi_head import MultiHeadAttention
from regard.blocks._residual import PostNorm, PreNorm, Residual

__all__ = [
    "ACTIVATIONS",
    "DecoderLayer",
    "Embeddings",
    "EncoderLayer",
    "FeedForward",
    "MultiHeadAttention",
    "PostNorm",
    "PreNorm",
    "Residual",
]
