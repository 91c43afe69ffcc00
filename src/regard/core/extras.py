"""Optional dependencies that several packages use, imported when they are first needed."""

from importlib import import_module
from typing import Any

from regard.core.errors import MissingExtraError


def pyarrow() -> tuple[Any, Any]:
    """The modules `pyarrow` and `pyarrow.parquet`.

    Raises:
        MissingExtraError: pyarrow is not installed.

    Example:
        >>> pa, parquet = pyarrow()
        >>> pa.array([1, 2]).type, parquet.__name__
        (DataType(int64), 'pyarrow.parquet')
    """
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise MissingExtraError(
            "Parquet files need pyarrow, which is not installed; run: pip install 'regard[embed]'"
        ) from error
