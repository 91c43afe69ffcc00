"""The command line: one file a command, which parses, calls and prints. Nothing here imports torch.

It takes seconds, so what needs it is imported inside functions, after the options are checked.
"""

from regard.cli._app import main
