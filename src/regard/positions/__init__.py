"""Where a token stands, in every form that attention takes it in.

* vectors that are added to a token's embedding: `LearnedPositions`, `SinusoidalPositions`;
* features that stand beside it: `FourierPositions`;
* a rotation of q and k: `Rotary`, whose `RotaryScaling` reaches beyond the lengths of training;
* something added to the scores: `RelativeBias` (learned), `Alibi` (not).
"""

from regard.positions._alibi import Alibi
from regard.positions._fourier import FourierPositions
from regard.positions._learned import LearnedPositions
from regard.positions._relative import BucketBias, RelativeBias, relative_buckets
from regard.positions._rope_scaling import (
    DynamicNTKScaling,
    LinearScaling,
    Llama3Scaling,
    NoScaling,
    RotaryScaling,
    YaRNScaling,
)
from regard.positions._rotary import Rotary, Rotation
from regard.positions._sinusoidal import SinusoidalLayout, SinusoidalPositions, sinusoidal_encoding

__all__ = [
    "Alibi",
    "DynamicNTKScaling",
    "LearnedPositions",
    "LinearScaling",
    "Llama3Scaling",
    "RelativeBias",
    "Rotary",
    "RotaryScaling",
    "SinusoidalPositions",
    "YaRNScaling",
    "sinusoidal_encoding",
]
