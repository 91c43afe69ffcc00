"""Tiny models that a live page can hold, with tokenizers of the kinds that it knows."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

import regard
from regard.checkpoints import to_hf, write_tensors
from regard.models import family_of
from regard.positions import Rotary
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


def _qwen() -> Tokenizer:
    """Bytes, after NFC, of what an expression finds."""
    made = _byte_pairs()
    made.normalizer = normalizers.NFC()
    words = r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+(?!\S)|\s+"
    cut = pre_tokenizers.Split(Regex(words), "isolated")
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([cut, last])
    return made


def _sentence_pieces(*, prefix: bool) -> Tokenizer:
    """Mistral's kind, or Gemma's: characters with a sign for the blank, and bytes for others."""
    merges = [("t", "h"), ("th", "e"), ("▁", "the"), ("i", "n"), ("in", "g"), ("▁", "b")]
    pieces = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *LETTERS]
    pieces += ["".join(pair) for pair in merges]
    vocabulary = {piece: id for id, piece in enumerate(pieces)}
    made = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    steps = [normalizers.Prepend("▁")] if prefix else []
    made.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    if not prefix:
        made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tail = [decoders.Strip(" ", 1, 0)] if prefix else []
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *tail]
    )
    made.add_special_tokens(pieces[:2])
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return made


_TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {
    "bert": _word_pieces,
    "distilbert": _word_pieces,
    "gpt2": _byte_pairs,
    "llama": lambda: _byte_pairs(digits=True),
    "qwen2": _qwen,
    "qwen3": _qwen,
    "mistral": lambda: _sentence_pieces(prefix=True),
    "gemma2": lambda: _sentence_pieces(prefix=False),
    "gemma3_text": lambda: _sentence_pieces(prefix=False),
}
_ROPE = {"sliding_attention": Rotary(8, base=100.0), "full_attention": Rotary(8, base=1000.0)}
_GROUPED = {"num_heads": 6, "num_kv_heads": 3}
_GEMMA = _GROUPED | {"head_dim": 8, "query_scalar": 7, "sliding_window": 2 * MOST_TOKENS, "rope": _ROPE}
_MORE: dict[str, dict[str, Any]] = {
    "llama": _GROUPED,
    "mistral": _GROUPED | {"sliding_window": 2 * MOST_TOKENS},
    "gemma2": _GEMMA
    | {"rope": dict.fromkeys(_ROPE, Rotary(8, base=100.0)), "softcap": 2.0, "final_softcap": 3.0},
    "gemma3_text": _GEMMA,
}


def live_model(folder: Path, family: str, **changes: Any) -> regard.Model:
    """A BERT with a masked-LM head, or a decoder with its head, of random numbers, from files."""
    folder.mkdir()
    tokenizer = _TOKENIZERS[family]()
    sizes: dict[str, Any] = {
        "vocab_size": tokenizer.get_vocab_size(),
        "d_model": 24,
        "num_heads": 3,
        "d_ff": 40,
    }
    head = {"bert": "masked-lm", "distilbert": None}.get(family, "language-model")
    sizes |= _MORE.get(family, {}) | changes
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
