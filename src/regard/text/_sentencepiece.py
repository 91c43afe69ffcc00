"""Tokenizers from SentencePiece models; of Marian, whose ids are a table of their own."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from regard.core.errors import CheckpointError
from regard.core.extras import missing
from regard.core.files import plain_file, read_object
from regard.core.tokenizer_files import TARGET_TABLE
from regard.core.wording import reason
from regard.text._library import FAIRSEQ, Row, begin_and_end
from regard.text._special import Roles, Settings, add_special, around, roles_of, template

BLANK: Final = "▁"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """A family that reads a SentencePiece model.

    Attributes:
        defaults: The token of each role where nothing is stated.
        prefix: What stands before a text: roles, tokens, or "{lang}" for the language.
        suffix: What stands after it.
        pair: The template of two texts, where it is not twice that of one, one after the other.
        begins: Whether a text begins with `bos` where the settings do not say; None for families whose
            settings never say, where `prefix` and `suffix` hold.
        lowercases: Whether the setting `do_lower_case` is read.
        sentinels: Whether T5's `<extra_id_0>` and on follow the vocabulary.
        source_lang: The language where none is stated.
        lstrip: The roles whose tokens take the blank before them.
    """

    defaults: Mapping[str, str]
    prefix: Sequence[str] = ()
    suffix: Sequence[str] = ()
    pair: str | None = None
    begins: bool | None = None
    lowercases: bool = False
    sentinels: bool = False
    source_lang: str | None = None
    lstrip: Sequence[str] = ()

    def build(self, path: Path, settings: Settings, class_name: str) -> tuple[tokenizers.Tokenizer, Roles]:
        """The tokenizer of a text's first language, and its tokens with a role."""
        roles = roles_of(settings, self.defaults, lstrip=self.lstrip)
        # Options are the names that the class of transformers has for its special tokens.
        options: dict[str, Any] = {f"{role}_token": token.content for role, token in roles.items()}
        if self.sentinels:
            options["extra_ids"] = settings.number("extra_ids", 100)
        backend = convert(path, settings, class_name, options, lowercase=self.lowercases)
        add_special(backend, settings, roles)
        self.put_around(backend, settings, roles, target=False)
        return backend, roles

    @property
    def languages(self) -> bool:
        """Whether a text is marked with its language, so that source and target differ."""
        return self.source_lang is not None

    def language(self, settings: Settings, *, target: bool = False) -> str:
        """The mark of the language of source texts, or of target texts."""
        source = settings.text("src_lang", self.source_lang or "")
        return settings.text("tgt_lang", source) if target else source

    def put_around(
        self, backend: tokenizers.Tokenizer, settings: Settings, roles: Roles, *, target: bool
    ) -> None:
        """Gives the tokenizer the template of source texts, or of target texts."""
        if self.begins is not None:
            backend.post_processor = begin_and_end(backend, settings, roles, begins=self.begins)
            return
        # Roles in templates are written {bos}; languages {lang}.
        names = {f"{{{role}}}": token.content for role, token in roles.items()}
        if self.languages:
            names["{lang}"] = self.language(settings, target=target)
        prefix, suffix = ([names.get(part, part) for part in parts] for parts in (self.prefix, self.suffix))
        single, pair = around(prefix, suffix, apart=False)
        # Two texts have a template of their own where the family says so.
        if self.pair is not None:
            pair = self.pair
            for name, content in names.items():
                pair = pair.replace(name, content)
        backend.post_processor = template(backend, single, pair, settings)


