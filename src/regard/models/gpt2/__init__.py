"""GPT-2 (Radford et al. 2019)."""

from regard.models.gpt2._build import build
from regard.models.gpt2._config import Gpt2Config
from regard.models.gpt2._hf import GPT2_KEYS

__all__ = ["GPT2_KEYS", "Gpt2Config", "build"]
