"""Tokenizers from vocabularies in plain files: `vocab.txt`, or `vocab.json` with `merges.txt`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors

from regard.core.errors import CheckpointError
from regard.text._library import failing_as
from regard.text._special import Roles, Settings, add_special, around, roles_of, template

# How Qwen cuts a text before its pieces are looked up: contractions, words with the sign before them, single
# digits, punctuation with a blank before it, line ends, blanks (QwenLM, tokenization_note.md).
_QWEN: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_BERT: Final = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
FAIRSEQ: Final = {
    "bos": "<s>",
    "eos": "</s>",
    "unk": "<unk>",
    "sep": "</s>",
    "pad": "<pad>",
    "cls": "<s>",
    "mask": "<mask>",
}
_ENDOFTEXT: Final = "<|endoftext|>"


@dataclass(frozen=True, slots=True, kw_only=True)
class WordPieces:
    """A family that reads `vocab.txt`: normalised, cut at blanks and punctuation, then the longest pieces.

    Attributes:
        defaults: The token of each role where nothing is stated.
        fairseq: Its texts stand in `<s> A </s>`, and a pair in `<s> A </s></s> B </s>`; else as BERT's.
    """

    defaults: Mapping[str, str]
    fairseq: bool = False

    def build(self, path: Path, settings: Settings) -> tuple[tokenizers.Tokenizer, Roles]:
        """The tokenizer, and its tokens with a role."""
        roles = roles_of(settings, self.defaults, lstrip=("mask",) if self.fairseq else ())
        with failing_as(f"{path} is not a usable vocabulary", "; fetch it again"):
            vocabulary = models.WordPiece.read_file(str(path))
        _require(vocabulary, path, roles)
        backend = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=roles["unk"].content))
        strip = settings.fields.get("strip_accents")
        backend.normalizer = normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=settings.flag("tokenize_chinese_chars", True),
            # Where it is not stated, accents go when upper case goes.
            strip_accents=None if strip is None else settings.flag("strip_accents", True),
            lowercase=settings.flag("do_lower_case", True),
        )
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        backend.decoder = decoders.WordPiece(prefix="##")
        add_special(backend, settings, roles)
        backend.post_processor = _around(backend, settings, roles, fairseq=self.fairseq)
        return backend, roles


@dataclass(frozen=True, slots=True, kw_only=True)
class BytePairs:
    """A family that reads `vocab.json` and `merges.txt`: pairs of bytes, merged in the order of the file.

    Attributes:
        defaults: The token of each role where nothing is stated.
        fairseq: Its texts stand in `<s> A </s>`; else nothing is added that is not asked for.
        cut: The expression that cuts a text before the merges; None for GPT-2's.
    """

    defaults: Mapping[str, str]
    fairseq: bool = False
    cut: str | None = None
    normalizer: normalizers.Normalizer | None = field(default=None)

    def build(self, path: Path, settings: Settings) -> tuple[tokenizers.Tokenizer, Roles]:
        """The tokenizer, and its tokens with a role; `merges.txt` stands beside `path`."""
        roles = roles_of(settings, self.defaults, lstrip=("mask",) if self.fairseq else ())
        with failing_as(f"{path} with merges.txt is not a usable vocabulary", "; fetch it again"):
            vocabulary, merges = models.BPE.read_file(str(path), str(path.with_name("merges.txt")))
            model = models.BPE(vocab=vocabulary, merges=merges)
        if self.fairseq:
            _require(vocabulary, path, roles)
        prefix_space = settings.flag("add_prefix_space", False)
        backend = tokenizers.Tokenizer(model)
        if self.normalizer is not None:
            backend.normalizer = self.normalizer
        if self.cut is None:
            backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
        else:
            backend.pre_tokenizer = pre_tokenizers.Sequence(
                [
                    pre_tokenizers.Split(Regex(self.cut), behavior="isolated"),
                    pre_tokenizers.ByteLevel(add_prefix_space=prefix_space, use_regex=False),
                ]
            )
        backend.decoder = decoders.ByteLevel()
        add_special(backend, settings, roles)
        if self.fairseq:
            backend.post_processor = _around(backend, settings, roles, fairseq=True)
        else:
            backend.post_processor = begin_and_end(backend, settings, roles, begins=False)
        return backend, roles


def begin_and_end(
    backend: tokenizers.Tokenizer, settings: Settings, roles: Roles, *, begins: bool
) -> processors.TemplateProcessing:
    """The template of families whose settings say whether a text begins with `bos` and ends with `eos`."""
    head = [roles["bos"].content] if "bos" in roles and settings.flag("add_bos_token", begins) else []
    tail = [roles["eos"].content] if "eos" in roles and settings.flag("add_eos_token", False) else []
    return template(backend, *around(head, tail, apart=True), settings)


def _around(
    backend: tokenizers.Tokenizer, settings: Settings, roles: Roles, *, fairseq: bool
) -> processors.TemplateProcessing:
    """BERT's template, which tells the model the second text by its type, or fairseq's, which does not."""
    cls, sep = roles["cls"].content, roles["sep"].content
    pair = f"{cls} $A {sep} {sep} $B {sep}" if fairseq else f"{cls} $A {sep} $B:1 {sep}:1"
    return template(backend, f"{cls} $A {sep}", pair, settings)


def _require(vocabulary: Mapping[str, int], path: Path, roles: Roles) -> None:
    """A token around texts or for unknown words must have a row of its own; it is never made up."""
    for role in ("unk", "cls", "sep"):
        if role not in roles or roles[role].content not in vocabulary:
            name = repr(roles[role].content) if role in roles else "null"
            raise CheckpointError(
                f"{path} lacks the {role} token, {name}: state {role}_token in tokenizer_config.json, or "
                "fetch the file again"
            )


WORD_PIECES: Final = {
    "BertTokenizer": WordPieces(defaults=_BERT),
    "DistilBertTokenizer": WordPieces(defaults=_BERT),
    "ElectraTokenizer": WordPieces(defaults=_BERT),
    "MPNetTokenizer": WordPieces(defaults=FAIRSEQ | {"unk": "[UNK]"}, fairseq=True),
}
"""By the class of transformers that reads the same files."""

BYTE_PAIRS: Final = {
    "GPT2Tokenizer": BytePairs(defaults={"unk": _ENDOFTEXT, "bos": _ENDOFTEXT, "eos": _ENDOFTEXT}),
    "RobertaTokenizer": BytePairs(defaults=FAIRSEQ, fairseq=True),
    "BartTokenizer": BytePairs(defaults=FAIRSEQ, fairseq=True),
    "Qwen2Tokenizer": BytePairs(
        defaults={"unk": _ENDOFTEXT, "eos": _ENDOFTEXT, "pad": _ENDOFTEXT},
        cut=_QWEN,
        normalizer=normalizers.NFC(),
    ),
}
"""By the class of transformers that reads the same files."""
