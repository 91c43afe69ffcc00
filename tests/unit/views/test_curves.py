"""The key over curves: it stays on the sheet however many names there are."""

import re

from regard.views import CurvePicture, Panel, Series


def test_a_long_key_has_rows() -> None:
    names = [f"attention-{number}" for number in range(11)]
    series = [Series(name=name, points=[(1, 1.0), (2, 3.0)]) for name in names]
    svg = CurvePicture(title="t", along="steps", panels=[Panel(title="loss", series=series)]).svg()
    at = [float(re.search(rf'<text x="([\d.]+)"[^>]*>{name}<', svg)[1]) for name in names]  # type: ignore[index]
    assert max(at) + 90 < 720
    assert at.count(min(at)) == 3
