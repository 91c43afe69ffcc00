"""Reading a `tokenizer.json`."""

from pathlib import Path

import tokenizers

from regard.core.errors import CheckpointError
from regard.text._words import one_line


def read_backend(file: Path) -> tokenizers.Tokenizer:
    """The tokenizer in a file.

    Raises:
        CheckpointError: The file is missing, cannot be read, or is no tokenizer.
    """
    if file.is_dir():
        raise CheckpointError(f"{file} is a folder, not a tokenizer.json: give the path of the file in it")
    try:
        json = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CheckpointError(
            f"{file} does not exist: give the path of a tokenizer.json, as tokenizers writes it"
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CheckpointError(f"{file} cannot be read as a tokenizer.json: {one_line(reason)}") from error
    return parse_backend(json, str(file))


def parse_backend(json: str, source: str) -> tokenizers.Tokenizer:
    """The tokenizer in the text of a file that `source` names."""
    try:
        return tokenizers.Tokenizer.from_str(json)
    # The library raises bare Exceptions, and TypeError for what is not Unicode.
    except Exception as error:
        raise CheckpointError(
            f"{source} is not a usable tokenizer.json: {one_line(error)}; fetch it again, or write it "
            "with the tokenizers library"
        ) from error
