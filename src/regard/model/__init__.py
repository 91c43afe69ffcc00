"""`regard.load`, `regard.lens` and the `Model` that they return."""

from regard.model._loading import lens, load
from regard.model._model import Model

__all__ = ["Model", "lens", "load"]
