"""Tiny models that a live page can hold, with tokenizers of the kinds that it knows."""

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

import regard
from regard.checkpoints import to_hf, write_tensors
from regard.models import family_of
from unit.models.folders import network

MOST_TOKENS = 79  # a ready sentence takes 60, letter by letter
LETTERS = "abcdefghijklmnopqrstuvwxyz"
PIECES = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("a", "man", "river", "bank", "money", "fish", "##ing", "on", "the", "."),
    *LETTERS[1:],
    *(f"##{letter}" for letter in LETTERS),
]


def _word_pieces() -> Tokenizer:
    made = Tokenizer(models.WordPiece({piece: id for id, piece in enumerate(PIECES)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    ends = [("[CLS]", PIECES.index("[CLS]")), ("[SEP]", PIECES.index("[SEP]"))]
    made.post_processor = processors.BertProcessing(ends[1], ends[0])
    made.add_special_tokens(PIECES[:5])
    return made


def _byte_pairs(*, digits: bool = False) -> Tokenizer:
    signs = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("i", "n"), ("in", "g")]
    vocabulary = [*signs, *("".join(pair) for pair in merges)]
    made = Tokenizer(models.BPE({piece: id for id, piece in enumerate(vocabulary)}, merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if digits:
        steps = [pre_tokenizers.Digits(individual_digits=True), made.pre_tokenizer]
        made.pre_tokenizer = pre_tokenizers.Sequence(steps)
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.ByteLevel(trim_offsets=True)
    return made


def live_model(folder: Path, family: str) -> regard.Model:
    """A BERT with a masked-LM head, or a decoder with its head, of random numbers, from files."""
    folder.mkdir()
    tokenizer = _word_pieces() if "bert" in family else _byte_pairs(digits=family == "llama")
    sizes: dict[str, Any] = {
        "vocab_size": tokenizer.get_vocab_size(),
        "d_model": 24,
        "num_heads": 3,
        "d_ff": 40,
    }
    head = {"bert": "masked-lm", "distilbert": None}.get(family, "language-model")
    if family == "llama":
        sizes |= {"num_heads": 6, "num_kv_heads": 3}
    torch.manual_seed(0)
    made = network(family, **sizes, max_seq_len=MOST_TOKENS, head=head)
    for parameter in made.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.4)
    config = made.config.to_hf()
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    write_tensors(to_hf(made, family_of(family).keys), folder / "model.safetensors")
    tokenizer.save(str(folder / "tokenizer.json"))
    return regard.load(str(folder))
