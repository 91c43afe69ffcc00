"""Which model a trace is of, in few bytes: so that a trace read from a file meets the right one again."""

from dataclasses import dataclass

from regard.core.errors import InputError
from regard.models import Loaded


@dataclass(frozen=True, kw_only=True)
class Origin:
    """A model's family, sizes, and a mark of its config and parameters.

    Args:
        family: as in `Loaded`.
        sizes: by name.
        mark: a hash of the config, and of the names, shapes, types and bytes of all parameters.
    """

    family: str
    sizes: dict[str, int]
    mark: str

    def check(self, loaded: Loaded, where: str) -> None:
        """Raise InputError, naming what differs, if the model is another one.

        Args:
            loaded: the model.
            where: of which file, for the message.
        """
        other = origin_of(loaded)
        found = None
        if other.family != self.family:
            found = f"it is of a {self.family}, and the model a {other.family}"
        elif other.sizes != self.sizes:
            name = next(
                name for name in self.sizes | other.sizes if self.sizes.get(name) != other.sizes.get(name)
            )
            found = f"{name} is {self.sizes.get(name)} there and {other.sizes.get(name)} in the model"
        elif other.mark != self.mark:
            found = "its config or its parameters are others, or of another type"
        if found is not None:
            raise InputError(
                f"model must be the one that the trace in {where} is of: {found}. Open it without a model to "
                "look at what needs none."
            )


def origin_of(loaded: Loaded) -> Origin:
    """The origin of traces of a model; every parameter is read, at about a gigabyte a second."""
    network = loaded.network
    config = network.config
    sizes = {name: getattr(config, name) for name in ("vocab_size", "d_model", "num_heads")}
    depths = {f"layers of the {kind}": network.depth(kind) for kind in network.prefixes}
    return Origin(family=loaded.family, sizes=sizes | depths, mark=loaded.mark())
