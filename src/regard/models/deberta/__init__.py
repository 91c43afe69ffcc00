"""DeBERTa v2 and v3 (He et al. 2021): `model_type` "deberta-v2" is both."""

from regard.models.deberta._attention import DisentangledBias, DistanceTerm, RelativePositions
from regard.models.deberta._build import build
from regard.models.deberta._config import DebertaConfig
from regard.models.deberta._hf import DEBERTA_KEYS

__all__ = [
    "DEBERTA_KEYS",
    "DebertaConfig",
    "DisentangledBias",
    "DistanceTerm",
    "RelativePositions",
    "build",
]
