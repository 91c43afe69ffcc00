"""`--ray [ADDRESS]`: an option whose value may be left out, and the workers that it asks for."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli._errors import Command

if TYPE_CHECKING:
    from regard.embedding.job import RayWorkers

# The address is left out; "" is none that Ray could have.
_BARE = "--ray="
_ADDRESS = re.compile(r"auto|local|(ray://)?[^/\s]+:\d+")


class RayCommand(Command):
    """A command with `--ray [ADDRESS]`: what follows is its value where it looks like an address."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See `click.Command.parse_args`."""
        return super().parse_args(ctx, with_address(args))


def with_address(arguments: Sequence[str]) -> list[str]:
    """The arguments, with an address where `--ray` has none.

    Example:
        >>> with_address(["--ray", "texts.txt"]), with_address(["--ray", "head:6379", "texts.txt"])
        (['--ray=', 'texts.txt'], ['--ray=head:6379', 'texts.txt'])
    """
    found: list[str] = []
    for place, each in enumerate(arguments):
        if each == "--":
            return [*found, *arguments[place:]]
        if place and arguments[place - 1] == "--ray" and _ADDRESS.fullmatch(each):
            found[-1] += each
        else:
            found.append(_BARE if each == "--ray" else each)
    return found


def ray_workers(
    address: str | None,
    workers: int | None,
    model: str,
    wanted: Mapping[str, Any],
    tell: Callable[[str], object],
) -> "AbstractContextManager[RayWorkers | None]":
    """The workers of a job; None without the option."""
    if address is None:
        return nullcontext()
    from functools import partial

    from regard.embedding.job import RayWorkers, open_model

    # A folder is looked for from where the command runs, which is another place on a node.
    name = str(Path(model).resolve()) if Path(model).is_dir() else model
    return RayWorkers(partial(open_model, name, wanted), address=address or None, workers=workers, tell=tell)
