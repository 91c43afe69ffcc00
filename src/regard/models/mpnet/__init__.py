"""MPNet (Song et al. 2020), all-mpnet-base-v2 among its descendants."""

from regard.models.mpnet._config import MPNetConfig
from regard.models.mpnet._hf import MPNET_KEYS
from regard.models.mpnet._network import build

__all__ = ["MPNET_KEYS", "MPNetConfig", "build"]
