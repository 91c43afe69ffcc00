"""T5 (Raffel et al. 2020) and FLAN-T5."""

from regard.models.t5._build import build
from regard.models.t5._config import T5Config
from regard.models.t5._hf import T5_KEYS

__all__ = ["T5_KEYS", "T5Config", "build"]
