"""Names that somebody typed, and the near ones."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches

from regard.core.errors import InputError


def check_names(given: Iterable[str], known: Collection[str], section: str = "") -> None:
    """Raise InputError for a key that is not known, with the near ones.

    Example:
        >>> check_names({"d_mode": 8}, {"d_model"}, "model")
        Traceback (most recent call last):
        regard.core.errors.InputError: model.d_mode is not a setting; did you mean model.d_model?
    """
    for name in given:
        if name not in known:
            before = f"{section}." if section else ""
            near = [before + each for each in get_close_matches(name, known, n=3, cutoff=0.5)]
            listed = near or [before + each for each in sorted(known)] or ["none"]
            words = f"did you mean {' or '.join(listed)}?" if near else f"there are {', '.join(listed)}."
            raise InputError(f"{before}{name} is not a setting; {words}")
