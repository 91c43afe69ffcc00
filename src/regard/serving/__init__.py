"""Models over HTTP: embeddings as OpenAI defines them, attention, and the concordance.

    uvicorn.run(app_of([regard.load()]))

FastAPI answers, one thread a model computes. Requires the extra `serve`.
"""

from regard.serving._app import app_of
from regard.serving._limits import Settings
from regard.serving._server import listen, serve

__all__ = ["Settings", "app_of", "serve"]
