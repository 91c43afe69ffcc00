"""A tokenizer's two files, written."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from regard.core.tokenizer_files import SETTINGS, TOKENIZER
from regard.text._tokenizer import Tokenizer

_NO_LIMIT = 10**30
"""What transformers has for it."""


def write_tokenizer(
    tokenizer: Tokenizer,
    folder: str | os.PathLike[str],
    *,
    max_length: int | None = None,
    has_types: bool = False,
) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json`, which regard and `transformers` read.

    transformers 5 has a tokenizer of its own for every model of type `qwen2`, whatever its files say; there
    `PreTrainedTokenizerFast.from_pretrained` reads them.

    Args:
        tokenizer: With the ids of the tokens that have a role.
        folder: One that exists.
        max_length: The most tokens that the model takes; None for no limit.
        has_types: Whether the model reads `token_type_ids`.

    Raises:
        InputError: As `Tokenizer.to_str`.

    Example:
        >>> import tempfile
        >>> from tokenizers import Tokenizer as Backend, models
        >>> backend = Backend(models.WordLevel({"[PAD]": 0, "bank": 1}, unk_token="[PAD]"))
        >>> tokenizer = Tokenizer.from_str(backend.to_str(), roles={"pad": "[PAD]"})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_tokenizer(tokenizer, folder)
        ...     again = Tokenizer.from_folder(folder, model_type="bert")
        >>> again.special_ids.pad, again.mark() == tokenizer.mark()
        (0, True)
    """
    text = tokenizer.to_str()
    ids = asdict(tokenizer.special_ids)
    settings: dict[str, Any] = {
        # The class that takes a file as it is, in all versions of transformers.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": _NO_LIMIT if max_length is None else max_length,
        "model_input_names": ["input_ids", *(["token_type_ids"] if has_types else []), "attention_mask"],
        **{f"{role}_token": tokenizer.token_of(id) for role, id in ids.items() if id is not None},
    }
    (Path(folder) / TOKENIZER).write_text(text, encoding="utf-8")
    listed = json.dumps(settings, indent=2, sort_keys=True, ensure_ascii=False)
    (Path(folder) / SETTINGS[0]).write_text(listed + "\n", encoding="utf-8")
