"""A record that cannot be drawn is refused where it is made, with the argument's name and a way out."""

from typing import Any

import numpy as np
import pytest

from regard.core.errors import InputError
from regard.views import AttentionRecord, LayerRecord, PageToken, Side


def _random(*shape: int) -> Any:
    return np.random.default_rng(1).standard_normal(shape, dtype=np.float32)


def _layer(**fields: Any) -> LayerRecord:
    usual: dict[str, Any] = {"layer": 0, "q": _random(3, 7, 5), "k": _random(3, 11, 5), "scale": 0.5}
    return LayerRecord(**(usual | fields))


@pytest.mark.parametrize("name", ["q", "k", "bias", "sinks"])
def test_refuses_what_is_not_finite(name: str) -> None:
    array = _random(3, 7, 11)
    array[1, 2, 3] = np.nan
    said = rf"{name} must be finite numbers; got nan at \(1, 2, 3\); the model overflowed: run it in float32"
    with pytest.raises(InputError, match=said):
        _layer(**{name: array})


def _side(count: int) -> Side:
    return Side(text="t", tokens=tuple(PageToken(text=str(i)) for i in range(count)))


def test_each_kind_has_its_own_sides_and_sizes() -> None:
    record = AttentionRecord(
        model="m",
        encoder=_side(11),
        decoder=_side(7),
        layers={
            "cross": (_layer(layer=1), _layer(layer=4, q=_random(1, 7, 2), k=_random(1, 11, 2))),
            "decoder": (_layer(k=_random(3, 7, 5)),),
            "encoder": (_layer(q=_random(3, 11, 5)),) * 1,
        },
    )
    assert record.kinds == ("encoder", "decoder", "cross")
    sizes = {kind: tuple(len(side.tokens) for side in record.sides(kind)) for kind in record.kinds}
    assert sizes == {"encoder": (11, 11), "decoder": (7, 7), "cross": (7, 11)}