def convert(
    path: Path,
    settings: Settings,
    class_name: str | None,
    options: Mapping[str, Any],
    *,
    lowercase: bool = False,
) -> tokenizers.Tokenizer:
    """The tokenizer that a SentencePiece file describes, without a template.

    The class of transformers lays out the vocabulary (None keeps the file's own); the options are what it
    wants to know: its special tokens, and how many sentinels.
    """
    unusable = f"{path} is not a usable SentencePiece model"
    # These libraries are only needed for folders without tokenizer.json.
    try:
        from transformers.convert_slow_tokenizer import SLOW_TO_FAST_CONVERTERS, SentencePieceExtractor

        extractor: Any = SentencePieceExtractor(str(plain_file(path)))
    except ImportError as error:
        needs = f"{path}, which has no tokenizer.json beside it, needs"
        raise missing(needs, error, "transformers", "sentencepiece", "protobuf") from error
    except Exception as error:  # protobuf's, which is no dependency of this module
        raise CheckpointError(f"{unusable}: {reason(error)}; fetch it again") from error
    proto = extractor.proto
    # They stand behind the pieces: a file that was cut off lacks them.
    if not (proto.pieces and proto.HasField("trainer_spec") and proto.HasField("normalizer_spec")):
        raise CheckpointError(f"{unusable}: it is incomplete; fetch it again")
    trainer, spec = proto.trainer_spec, proto.normalizer_spec
    # The enum of the file itself: 1 unigram, 2 BPE.
    unigram = trainer.model_type == trainer.UNIGRAM
    if not unigram and trainer.model_type != trainer.BPE:
        raise CheckpointError(f"{path} holds words or characters: only unigram and BPE models can be read")
    if trainer.treat_whitespace_as_suffix:
        raise CheckpointError(f"{path} writes blanks behind words, which regard does not read")
    parts: dict[str, Any] = extractor.extract(models.Unigram if unigram else models.BPE, **options)
    own: list[AddedToken] = parts["additional_special_tokens"]
    # The family's converter lays pieces out as its fast tokenizer does (fairseq's ids, sentinels).
    if class_name in SLOW_TO_FAST_CONVERTERS and unigram:
        converter: Any = SLOW_TO_FAST_CONVERTERS[class_name]
        parts = converter.convert_from_spm(**parts)
    vocabulary = parts["vocab"]
    model: models.Unigram | models.BPE
    try:
        if unigram:
            unknown = options.get("unk_token", trainer.unk_piece)
            # The unknown piece by its name; else by the id in the file.
            places = [place for place, (piece, _) in enumerate(vocabulary) if piece == unknown]
            model = models.Unigram(vocabulary, (places or [trainer.unk_id])[0], trainer.byte_fallback)
        else:
            model = models.BPE(
                vocab=vocabulary,
                merges=parts["merges"],
                unk_token=trainer.unk_piece,
                fuse_unk=True,
                byte_fallback=trainer.byte_fallback,
            )
    except Exception as error:  # the library's own
        raise CheckpointError(f"{path} is not a usable SentencePiece model: {error}") from error
    backend = lay_out(
        model,
        charsmap=spec.precompiled_charsmap,
        collapses=spec.remove_extra_whitespaces,
        prefix=settings.flag("add_prefix_space", bool(spec.add_dummy_prefix)),
        legacy=settings.flag("legacy", True),
        lowercases=lowercase and settings.flag("do_lower_case", False),
    )
    # Control pieces of the file are special where the family keeps them under their name; so is what the
    # family adds to them (sentinels, languages).
    backend.add_tokens([token for token in own if backend.token_to_id(token.content) is not None])
    known = {piece.piece for piece in proto.pieces} | set(options.values())
    # What the converter has added beside the file's own pieces.
    more = (piece for piece, *_ in vocabulary if piece not in known) if unigram else ()
    backend.add_tokens([AddedToken(piece, special=True, normalized=False) for piece in more])
    return backend


