"""The command line: a file parses, calls and prints, of one command or of a few about one thing.

Nothing here imports torch, which takes seconds: what needs it is imported inside functions, after the options
are checked.
"""

from regard.cli._app import main
