"""Llama (Touvron et al. 2023) and the decoders built like it: Mistral, Qwen 2 and Qwen 3."""

from regard.models.llama._build import build
from regard.models.llama._config import LlamaConfig
from regard.models.llama._hf import LLAMA_KEYS

__all__ = ["LLAMA_KEYS", "LlamaConfig", "build"]
