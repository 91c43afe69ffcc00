"""What a tokenizer refuses: texts that are none, and tokens that the model's table has no row for."""

from collections.abc import Callable, Sequence

import tokenizers

from regard.core.errors import CheckpointError, InputError
from regard.text._renumbered import Renumbered
from regard.text._words import shown


def check_rows(piece_of: Callable[[int], str | None], ids: Sequence[int], rows: int) -> None:
    """Raise InputError where a text has an added token beyond the model's table."""
    beyond = next((id for id in ids if id >= rows), None)
    if beyond is not None:
        raise InputError(
            f"the text has {shown(str(piece_of(beyond)))}, an added token with id {beyond}, but the "
            f"model's table has {rows} rows: leave it out, or give the model that was trained with it"
        )


def checked(argument: str, text: str) -> str:
    """The text, if it is one that a model can read; InputError says what is wrong."""
    if not isinstance(text, str):
        raise InputError(f"{argument} must be a string; got {type(text).__name__}")
    if not text.strip():
        but = " but for white space" if text else ""
        raise InputError(f"{argument} is empty{but}: give at least one character that is not white space")
    half = surrogate(text)
    if half is not None:
        raise InputError(
            f"{argument} is not valid Unicode: position {half} holds half of a surrogate pair "
            f"(U+{ord(text[half]):04X}); decode the bytes anew, or remove it"
        )
    return text


def surrogate(text: str) -> int | None:
    """The position of the first lone surrogate; UTF-8, and so the library, has no form for it."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return error.start
    return None


def row_limit(backend: tokenizers.Tokenizer | Renumbered, rows: int, source: str) -> int | None:
    """So many rows where a table has none for an added token; None where every token has one.

    A piece of the vocabulary itself without a row is a CheckpointError.
    """
    ids = backend.get_vocab(with_added_tokens=True).values()
    highest = max(ids, default=-1)
    if highest < rows:
        return None
    added = backend.get_added_tokens_decoder()
    if any(id >= rows and id not in added for id in ids):
        raise CheckpointError(
            f"{source} has tokens up to id {highest}, but the model's table of embeddings has {rows} rows: "
            "the two do not belong together. Take the tokenizer that was saved with the weights, or, if it "
            "has grown since, the weights that were trained with it."
        )
    return rows
