"""Tokens as people read them: what stands in the text, and a sign where nothing would be seen."""

import re
from typing import Any, Final

from tokenizers import pre_tokenizers

from regard.core.wording import visible

# GPT-2's alphabet: bytes that print are letters of their own, the others have those from U+0100 on, in order.
_LETTERS: Final = sorted(pre_tokenizers.ByteLevel.alphabet())
# Letters that stand for themselves first, then the others, as GPT-2's own code does.
_ORDER: Final = sorted(range(256), key=lambda byte: chr(byte) not in _LETTERS)
_BYTES: Final = dict(zip(_LETTERS, _ORDER, strict=True))

# "surrogateescape" puts a broken byte at 0xDC00 + byte: from there it gets its sign.
_PARTS: Final = {0xDC00 + byte: f"<0x{byte:02X}>" for byte in range(128, 256)}
_PART: Final = re.compile("|".join(_PARTS.values()))
# A byte of SentencePiece that is a character by itself.
_ASCII: Final = re.compile("<0x([0-7][0-9A-F])>")


class Reading:
    """How the tokens of a vocabulary are shown: bytes as text again, a part of a character as "<0xE6>".

    >>> from tokenizers import Tokenizer, models
    >>> backend = Tokenizer(models.BPE({"bank": 0, "Ġ": 1, "Ċ": 2, "Ã©": 3, "Ã": 4}, []))
    >>> backend.pre_tokenizer = pre_tokenizers.ByteLevel()
    >>> [Reading(backend)(id, backend.id_to_token(id)) for id in range(6)]
    ['bank', '␣', '↵', 'é', '<0xC3>', '5']
    """

    def __init__(self, backend: Any) -> None:
        parts = (getattr(backend, name, None) for name in ("decoder", "pre_tokenizer"))
        # What kind of vocabulary it is shows in its decoder and pre-tokenizer, as JSON.
        said = "".join(part.__getstate__().decode() for part in parts if part is not None)
        self._read = _of_bytes if '"ByteLevel"' in said else _of_blanks if '"▁"' in said else str
        # These stand in texts as they are; the backend may name them in lower case, as they are looked for.
        self._added = {id: token.content for id, token in backend.get_added_tokens_decoder().items()}

    def __call__(self, id: int, piece: str | None) -> str:
        if piece is None:
            return str(id)
        return visible(self._added.get(id) or self._read(piece))


def _of_bytes(piece: str) -> str:
    try:
        plain = bytes(_BYTES[letter] for letter in piece)
    # Letters that are no bytes: an added token, or another kind of vocabulary.
    except KeyError:
        return piece
    return plain.decode("utf-8", "surrogateescape").translate(_PARTS)


def _of_blanks(piece: str) -> str:
    byte = _ASCII.fullmatch(piece)
    return chr(int(byte[1], 16)) if byte else piece.replace("▁", " ")


def is_part(shown: str) -> bool:
    """Whether a token, as it is shown, has a part of a character."""
    return _PART.search(shown) is not None
