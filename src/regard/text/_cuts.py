"""How families cut a text before its bytes are merged, under the names that GGUF files have for it.

The expressions are those of the families' own `tokenizer.json`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

GPT2: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_BLANKS: Final = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_CONTRACTED: Final = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_BEFORE: Final = r"[^\r\n\p{L}\p{N}]?"
_UPPER: Final = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER: Final = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
# Digits each by itself.
_DIGITS: Final = pre_tokenizers.Digits(individual_digits=True)


def _words(numbers: str) -> str:
    """Contractions, words with the sign before them, numbers, signs with the line ends behind them, blanks
    (QwenLM, tokenization_note.md)."""
    return rf"{_CONTRACTED}|{_BEFORE}\p{{L}}+|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_BLANKS}"


def _cased_words(numbers: str, behind: str = "") -> str:
    """As `_words`, but a word also ends before a capital, and has its contraction `behind` it."""
    words = rf"{_BEFORE}{_UPPER}*{_LOWER}+{behind}|{_BEFORE}{_UPPER}+{_LOWER}*{behind}"
    return rf"{words}|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_BLANKS}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """How a text is cut.

    Attributes:
        names: What files call it.
        steps: What cuts the text, and then the parts: expressions, whose matches and gaps are the parts.
        gpt2: Whether GPT-2's own expression comes last.
        composes: Whether characters are composed first (NFC).
        whole: Whether a part that is in the vocabulary stays whole, whatever the merges say.
        begins: Whether a text begins with `bos` where a file does not say.
    """

    names: Sequence[str]
    steps: Sequence[str | pre_tokenizers.PreTokenizer] = ()
    gpt2: bool = False
    composes: bool = False
    whole: bool = False
    begins: bool = False

    def around(self, model: models.BPE, *, prefix_space: bool = False) -> tokenizers.Tokenizer:
        """The tokenizer of a text that is cut so; `prefix_space` puts a blank before it."""
        # `ignore_merges` of the library: a part that is a token stays one.
        model.ignore_merges = self.whole
        backend = tokenizers.Tokenizer(model)
        if self.composes:
            backend.normalizer = normalizers.NFC()
        # Bytes are last: what cuts must see characters.
        last = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space, use_regex=self.gpt2)
        steps = [
            pre_tokenizers.Split(Regex(step), behavior="isolated") if isinstance(step, str) else step
            for step in self.steps
        ]
        backend.pre_tokenizer = pre_tokenizers.Sequence([*steps, last]) if steps else last
        backend.decoder = decoders.ByteLevel()
        return backend


# Ranges as DeepSeek's own tokenizer.json has them.
_HAN: Final = "[一-龥\u0800-一가-\ud7ff]+"
_CUTS: Final = (
    Cut(names=["gpt-2", "phi-2", "roberta-bpe", "jina-v1-en", "jina-v2-code"], gpt2=True),
    Cut(names=["mpt", "olmo", "modern-bert"], gpt2=True, composes=True),
    Cut(names=["smollm", "starcoder", "refact", "codeshell", "minerva-7b"], steps=[_DIGITS], gpt2=True),
    Cut(names=["command-r"], steps=[_DIGITS], gpt2=True, composes=True),
    Cut(
        names=["llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "midm-2.0"],
        steps=[_words(r"\p{N}{1,3}")],
        whole=True,
        begins=True,
    ),
    Cut(names=["dbrx", "smaug-bpe"], steps=[_words(r"\p{N}{1,3}")]),
    Cut(names=["qwen2", "deepseek-r1-qwen", "f2llmv2"], steps=[_words(r"\p{N}")], composes=True),
    Cut(names=["tekken"], steps=[_cased_words(r"\p{N}")], whole=True, begins=True),
    Cut(names=["gpt-4o", "llama4"], steps=[_cased_words(r"\p{N}{1,3}", f"{_CONTRACTED}?")]),
    Cut(names=["deepseek-coder"], steps=[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _HAN, _DIGITS]),
    Cut(
        names=["deepseek-llm"],
        steps=[
            r"[\r\n]",
            r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ"
            r"-ὗὙὛὝὟ-\x{1f7d}ᾀ-ᾴᾶ-ᾼ\x{1fbe}ῂ-ῄῆ-ῌῐ-\x{1fd3}ῖ-\x{1fdb}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\x{2126}ℨ\x{212a}-ℭℯ-ℴ"
            r"ℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+",
            r"\s?[!-/:-~！-／：-～‘-‟\x{3000}-。]+",
            r"\s+$",
            _HAN,
            _DIGITS,
        ],
    ),
    Cut(
        names=["deepseek-v3"],
        steps=[
            r"\p{N}{1,3}",
            r"[一-龥\x{3040}-ゟ゠-ヿ]+",
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
            rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_BLANKS}",
        ],
    ),
    # No family's: llama.cpp's own, for files that name it.
    Cut(names=["default"], steps=[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"]),
)
CUTS: Final = {name: cut for cut in _CUTS for name in cut.names}
"""By the name in `tokenizer.ggml.pre`."""
