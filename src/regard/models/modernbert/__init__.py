"""ModernBERT (Warner et al. 2024)."""

from regard.models.modernbert._build import build
from regard.models.modernbert._config import ModernBertConfig
from regard.models.modernbert._hf import MODERNBERT_KEYS

__all__ = ["MODERNBERT_KEYS", "ModernBertConfig", "build"]
