"""Where a token stands, in every form that attention takes it in.

* vectors that are added to a token's embedding: `LearnedPositions`, `SinusoidalPositions`;
* features that stand beside it: `FourierPositions`;
* a rotation of q and k: `Rotary`, whose `RotaryScaling` reaches beyond the lengths of training;
* something added to the scores: `RelativeBias` (learned), `Alibi` (not).
"""

from regard.positions._biases import Alibi, BucketBias, RelativeBias, relative_buckets
from regard.positions._rope_scaling import (
    DynamicNTKScaling,
    LinearScaling,
    Llama3Scaling,
    LongRoPEScaling,
    NoScaling,
    RotaryScaling,
    YaRNScaling,
    yarn_amplitude,
)
from regard.positions._rotary import Rotary, Rotation
from regard.positions._vectors import (
    FourierPositions,
    LearnedPositions,
    SinusoidalLayout,
    SinusoidalPositions,
    sinusoidal_encoding,
)

__all__ = [
    "Alibi",
    "DynamicNTKScaling",
    "LearnedPositions",
    "LinearScaling",
    "Llama3Scaling",
    "LongRoPEScaling",
    "RelativeBias",
    "Rotary",
    "RotaryScaling",
    "SinusoidalPositions",
    "YaRNScaling",
    "sinusoidal_encoding",
]
