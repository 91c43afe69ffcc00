"""Tokenizers built from a folder's files, against transformers' classes on them, and sentencepiece."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tokenizers
import transformers
from tokenizers import models, normalizers, pre_tokenizers, trainers
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

from regard.models import FAMILIES, family_of
from regard.text import Tokenizer

SENTENCES = [
    "the river bank is by the bank of England",
    "don't write a poem about time that flies like an arrow",
    "café naïve straße fishing on a bank.",
    "שלום עולם",
    "日本語 東京 日本",
    "hello  world 12345 3.14",
    "le fleuve et la rive",
    "Ünïcödé ﬁsh ½ … ™",
    "a_bank a.bank",
] * 6

# "\u0301" stands after letters only: after a character that the file replaces, `tokenizers` drops it.
HOSTILE = [
    *("a", "b", " river", "bank ", "BANK", "  ", "\n", "\t", "\r\n", "\u3000", "\u00a0", "\u202f"),
    *("日本", "語", "שלום", "שָׁ", "😀", "👩\u200d👧", "é", "e\u0301", "ﬁ", "½", "™", "ß", "ẞ", "İ", "Z"),
    *("\x07", "\0", "\u200b", "\u00ad", "\ufeff", "12", "3.4", "▁", "don't", ".", ",", "x_y", "##", "Ġ"),
]


def texts(*more: str, seed: int = 1, count: int = 150) -> list[str]:
    rng = random.Random(seed)
    return ["".join((*rng.choices([*HOSTILE, *more], k=rng.randint(1, 9)), "a")) for _ in range(count)]


def write(folder: Path, model_type: str, **settings: Any) -> Path:
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    if settings:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def wordpiece(folder: Path, special: dict[str, str], *, lower: bool) -> None:
    backend = tokenizers.Tokenizer(models.WordPiece(unk_token=special["unk"]))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lower)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    names = list(dict.fromkeys(special.values()))
    backend.train_from_iterator(
        SENTENCES, trainers.WordPieceTrainer(vocab_size=170, special_tokens=names, show_progress=False)
    )
    backend.model.save(str(folder))


def byte_pairs(folder: Path, special: list[str], *, cut: str | None = None) -> None:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if cut is not None:
        split = pre_tokenizers.Split(tokenizers.Regex(cut), behavior="isolated")
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    trainer = trainers.BpeTrainer(
        vocab_size=350,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(SENTENCES, trainer)
    backend.model.save(str(folder))


def pieces(path: Path, *, model_type: str = "unigram", vocab_size: int = 150, **options: Any) -> Path:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES),
        model_prefix=str(path.with_suffix("")),
        model_type=model_type,
        vocab_size=vocab_size,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    path.with_suffix(".vocab").unlink()
    if path.suffix != ".model":
        path.with_suffix(".model").rename(path)
    return path


def ours(folder: Path) -> Tokenizer:
    model_type = json.loads((folder / "config.json").read_text())["model_type"]
    names = transformers.models.auto.tokenization_auto.TOKENIZER_MAPPING_NAMES
    name = family_of(model_type).tokenizer_class if model_type in FAMILIES else names[model_type] or ""
    tokenizer = Tokenizer.from_folder(folder, tokenizer_class=name)
    assert tokenizer is not None
    return tokenizer


def check(tokenizer: Tokenizer, oracle: Any, candidates: list[str], *, types: bool = False) -> None:
    """Ids (and types) of texts and pairs, with special tokens and without."""
    compared = 0
    for text, pair in itertools.pairwise(candidates):
        for second in (None, pair):
            for special in (True, False):
                expected = oracle(text, second, add_special_tokens=special)
                encoding = tokenizer.encode(text, second, add_special_tokens=special)
                assert list(encoding.token_ids) == expected["input_ids"], (text, second)
                if types:
                    assert list(encoding.type_ids) == expected["token_type_ids"]
                compared += 1
    assert compared == 4 * (len(candidates) - 1)
    vocabulary = oracle.get_vocab()
    assert tokenizer.vocab_size == len(vocabulary)
    assert all(tokenizer.id_of(piece) == number for piece, number in vocabulary.items())


BERT = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
FAIRSEQ = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}


@pytest.mark.parametrize("model_type", ["bert", "distilbert", "electra"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"do_lower_case": False},
        {"do_lower_case": True, "strip_accents": False},
        {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False},
    ],
)
def test_wordpiece(model_type: str, settings: dict[str, Any], tmp_path: Path) -> None:
    wordpiece(tmp_path, BERT, lower=settings.get("do_lower_case", True))
    write(tmp_path, model_type, **settings)
    oracle = transformers.AutoTokenizer.from_pretrained(tmp_path)
    check(ours(tmp_path), oracle, texts("[MASK]", " [SEP] ", "[UNK]"), types=model_type == "bert")


def test_wordpiece_with_tokens_of_its_own_names(tmp_path: Path) -> None:
    """Names in special_tokens_map.json, and tokens in added_tokens.json, as folders had them once."""
    names = {"pad": "<p>", "unk": "<u>", "cls": "<c>", "sep": "<e>", "mask": "<m>"}
    wordpiece(tmp_path, names, lower=True)
    write(tmp_path, "bert", do_lower_case=True)
    stated = {f"{role}_token": name for role, name in names.items()}
    stated_extra = {"extra_special_tokens": ["[Sp]"]}  # its older name transformers 5 no longer reads here
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(stated | stated_extra))
    size = len((tmp_path / "vocab.txt").read_text().splitlines())
    (tmp_path / "added_tokens.json").write_text(
        json.dumps({"riverbank": size, "[New]": size + 1, "[Sp]": size + 2})
    )
    tokenizer = ours(tmp_path)
    check(
        tokenizer,
        transformers.AutoTokenizer.from_pretrained(tmp_path),
        texts("<m>", "RiverBank", "[NEW]", "[Sp]", "[SP]"),
    )
    assert (tokenizer.special_ids.cls, tokenizer.special_ids.mask, tokenizer.special_ids.bos) == (2, 4, None)


def test_wordpiece_with_added_tokens_in_the_settings(tmp_path: Path) -> None:
    wordpiece(tmp_path, BERT, lower=True)
    size = len((tmp_path / "vocab.txt").read_text().splitlines())
    ways = {"single_word": True, "lstrip": True, "rstrip": False, "normalized": False, "special": False}
    write(tmp_path, "bert", added_tokens_decoder={str(size): {"content": "riverbank", **ways}})
    oracle = transformers.AutoTokenizer.from_pretrained(tmp_path)
    check(ours(tmp_path), oracle, texts(" riverbank ", "riverbank", " "))


def test_mpnet(tmp_path: Path) -> None:
    wordpiece(tmp_path, FAIRSEQ | {"unk": "[UNK]"}, lower=True)
    write(tmp_path, "mpnet")
    check(ours(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path), texts(" <mask>", "</s>"))


@pytest.mark.parametrize("prefix_space", [False, True])
@pytest.mark.parametrize("begins", [False, True])
def test_gpt2(prefix_space: bool, begins: bool, tmp_path: Path) -> None:
    byte_pairs(tmp_path, ["<|endoftext|>"])
    write(tmp_path, "gpt2", add_prefix_space=prefix_space, add_bos_token=begins)
    tokenizer = ours(tmp_path)
    check(tokenizer, transformers.AutoTokenizer.from_pretrained(tmp_path), texts("<|endoftext|>"))
    assert tokenizer.special_ids.eos == tokenizer.special_ids.bos == 0


@pytest.mark.parametrize("model_type", ["roberta", "bart"])
@pytest.mark.parametrize("prefix_space", [False, True])
def test_roberta(model_type: str, prefix_space: bool, tmp_path: Path) -> None:
    byte_pairs(tmp_path, list(FAIRSEQ.values()))
    mask = {"__type": "AddedToken", "content": "<mask>", "lstrip": True, "special": False}
    write(tmp_path, model_type, add_prefix_space=prefix_space, mask_token=mask)
    check(ours(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path), texts(" <mask>", "</s>"))
    # transformers 5 has forgotten that the mask takes the blank before it, where nothing is stated.
    encoding = ours(tmp_path).encode("the <mask> bank")
    assert encoding.tokens[encoding.find("<mask>")[0]].special
    stated = encoding.token_ids
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"add_prefix_space": prefix_space}))
    assert ours(tmp_path).encode("the <mask> bank").token_ids == stated


@pytest.mark.parametrize("model_type", ["qwen2", "qwen3"])
def test_qwen(model_type: str, tmp_path: Path) -> None:
    byte_pairs(tmp_path, [], cut=PRETOKENIZE_REGEX)
    size = len(json.loads((tmp_path / "vocab.json").read_text()))
    added = {
        str(size + i): {"content": name, "special": True, "normalized": False}
        for i, name in enumerate(("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    }
    write(
        tmp_path,
        model_type,
        tokenizer_class="Qwen2Tokenizer",
        added_tokens_decoder=added,
        additional_special_tokens=["<|im_start|>", "<|im_end|>"],
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
    )
    oracle = transformers.Qwen2Tokenizer.from_pretrained(tmp_path)
    tokenizer = ours(tmp_path)
    check(tokenizer, oracle, texts("<|im_start|>", "<|im_end|>\n", "I'LL 2024", ".bank", "_bank"))
    assert (tokenizer.special_ids.eos, tokenizer.special_ids.bos) == (size + 2, None)


DEBERTA: dict[str, Any] = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3}
DEBERTA |= {"pad_piece": "[PAD]", "bos_piece": "[CLS]", "eos_piece": "[SEP]", "unk_piece": "[UNK]"}
T5 = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
BYTES: dict[str, Any] = {
    "model_type": "bpe",
    "vocab_size": 400,
    "byte_fallback": True,
    "normalization_rule_name": "identity",
    "split_digits": True,
    "remove_extra_whitespaces": False,
    "allow_whitespace_only_pieces": True,
}
GEMMA = BYTES | {"pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3}
GEMMA |= {"pad_piece": "<pad>", "eos_piece": "<eos>", "bos_piece": "<bos>"}
GEMMA |= {"user_defined_symbols": ["<mask>"], "add_dummy_prefix": False}
# Family: its file, how it is trained, its settings.
FILES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "t5": ("spiece.model", T5, {}),
    "xlm-roberta": ("sentencepiece.bpe.model", {}, {}),
    "mbart": ("sentencepiece.bpe.model", {}, {"src_lang": "fr_XX", "tgt_lang": "ro_RO"}),
    "mbart50": (
        "sentencepiece.bpe.model",
        {},
        {"tokenizer_class": "MBart50Tokenizer", "src_lang": "fr_XX", "tgt_lang": "uk_UA"},
    ),
    "deberta-v2": ("spm.model", DEBERTA, {"do_lower_case": False}),
    "llama": ("tokenizer.model", BYTES, {"add_bos_token": True}),
    "gemma2": ("tokenizer.model", GEMMA, {"add_bos_token": True, "add_eos_token": True}),
}


def folder_of(family: str, folder: Path) -> Path:
    name, options, settings = FILES[family]
    pieces(folder / name, **options)
    return write(folder, "mbart" if family == "mbart50" else family, **settings)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {family: folder_of(family, tmp_path_factory.mktemp("spm")) for family in FILES}


def encodings(tokenizer: Tokenizer, candidates: list[str]) -> Iterator[tuple[str, list[str]]]:
    for text in candidates:
        encoding = tokenizer.encode(text, add_special_tokens=False)
        yield text, [token.text for token in encoding.tokens]


@pytest.mark.parametrize("family", FILES)
def test_pieces_are_those_of_sentencepiece(family: str, folders: dict[str, Path]) -> None:
    oracle = sentencepiece.SentencePieceProcessor(model_file=str(folders[family] / FILES[family][0]))
    tokenizer = ours(folders[family])
    for text, found in encodings(tokenizer, texts(count=400)):
        assert found == oracle.encode(text, out_type=str), text
        if family not in ("xlm-roberta", "mbart", "mbart50"):  # these have their own first four ids
            ids = tokenizer.encode(text, add_special_tokens=False).token_ids
            assert list(ids) == oracle.encode(text), text


@pytest.mark.parametrize("family", ["t5", "xlm-roberta"])
def test_ids_are_those_of_transformers(family: str, folders: dict[str, Path]) -> None:
    oracle = transformers.AutoTokenizer.from_pretrained(folders[family])
    check(ours(folders[family]), oracle, texts("</s>", "<extra_id_7>", "<pad> "))


@pytest.mark.parametrize("family", FILES)
def test_what_stands_around_texts_is_that_of_transformers(family: str, folders: dict[str, Path]) -> None:
    """In texts that its classes do not mistake: some neither normalise nor strip."""
    # AutoTokenizer has no class for Llama, and puts no blank before its texts.
    auto = {"llama": transformers.LlamaTokenizer}.get(family, transformers.AutoTokenizer)
    oracle = auto.from_pretrained(folders[family])
    check(ours(folders[family]), oracle, ["the river bank", "don't fish", "日本 a bank.", "by the bank"])


@pytest.mark.parametrize("family", ["mbart", "mbart50"])
def test_the_language_of_the_target(family: str, folders: dict[str, Path]) -> None:
    oracle = transformers.AutoTokenizer.from_pretrained(folders[family])
    tokenizer = ours(folders[family])
    expected = oracle(text_target="le fleuve et la rive")["input_ids"]
    assert list(tokenizer.target.encode("le fleuve et la rive").token_ids) == expected
    assert tokenizer.encode("le fleuve et la rive") != tokenizer.target.encode("le fleuve et la rive")


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_a_text_begins_with_bos_where_nothing_is_stated(family: str, tmp_path: Path) -> None:
    name, options, _ = FILES[family]
    pieces(tmp_path / name, **options)
    tokenizer = ours(write(tmp_path, family))
    ids = tokenizer.encode("the bank").token_ids
    assert ids[0] == tokenizer.special_ids.bos
    assert ids[1:] == tokenizer.encode("the bank", add_special_tokens=False).token_ids
    stated = ours(write(tmp_path, family, add_bos_token=False))
    assert stated.encode("the bank").token_ids == ids[1:]


def test_llama_without_legacy_is_that_of_transformers(tmp_path: Path) -> None:
    pieces(tmp_path / "tokenizer.model", **BYTES)
    write(tmp_path, "llama", add_bos_token=True, legacy=False)
    oracle = transformers.LlamaTokenizer.from_pretrained(tmp_path)
    check(ours(tmp_path), oracle, texts("</s>", "<s> "))


def test_languages_beside_a_tokenizer_json(folders: dict[str, Path], tmp_path: Path) -> None:
    """The file itself has one language; the settings choose."""
    built = ours(folders["mbart50"])
    write(tmp_path, "mbart", tokenizer_class="MBart50Tokenizer", src_lang="en_XX")
    backend: Any = built._backend
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = ours(tmp_path)
    first = tokenizer.encode("the bank").tokens[0]
    assert (first.text, built.encode("the bank").tokens[0].text) == ("en_XX", "fr_XX")


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Source and target pieces share a table in another order; some pieces are missing from it."""
    folder = tmp_path_factory.mktemp("marian")
    found: dict[str, None] = {}
    for name, size in (("source", 120), ("target", 150)):
        model = sentencepiece.SentencePieceProcessor(
            model_file=str(pieces(folder / f"{name}.spm", vocab_size=size))
        )
        found.update(dict.fromkeys(model.id_to_piece(i) for i in range(3, model.get_piece_size())))
    names = ["</s>", "<unk>", *reversed(found), "Ω", ">>fra<<", "<pad>"]
    missing = {"日", "é", "b"}
    assert missing <= set(found)
    table = {name: i for i, name in enumerate(name for name in names if name not in missing)}
    (folder / "vocab.json").write_text(json.dumps(table))
    return write(folder, "marian", source_lang="en", target_lang="fr")


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_marian(marian: Path) -> None:
    oracle = transformers.MarianTokenizer.from_pretrained(marian)
    tokenizer = ours(marian)
    candidates = [text.replace("½", "") for text in texts("</s>", "Ω", "<pad>")]
    for text, pair in itertools.pairwise(candidates):
        assert list(tokenizer.encode(text, pair).token_ids) == oracle(text, pair)["input_ids"], text
        assert list(tokenizer.target.encode(text).token_ids) == oracle(text_target=text)["input_ids"], text
    coded = tokenizer.encode(">>fra<< the bank")
    assert list(coded.token_ids) == oracle(">>fra<< the bank")["input_ids"]
    assert coded.find(">>fra<<") == (0,)
    assert tokenizer.token_of(coded.token_ids[-1]) == "</s>"
    assert tokenizer.id_of("Ω") == oracle.get_vocab()["Ω"]
    # A piece that the table lacks is unknown; a character that only the table has is not.
    assert tokenizer.encode("日").token_ids[-2] == tokenizer.special_ids.unk == 1
    assert tokenizer.encode("bankΩ").token_ids[-2] == tokenizer.id_of("Ω")


