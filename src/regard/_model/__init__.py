"""`regard.load`, `regard.lens` and the `Model` that they return."""

from regard._model._loading import lens, load
from regard._model._model import Model

__all__ = ["Model", "lens", "load"]