def lay_out(
    model: models.Unigram | models.BPE,
    *,
    charsmap: bytes,
    collapses: bool,
    prefix: bool,
    legacy: bool = True,
    lowercases: bool = False,
) -> tokenizers.Tokenizer:
    """The tokenizer that writes blanks as SentencePiece does, and reads them back.

    A `charsmap` says what characters are replaced by. What `collapses` has no blanks at its ends, and one of
    several in a row. A `prefix` is a blank before a text; `legacy`, also behind each special token in it.
    """
    backend = tokenizers.Tokenizer(model)
    steps: list[normalizers.Normalizer] = [normalizers.Lowercase()] if lowercases else []
    if charsmap:
        steps.append(normalizers.Precompiled(charsmap))
    if collapses:
        # By U+0020 alone, as SentencePiece does; its own table made blanks of the others.
        steps.append(normalizers.Replace(Regex("^ +| +$"), ""))
        steps.append(normalizers.Replace(Regex(" {2,}"), " "))
    # Metaspace fits where no text begins with a blank (they were collapsed), or where only the very first
    # text gets one (not legacy).
    if prefix and (collapses or not legacy):
        scheme = "always" if legacy else "first"
        backend.pre_tokenizer = pre_tokenizers.Metaspace(BLANK, prepend_scheme=scheme, split=False)
    else:
        # Metaspace puts none before a text that begins with a blank, SentencePiece does.
        steps += [normalizers.Prepend(BLANK)] if prefix else []
        steps.append(normalizers.Replace(" ", BLANK))
    if steps:
        backend.normalizer = normalizers.Sequence(steps)
    # The blank that was put before a text is taken off again.
    tail = [decoders.Strip(content=" ", left=1)] if prefix else []
    backend.decoder = decoders.Sequence(
        # Blanks back, bytes to characters, then one text.
        [decoders.Replace(BLANK, " "), decoders.ByteFallback(), decoders.Fuse(), *tail]
    )
    return backend


PIECES: Final = {
    "T5Tokenizer": Pieces(
        defaults={"eos": "</s>", "unk": "<unk>", "pad": "<pad>"},
        suffix=("{eos}",),
        pair="$A {eos} $B {eos}",
        sentinels=True,
    ),
    "XLMRobertaTokenizer": Pieces(
        defaults=FAIRSEQ,
        prefix=("{bos}",),
        suffix=("{eos}",),
        pair="{bos} $A {eos} {eos} $B {eos}",
        lstrip=("mask",),
    ),
    "MBartTokenizer": Pieces(
        defaults=FAIRSEQ, suffix=("{eos}", "{lang}"), source_lang="en_XX", lstrip=("mask",)
    ),
    "MBart50Tokenizer": Pieces(
        defaults=FAIRSEQ, prefix=("{lang}",), suffix=("{eos}",), source_lang="en_XX", lstrip=("mask",)
    ),
    "DebertaV2Tokenizer": Pieces(
        defaults={
            "bos": "[CLS]",
            "eos": "[SEP]",
            "unk": "[UNK]",
            "sep": "[SEP]",
            "pad": "[PAD]",
            "cls": "[CLS]",
            "mask": "[MASK]",
        },
        prefix=("{cls}",),
        suffix=("{sep}",),
        pair="{cls} $A {sep} $B:1 {sep}:1",
        lowercases=True,
    ),
    "LlamaTokenizer": Pieces(defaults={"bos": "<s>", "eos": "</s>", "unk": "<unk>"}, begins=True),
    "GemmaTokenizer": Pieces(
        defaults={"bos": "<bos>", "eos": "<eos>", "unk": "<unk>", "pad": "<pad>", "mask": "<mask>"},
        begins=True,
    ),
}
"""By the class of transformers that reads the same files."""