def test_what_is_decoded(folders: dict[str, Path], marian: Path) -> None:
    for folder in (*folders.values(), marian):
        tokenizer = ours(folder)
        text = "the river is naïve"
        ids = tokenizer.encode(text).token_ids
        assert tokenizer.decode(ids, skip_special=True) == text
        assert len(tokenizer.decode(ids)) > len(text)


@pytest.mark.parametrize("family", FILES)
def test_words_and_spans(family: str, folders: dict[str, Path]) -> None:
    tokenizer = ours(folders[family])
    for text in texts(count=200):
        encoding = tokenizer.encode(text)
        position = 0
        for token in encoding.tokens:
            if token.span is None:
                continue
            start, end = token.span
            assert position <= end <= len(text), (text, token)
            position = end
            covered = text[start:end]
            assert token.surface == (covered or token.shown)
            if not token.text.strip("▁") and not covered.strip():
                assert token.word is None, (text, token)
    encoding = tokenizer.encode("bank 日本 😀 river")
    spans = {word.text: word.span for word in encoding.words}
    for name in ("bank", "😀", "river"):
        found = [encoding.tokens[place] for place in encoding.find(name)]
        covered = {i for token in found if token.span for i in range(*token.span)}
        assert covered == set(range(*spans[name])), (name, found)


@pytest.mark.parametrize("family", FILES)
@pytest.mark.parametrize("start", ["\x07", "\x01\x9f\x08", "\x07 ", "\x07\t\x08"])
def test_spans_behind_control_characters(family: str, start: str, folders: dict[str, Path]) -> None:
    """SentencePiece's normaliser drops them, and the library counts from behind them."""
    tokenizer = ours(folders[family])
    text = f"{start}bank by the river"
    encoding, pair = tokenizer.encode(text), tokenizer.encode("the bank", text)
    (aligned,) = tokenizer.bulk.aligned([text])
    for name in ("bank", "by", "the", "river"):
        at = text.index(name), text.index(name) + len(name)
        found = [encoding.tokens[place] for place in encoding.find(name)]
        assert (found[0].span[0], found[-1].span[1]) == at, (name, found)  # type: ignore[index]
        second = [
            token for token in pair.tokens if token.sequence == 1 and token.span and token.word is not None
        ]
        words = [pair.words[token.word].text for token in second if token.span[0] == at[0]]  # type: ignore[index]
        assert words[-1:] == [name]
        assert at in aligned.words
