"""ELECTRA (Clark et al. 2020): its generator, and its discriminator, which is what one builds on."""

from regard.models.electra._config import ElectraConfig
from regard.models.electra._hf import ELECTRA_KEYS
from regard.models.electra._network import build

__all__ = ["ELECTRA_KEYS", "ElectraConfig", "build"]
