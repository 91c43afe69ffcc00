"""Which model a trace is of, in few bytes: so that a trace read from a file meets the right one again."""

import hashlib
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from regard.core.errors import InputError
from regard.models import Loaded

# Entries of each parameter that are looked at, evenly spaced: all of it would take seconds for a large model.
_ENTRIES = 1024
# Of these, so many are written as numbers, for a model that was loaded in another type.
_WRITTEN = 2


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What tells one model from another."""

    family: str  # as in `Loaded`
    lens: str | None  # the class of the model of transformers, where it was seen through the lens
    sizes: dict[str, int]  # by name
    config: str  # a hash of the config, and of the names and shapes of all parameters
    dtype: str  # of the parameters
    mark: str  # a hash of up to 1,024 entries of each parameter
    values: list[float]  # two entries of each

    def check(self, loaded: Loaded, where: str) -> None:
        """Raise InputError, naming what differs and `where`, if the model is another one.

        A model that was loaded in another type is the same if its values are, to the precision of the lesser.
        """
        found = self._difference(origin_of(loaded))
        if found is not None:
            raise InputError(
                f"model must be the one that the trace in {where} is of: {found}. Open it without a model to "
                "look at what needs none."
            )

    def _difference(self, other: "Origin") -> str | None:
        if other.family != self.family:
            return f"it is of a {self.family}, and the model a {other.family}"
        own = "regard's own, whose parameters have other names"
        if self.lens is None and other.lens is not None:
            return f"the model is seen through the lens, and the trace was made by {own}"
        if other.lens is None and self.lens is not None:
            return f"the trace was made through the lens, and the model is {own}"
        if other.lens != self.lens:
            return f"it is of a {self.lens}, and the model a {other.lens}"
        for name in self.sizes | other.sizes:
            if self.sizes.get(name) != other.sizes.get(name):
                return f"{name} is {self.sizes.get(name)} there and {other.sizes.get(name)} in the model"
        if other.config != self.config:
            return "its config, or the names and shapes of its parameters, are others"
        if self.dtype == other.dtype:
            return None if self.mark == other.mark else "its parameters have other values"
        lesser = max(torch.finfo(getattr(torch, each.dtype)).eps for each in (self, other))
        ours, theirs = (torch.tensor(each.values, dtype=torch.float64) for each in (self, other))
        # 1e-7: near 0 the numbers of float16 are 6e-8 apart.
        if bool(((ours - theirs).abs() > lesser * ours.abs() + 1e-7).any()):
            return f"its parameters, {other.dtype} in place of {self.dtype}, have other values"
        return None


def origin_of(loaded: Loaded) -> Origin:
    """The origin of traces of a model."""
    network = loaded.network
    config = network.config
    sizes = {name: getattr(config, name) for name in ("vocab_size", "d_model", "num_heads")}
    depths = {f"layers of the {kind}": network.depth(kind) for kind in network.prefixes}
    # Buffers that are not stored follow from the config; some grow with the texts that were seen.
    stored = network.state_dict().keys()
    buffers = ((name, each) for name, each in network.named_buffers() if name in stored)
    tensors = dict(chain(network.named_parameters(), buffers))
    shapes = [(name, tuple(each.shape)) for name, each in tensors.items()]
    values = [_some_of(each) for each in tensors.values()]
    mark = hashlib.sha256()
    for each in values:
        mark.update(each.numpy().tobytes())
    return Origin(
        family=loaded.family,
        lens=network.plain.foreign,
        sizes=sizes | depths,
        config=hashlib.sha256(repr((config, shapes)).encode()).hexdigest(),
        dtype=str(next(network.parameters()).dtype).removeprefix("torch."),
        mark=mark.hexdigest(),
        values=[
            value for each in values for value in each[:: max(1, len(each) // _WRITTEN)][:_WRITTEN].tolist()
        ],
    )


def _some_of(tensor: Tensor) -> Tensor:
    """Up to 1,024 of its entries, evenly spaced, as float64."""
    flat = tensor.detach().reshape(-1)
    at = torch.linspace(0, len(flat) - 1, min(len(flat), _ENTRIES), dtype=torch.float64).round().long()
    return flat[at.to(flat.device)].double().cpu()
