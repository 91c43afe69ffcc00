"""A decoder of two layers that is watched while it learns to go on with a list that is said a second time.

An induction head emerges (Olsson et al. 2022, "In-context Learning and Induction Heads"): it finds where the
word stood before, and looks at the word after it. Some minutes on one core.
"""

import random
from pathlib import Path

from examples_models import WORDS
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing

from regard.training import read_settings, train

LIST = "moon table wolf paper river stone queen milk lamp door"


def lists(folder: Path) -> Path:
    """Trains on lists of random words, each said twice, and returns the folder of the run."""
    draw = random.Random(0)
    said = ([draw.choice(WORDS) for _ in range(draw.randint(6, 14))] for _ in range(30_000))
    texts = (" ".join(words + words) for words in said)
    (folder / "lists.txt").write_text("\n".join(texts) + "\n")
    words = ["[UNK]", "[BOS]", *WORDS]
    tokenizer = Tokenizer(WordLevel({word: id for id, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.add_special_tokens(words[:2])
    tokenizer.post_processor = TemplateProcessing(single="[BOS] $A", special_tokens=[("[BOS]", 1)])
    (folder / "words").mkdir()
    tokenizer.save(str(folder / "words" / "tokenizer.json"))
    (folder / "words" / "tokenizer_config.json").write_text('{"bos_token": "[BOS]", "unk_token": "[UNK]"}')
    # Rows begin anywhere in a list, so that only what was said before tells which word is next.
    settings = read_settings(
        "clm",
        data={"train": [str(folder / "lists.txt")], "valid_share": 0.01},
        tokenizer={"path": str(folder / "words")},
        family="llama",
        model={"d_model": 64, "num_layers": 2, "num_heads": 4, "d_ff": 128},
        batch={"length": 48, "rows": 64, "form": "blocks"},
        optimiser={"lr": 3e-3, "warmup": 30},
        steps=2000,
        save_every=2000,
        evaluate_every=2000,
        watch=[f"{LIST} {LIST}"],
    )
    return train(settings, folder / "run").folder
