"""BART (Lewis et al. 2020), and the encoder-decoders built like it: mBART and Marian."""

from regard.models.bart._build import build
from regard.models.bart._config import BartConfig
from regard.models.bart._hf import BART_KEYS

__all__ = ["BART_KEYS", "BartConfig", "build"]
