"""ELECTRA (Clark et al. 2020): its generator, and its discriminator, which is what one builds on."""

from regard.models.electra._build import build
from regard.models.electra._config import ElectraConfig
from regard.models.electra._hf import ELECTRA_KEYS

__all__ = ["ELECTRA_KEYS", "ElectraConfig", "build"]
