"""The routes, a file for each subject."""

from regard.serving.routes import (
    _completions,
    _embeddings,
    _health,
    _models,
    _pages,
    _traces,
    _usages,
    _words,
)

ROUTERS = tuple(
    each.router for each in (_embeddings, _completions, _models, _words, _traces, _usages, _pages, _health)
)
"""All of them, in the order of the API's description."""

__all__ = ["ROUTERS"]
