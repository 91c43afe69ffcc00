"""DeBERTa v2 and v3 (He et al. 2021): `model_type` "deberta-v2" is both."""

from regard.models.families.deberta._attention import DisentangledBias, DistanceTerm, RelativePositions
from regard.models.families.deberta._family import DEBERTA_KEYS, Convolution, DebertaConfig, build

__all__ = [
    "DEBERTA_KEYS",
    "Convolution",
    "DebertaConfig",
    "DisentangledBias",
    "DistanceTerm",
    "RelativePositions",
    "build",
]
