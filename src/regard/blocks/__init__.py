"""The parts that transformers are built from, as modules that carry taps."""

from regard.blocks._embeddings import Embeddings, Identity, Linear, is_native
from regard.blocks._expire_span import ExpireSpanAttention
from regard.blocks._feed_forward import (
    ACTIVATIONS,
    FeedForward,
    GatedFeedForward,
    activation_named,
)
from regard.blocks._layers import (
    Attention,
    DecoderLayer,
    LayerState,
    PostNorm,
    PreNorm,
    Residual,
    RMSNorm,
    SandwichNorm,
    SelfAttentionLayer,
)
from regard.blocks._multi_head import MultiHeadAttention
from regard.blocks._packed import PackedEmbedding, PackedLinear, Packing, learned, unpacked
from regard.blocks._perceiver import ConcatenatedEmbeddings, CrossAttentionLayer, LatentStack
from regard.blocks._recurrent import AlignedDecoderLayer, GatedUnit, RecurrentLayer
from regard.blocks._sru import SruAttention, SruLayer
from regard.blocks._stack import CountFrom, CountTokens, Numbering, Pattern, Stack

# The parts of a layer, the layers made of them, and the stack of layers.
__all__ = [
    "AlignedDecoderLayer",
    "CrossAttentionLayer",
    "DecoderLayer",
    "Embeddings",
    "ExpireSpanAttention",
    "FeedForward",
    "GatedFeedForward",
    "Identity",
    "MultiHeadAttention",
    "PostNorm",
    "PreNorm",
    "RMSNorm",
    "SandwichNorm",
    "SelfAttentionLayer",
    "SruLayer",
    "Stack",
]
