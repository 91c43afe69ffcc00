"""DistilBERT (Sanh et al. 2019)."""

from regard.models.distilbert._config import DistilBertConfig
from regard.models.distilbert._hf import DISTILBERT_KEYS
from regard.models.distilbert._network import build

__all__ = ["DISTILBERT_KEYS", "DistilBertConfig", "build"]
