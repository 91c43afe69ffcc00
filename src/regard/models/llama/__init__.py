"""Llama (Touvron et al. 2023) and the decoders built like it: Mistral, Qwen 2 and Qwen 3."""

from regard.models.llama._config import LlamaConfig
from regard.models.llama._hf import LLAMA_KEYS
from regard.models.llama._network import build

__all__ = ["LLAMA_KEYS", "LlamaConfig", "build"]
