"""How runs went, from what they told: loss, scores, learning rate."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.core.errors import InputError
from regard.training._journal import read_journal
from regard.views import CurvePicture, Panel, Series

MOST = 200
"""Points of a curve: of more steps, each is the mean of several."""

_LEFT_OUT = ("perplexity",)  # which says what the loss says
_SCORE = "valid_"


def curves(folders: Sequence[str | Path]) -> CurvePicture:
    """The curves of runs, beside each other.

    The loss while learning is the mean over some steps, at most 200 points a run; the loss on the texts to
    score on lies over it, with marks. Then come the other scores, and the learning rate.

    Args:
        folders: of runs, finished or not.

    Raises:
        InputError: one holds no run, or a run that has not done a step.

    Example:
        >>> import tempfile
        >>> place = Path(tempfile.mkdtemp(), "run")
        >>> place.mkdir()
        >>> _ = (place / "metrics.jsonl").write_text('{"step": 1, "loss": 2.5, "lr": 0.1}\\n')
        >>> [panel.title for panel in curves([place]).panels]
        ['loss: thin while learning', 'learning rate']
    """
    if not folders:
        raise InputError("RUN... must name at least one folder of a run.")
    told = {name: list(read_journal(Path(each))) for name, each in _named(folders).items()}
    for name, reports in told.items():
        if not any("loss" in each for each in reports):
            raise InputError(f"{name} has not done a step yet: there is nothing to draw.")
    loss = [_series(name, reports, "loss") for name, reports in told.items()]
    scored = [_series(name, reports, f"{_SCORE}loss") for name, reports in told.items()]
    scored = [each for each in scored if each.points]
    title = "loss: thin while learning" + (", with marks on the texts to score on" if scored else "")
    panels = [Panel(title=title, series=loss + scored)]
    for key in _scores(told):
        series = [_series(name, reports, key) for name, reports in told.items()]
        title = key.removeprefix(_SCORE).replace("_", " ")
        panels.append(Panel(title=title, series=[each for each in series if each.points]))
    panels.append(
        Panel(title="learning rate", series=[_series(name, reports, "lr") for name, reports in told.items()])
    )
    return CurvePicture(title=" and ".join(told), along="steps", panels=panels)


def _named(folders: Sequence[str | Path]) -> dict[str, str | Path]:
    """Folders by their last names, or as they were given where these are not all different."""
    names = [Path(each).resolve().name for each in folders]
    return dict(zip(names if len(set(names)) == len(names) else map(str, folders), folders, strict=True))


def _scores(told: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    known = dict.fromkeys(key for reports in told.values() for each in reports for key in each)
    left_out = [f"{_SCORE}{name}" for name in ("loss", *_LEFT_OUT)]
    return [key for key in known if key.startswith(_SCORE) and key not in left_out]


def _series(name: str, reports: Sequence[Mapping[str, Any]], key: str) -> Series:
    points = [(float(each["step"]), float(each[key])) for each in reports if key in each]
    size = -(-len(points) // MOST)
    if key.startswith(_SCORE) or size <= 1:
        return Series(name=name, points=points, is_marked=key.startswith(_SCORE))
    parts = [points[start : start + size] for start in range(0, len(points), size)]
    means = [(part[-1][0], sum(y for _, y in part) / len(part)) for part in parts]
    return Series(name=name, points=means)
