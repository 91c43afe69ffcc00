"""MPNet (Song et al. 2020), all-mpnet-base-v2 among its descendants."""

from regard.models.mpnet._build import build
from regard.models.mpnet._config import MPNetConfig
from regard.models.mpnet._hf import MPNET_KEYS

__all__ = ["MPNET_KEYS", "MPNetConfig", "build"]
