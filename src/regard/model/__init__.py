"""`regard.load`, `regard.lens` and the `Model` that they return."""

from regard.model._model import Model, lens, load
