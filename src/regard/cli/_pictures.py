"""The options of `regard look` that write one head as a picture."""

from pathlib import Path
from typing import TYPE_CHECKING, cast

from regard.cli._options import check_output
from regard.core.errors import InputError

if TYPE_CHECKING:
    from regard.models import Kind
    from regard.tracing import Trace


def check_pictures(files: dict[str, Path | None]) -> list[Path]:
    """The picture files that are asked for, each with the ending that its option says.

    Raises:
        InputError: another ending, which would promise another format.
        OutputError: one is where stdout goes.
    """
    chosen = {ending: file for ending, file in files.items() if file is not None}
    for ending, file in chosen.items():
        check_output(file)
        if file.suffix.lower() != f".{ending}":
            raise InputError(f"--{ending} writes a file that ends in .{ending}; got {str(file)!r}.")
    return list(chosen.values())


def write_pictures(
    trace: "Trace", files: list[Path], *, layer: int, head: int, kind: str | None, as_map: bool
) -> None:
    """Write one head of a trace as pictures."""
    picture = trace.plot(layer, head, kind=cast("Kind | None", kind), form="map" if as_map else "lines")
    for file in files:
        picture.write(file)
