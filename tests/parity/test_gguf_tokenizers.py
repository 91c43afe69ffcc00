"""Tokenizers of GGUF files, against the same vocabularies in folders, and transformers' ways to cut texts."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tokenizers
import transformers
from tokenizers import models, pre_tokenizers, trainers

from gguf_metadata import keys, of_backend, of_sentencepiece, write_gguf
from parity.test_tokenizers import (
    BERT,
    FAIRSEQ,
    FILES,
    GEMMA,
    SENTENCES,
    byte_pairs,
    folder_of,
    ours,
    pieces,
    texts,
    wordpiece,
    write,
)
from regard.text import Encoding, Tokenizer

HARD = [
    *("a", "1", " ", "\n", "\t x", "  a   b ", "a \n b\n\n\tc\r\nd ", "x = 1;\n    y = 22;\n\n\n"),
    *(
        "I'll 'LL don't DON'T we’ve 's",
        "2024 12345 1,000.50 ½ ²³ Ⅳ ٣٤٥ １２３",
        "CamelCase iPhoneX HTTPServer ABCdef",
    ),
    *(
        "日本語と東京、中文。",
        "한국어 텍스트",
        "नमस्ते हिन्दी क्ष",
        "สวัสดี น้ำ",
        "שָׁלוֹם עולם",
        "مَرحَباً ١٢",
        "Ελλάδα Съешь",
    ),
    *(
        "👩\u200d👧 ❤️ 🇫🇷 👍🏽",
        "e\u0301 é a\u0308\u0323 A\u030a",
        "\x00\x07\x1b[0m",
        "\u00a0\u3000\u2028\u200b\ufeff",
    ),
    *(
        "<s> </s><|endoftext|>  <pad>",
        "!!! ??? ... --- (x) [y] {z} <a/> //# $5 ^~|`",
        "ﬁ ß ẞ İ ǅ ª º K Ω Å",
        "▁a ▁▁ Ġ",
    ),
]


def made(metadata: dict[str, object]) -> Tokenizer:
    tokenizer = Tokenizer.from_gguf(metadata, file=Path("a.gguf"))
    assert tokenizer is not None
    return tokenizer


def same(one: Tokenizer, other: Tokenizer, candidates: list[str]) -> None:
    """Ids, types, spans, words and what is special, of texts and pairs, with special tokens and without."""
    for text, pair in itertools.pairwise(text for text in candidates if text.strip()):
        for second, special in itertools.product((None, pair), (True, False)):
            found, wanted = (_encoded(each, text, second, special) for each in (one, other))
            assert found == wanted, (text, second)
            if isinstance(found, Encoding):
                assert one.decode(found.token_ids) == other.decode(found.token_ids), text


def _encoded(tokenizer: Tokenizer, text: str, pair: str | None, special: bool) -> Encoding | str:
    try:
        return tokenizer.encode(text, pair, add_special_tokens=special)
    except Exception as error:  # a text of which nothing is left
        return str(error)


def folder_and_metadata(family: str, folder: Path) -> tuple[Path, dict[str, object]]:
    """A folder, and the metadata that converts it."""
    if family == "bert":
        wordpiece(folder, BERT, lower=True)
        said = {"cls": 2, "sep": 3, "unk": 1, "pad": 0, "mask": 4, "bos": 2, "eos": 3}
    elif family == "gpt2":
        byte_pairs(folder, ["<|endoftext|>"])
        said = {"pre": "gpt-2", "bos": 0, "eos": 0, "unk": 0}
    elif family == "roberta":
        byte_pairs(folder, list(FAIRSEQ.values()))
        said = {"pre": "roberta-bpe", "bos": 0, "cls": 0, "eos": 2, "sep": 2, "pad": 1, "unk": 3, "mask": 4}
        said |= dict.fromkeys(("add_bos_token", "add_eos_token", "add_sep_token"), True)
    elif family == "qwen2":
        byte_pairs(folder, ["<|endoftext|>"])
        said = {"pre": "qwen2", "eos": 0, "pad": 0, "unk": 0}
    if family in FILES:
        folder_of(family, folder)
        fairseq = family == "xlm-roberta"
        said = {
            "llama": {"bos": 1, "eos": 2, "unk": 0},
            "gemma2": {"bos": 2, "eos": 1, "unk": 3, "pad": 0, "mask": 4, "add_eos_token": True},
            "t5": {"eos": 1, "unk": 2, "pad": 0, "fill": 128},
            "xlm-roberta": {"bos": 0, "cls": 0, "eos": 2, "sep": 2, "unk": 3, "pad": 1, "fairseq": True}
            | dict.fromkeys(("add_bos_token", "add_eos_token", "add_sep_token"), True),
        }[family]
        metadata = of_sentencepiece(folder / FILES[family][0], **said)
        if fairseq:
            metadata |= keys(mask=len(metadata["tokenizer.ggml.tokens"]) - 1)  # type: ignore[arg-type]
    else:
        write(folder, family)
        backend: Any = ours(folder)._backend
        metadata = of_backend(backend, fill=3, **said)
    return folder, metadata | {"general.architecture": family}


@pytest.mark.parametrize(
    "family", ["bert", "gpt2", "roberta", "qwen2", "llama", "gemma2", "t5", "xlm-roberta"]
)
def test_a_file_gives_what_its_folder_gives(family: str, tmp_path: Path) -> None:
    folder, metadata = folder_and_metadata(family, tmp_path)
    tokenizer, oracle = made(metadata), ours(folder)
    same(tokenizer, oracle, [*HARD, *texts("</s>", "[SEP]", "<extra_id_7> ", " <mask>", "<|endoftext|>")])
    assert {id: tokenizer.piece_of(id) for id in range(700)} == {id: oracle.piece_of(id) for id in range(700)}
    assert tokenizer.special_ids == oracle.special_ids
    assert tokenizer.vocab_size == oracle.vocab_size


# --- how texts are cut

_DIGITS = pre_tokenizers.Digits(individual_digits=True)


def _merged_across() -> tokenizers.Tokenizer:
    """Pairs of bytes learned from texts that nothing cut: where a cut is missing, a token shows it."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    parts = [text[at : at + 9] for text in [*HARD, *SENTENCES] for at in range(0, len(text), 3)]
    trainer = trainers.BpeTrainer(
        vocab_size=1500,
        special_tokens=["<s>", "</s>", "<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(parts * 3, trainer)
    return backend


def _of_transformers(name: str, merged: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The way of a class, or of an expression that its reader of such files has."""
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    classes = {
        "gpt-2": transformers.GPT2Tokenizer,
        "olmo": transformers.GPTNeoXTokenizer,
        "smollm": transformers.CohereTokenizer,
        "command-r": transformers.CohereTokenizer,
        "qwen2": transformers.Qwen2Tokenizer,
    }
    backend = tokenizers.Tokenizer.from_str(merged.to_str())
    if name in classes:
        parts = classes[name]().backend_tokenizer
        backend.pre_tokenizer = parts.pre_tokenizer
        if parts.normalizer is not None and name != "smollm":
            backend.normalizer = parts.normalizer
    else:
        split = pre_tokenizers.Split(tokenizers.Regex(GGUF_PRE_TOKENIZER_SPLITS[name]), behavior="isolated")
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
        backend.model.ignore_merges = name in ("llama-bpe", "tekken")
    return backend


@pytest.fixture(scope="module")
def merged() -> tokenizers.Tokenizer:
    return _merged_across()


@pytest.mark.parametrize(
    "name", ["gpt-2", "olmo", "smollm", "command-r", "qwen2", "llama-bpe", "dbrx", "tekken", "gpt-4o"]
)
def test_texts_are_cut_as_the_family_does(name: str, merged: tokenizers.Tokenizer) -> None:
    metadata = of_backend(merged, pre=name, bos=0, eos=1, add_bos_token=False)
    tokenizer = made(metadata)
    oracle = _of_transformers(name, merged)
    uncut = 0
    for text in [*HARD, *texts("<|endoftext|>", "HTTPServer", "2024"), *SENTENCES]:
        expected = oracle.encode(text, add_special_tokens=False).ids
        if text.strip():
            assert list(tokenizer.encode(text, add_special_tokens=False).token_ids) == expected, text
        uncut += expected != merged.encode(text, add_special_tokens=False).ids
    assert uncut > 50


def test_tokens_of_blanks_are_found_as_sentencepiece_finds_them(tmp_path: Path) -> None:
    """Files have them with blanks, models with "▁"; llama.cpp misses those that a text spells so."""
    runs = ["▁▁", "▁▁▁", "\n\n", "<h1>"]
    path = pieces(tmp_path / "tokenizer.model", **GEMMA | {"user_defined_symbols": ["<mask>", *runs]})
    oracle = sentencepiece.SentencePieceProcessor(model_file=str(path))
    metadata = of_sentencepiece(path, bos=2, eos=1, unk=3)
    assert "   " in metadata["tokenizer.ggml.tokens"]  # type: ignore[operator]
    tokenizer = made(metadata)
    for text in [*HARD, *texts("   ", "▁▁", "\n\n\n", "<h1>"), "a" + 8 * " " + "b"]:
        if text.strip() and "<" not in text:
            found = tokenizer.encode(text, add_special_tokens=False)
            assert [token.text for token in found.tokens] == oracle.encode(text, out_type=str), text


@pytest.mark.parametrize("family", ["gpt2", "gemma2"])
def test_a_file_is_read_as_transformers_reads_it(family: str, tmp_path: Path) -> None:
    """Of the others its reader leaves something out: NFC, SentencePiece's table, the blank before a text."""
    _, metadata = folder_and_metadata(family, tmp_path)
    path = write_gguf(tmp_path / "a.gguf", metadata)
    oracle = transformers.AutoTokenizer.from_pretrained(tmp_path, gguf_file=path.name)
    tokenizer = made(metadata)
    for text in [*HARD, *texts("</s>"), *SENTENCES]:
        if text.strip():
            found = tokenizer.encode(text, add_special_tokens=False).token_ids
            assert list(found) == oracle(text, add_special_tokens=False)["input_ids"], text
