"""The routes, a file for each subject."""

from regard.serving.routes import _completions, _embeddings, _pages, _state, _traces, _usages, _words

_FILES = (_embeddings, _completions, _state, _words, _traces, _usages, _pages)

ROUTERS = tuple(each.router for each in _FILES)
"""All of them, in the order of the API's description."""
