"""Gemma 2 and Gemma 3, text only (Gemma Team 2024, 2025)."""

from regard.models.gemma._build import build
from regard.models.gemma._config import GemmaConfig
from regard.models.gemma._hf import GEMMA_KEYS

__all__ = ["GEMMA_KEYS", "GemmaConfig", "build"]