class Renumbered:
    """A tokenizer whose pieces have other ids than its own: Marian's `source.spm` and `vocab.json`.

    A piece that the table lacks is unknown. Pieces that only the other language has are in the vocabulary,
    but a text is not cut into them.
    """

    def __init__(self, backend: tokenizers.Tokenizer, table: Mapping[str, int], unknown: str) -> None:
        self._backend = backend
        self._table = dict(table)
        # The other way, for decoding; ids are unique.
        self._pieces = {number: piece for piece, number in self._table.items()}
        self._unknown = self._table[unknown]

    @property
    def post_processor(self) -> object:
        return self._backend.post_processor

    @property
    def decoder(self) -> object:
        return self._backend.decoder

    def to_str(self) -> str:
        return json.dumps([self._backend.to_str(), self._table, self._unknown])

    def no_truncation(self) -> None:
        self._backend.no_truncation()

    def no_padding(self) -> None:
        self._backend.no_padding()

    def encode(self, *texts: Any, **how: bool) -> Row:
        return self._renumbered(self._backend.encode(*texts, **how))

    def encode_batch(self, texts: Sequence[Any], **how: bool) -> list[Row]:
        return [self._renumbered(row) for row in self._backend.encode_batch(texts, **how)]

    encode_batch_fast = encode_batch  # the pieces are read, so nothing can be left out

    def _renumbered(self, row: Any) -> Row:
        return SimpleNamespace(
            # By the piece: a character that the model does not know is one still if the table has it.
            ids=[self._table.get(piece, self._unknown) for piece in row.tokens],
            tokens=row.tokens,
            type_ids=row.type_ids,
            offsets=row.offsets,
            word_ids=row.word_ids,
            sequence_ids=row.sequence_ids,
            special_tokens_mask=row.special_tokens_mask,
        )

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        special = self.get_added_tokens_decoder() if skip_special_tokens else {}
        # Ids without a piece decode to nothing.
        pieces = [self._pieces.get(number, "") for number in ids if number not in special]
        return str(self._backend.decoder.decode(pieces)) if pieces else ""

    def get_vocab(self, with_added_tokens: bool = True) -> dict[str, int]:
        return dict(self._table)

    def get_vocab_size(self, with_added_tokens: bool = True) -> int:
        return len(self._table)

    def get_added_tokens_decoder(self) -> dict[int, AddedToken]:
        added = self._backend.get_added_tokens_decoder().values()
        return {self._table[token.content]: token for token in added if token.content in self._table}

    def id_to_token(self, id: int) -> str | None:
        return self._pieces.get(id)

    def token_to_id(self, token: str) -> int | None:
        return self._table.get(token)


def build_marian(folder: Path, settings: Settings, *, target: bool) -> tuple[Renumbered, Roles]:
    """Marian's tokenizer of source texts, or of target texts: another model, perhaps another table."""
    path = folder / ("target.spm" if target else "source.spm")
    separate = target and settings.flag("separate_vocabs", False)
    table_path = folder / (TARGET_TABLE if separate else "vocab.json")
    for file in (path, table_path):
        if not file.is_file():
            raise CheckpointError(
                f"{file} is missing: a Marian tokenizer is of two .spm files and vocab.json"
            )
    table: dict[str, Any] = read_object(table_path)
    # No id twice, and none negative or of another type.
    if sorted(table.values(), key=str) != sorted(set(table.values()), key=str) or not all(
        type(number) is int and number >= 0 for number in table.values()
    ):
        raise CheckpointError(f"{table_path} must give each piece an id of its own; fetch it again")
    roles = roles_of(settings, {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"})
    for role in ("unk", "eos"):
        if role not in roles or roles[role].content not in table:
            raise CheckpointError(f"{table_path} has no {role} token; fetch it again")
    unknown = roles["unk"].content
    backend = convert(path, settings, None, {"unk_token": unknown})
    # Marks of languages, such as >>fra<<, are found whole.
    codes = [piece for piece in table if piece.startswith(">>") and piece.endswith("<<")]
    special = [token for token in roles.values() if token.content in table]
    for token in special:
        token.special = True
    backend.add_tokens([*special, *(AddedToken(code, special=True, normalized=False) for code in codes)])
    eos = roles["eos"].content
    backend.post_processor = template(backend, *around([], [eos], apart=False), settings)
    return Renumbered(backend, table, unknown), roles
