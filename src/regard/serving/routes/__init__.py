"""The routes, a file for each subject."""

from regard.serving.routes import _embeddings, _health, _models

ROUTERS = (_embeddings.router, _models.router, _health.router)
"""All of them, in the order of the API's description."""

__all__ = ["ROUTERS"]
