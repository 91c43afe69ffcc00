"""Smaller models, and models on disk."""

from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Self

from regard.core.arguments import check_function
from regard.model._has_network import HasNetwork
from regard.models import Heads, OfLayers, Part, save_checkpoint
from regard.pruning import Importance, PruningCurve, loads_in, prune, pruning_curve, weakest_heads


class Pruning(HasNetwork):
    """Heads removed for good, what that costs, and the checkpoint that is left."""

    def prune(self, heads: OfLayers | Mapping[Part, OfLayers]) -> Self:
        """A smaller model without these heads, with weights of its own: see `regard.pruning.prune`.

        Args:
            heads: {layer: [heads]}; by kind of attention where there are several, {"cross": {0: [3]}}.

        Example:
            >>> import regard
            >>> regard.load().prune({0: [3, 5], -1: [11]}).loads_in
            ('regard', 'transformers 5 with trust_remote_code=True', 'transformers 4')
        """
        return type(self)(prune(self.loaded, heads))

    def weakest_heads(self, importance: Importance, number: int, *, evenly: bool | None = None) -> Heads:
        """The heads to prune first by an importance: see `regard.pruning.weakest_heads`."""
        return weakest_heads(self.network, importance, number, evenly=evenly)

    def pruning_curve(
        self,
        importance: Importance,
        metric: Callable[[Self], float],
        *,
        evenly: bool | None = None,
        every: int = 1,
        progress: Callable[[int, int], None] | None = None,
    ) -> PruningCurve:
        """What the model is worth with fewer and fewer heads: see `regard.pruning.pruning_curve`."""
        check_function("metric", metric, "from a model to one number")
        return pruning_curve(
            self.loaded,
            importance,
            lambda loaded: metric(type(self)(loaded)),
            evenly=evenly,
            every=every,
            progress=progress,
        )

    @property
    def loads_in(self) -> tuple[str, ...]:
        """Where what `save` writes can be loaded: see `regard.pruning.loads_in`."""
        return loads_in(self.loaded)

    def save(self, folder: str | PathLike[str]) -> Path:
        """Write config.json, the weights and the tokenizer to a new folder: see `regard.models`.

        Raises:
            OutputError: the folder exists, or cannot be written; nothing is left behind.
        """
        return save_checkpoint(self.loaded, folder)
