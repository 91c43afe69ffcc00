"""RoBERTa (Liu et al. 2019) and XLM-R (Conneau et al. 2020), which differ in their vocabulary only."""

from regard.models.roberta._build import build
from regard.models.roberta._config import RobertaConfig
from regard.models.roberta._hf import ROBERTA_KEYS

__all__ = ["ROBERTA_KEYS", "RobertaConfig", "build"]
