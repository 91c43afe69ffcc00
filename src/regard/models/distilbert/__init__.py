"""DistilBERT (Sanh et al. 2019)."""

from regard.models.distilbert._build import build
from regard.models.distilbert._config import DistilBertConfig
from regard.models.distilbert._hf import DISTILBERT_KEYS

__all__ = ["DISTILBERT_KEYS", "DistilBertConfig", "build"]
