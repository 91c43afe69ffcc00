"""The command line: one file a command, which parses, calls and prints. Nothing here imports torch."""

from regard.cli._app import main

__all__ = ["main"]
