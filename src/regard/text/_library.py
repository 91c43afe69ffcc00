"""Calls of the `tokenizers` library: what it is never given, its failures, tokenizers from plain files."""

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Protocol

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from regard.core.errors import CheckpointError, InputError
from regard.core.files import plain_file
from regard.core.wording import reason
from regard.text._chat import Chat
from regard.text._cuts import CUTS
from regard.text._special import Roles, Settings, add_special, around, roles_of, template
from regard.text._words import Words, shown

# What is dropped at a text's start: control characters that are no white space.
_CONTROLS = "".join(char for char in map(chr, [*range(32), *range(127, 160)]) if not char.isspace())
# Only a prefix that is not empty is cut from pieces.
_PREFIX = re.compile(r'"continuing_subword_prefix"\s*:\s*"[^"]')


class Row(Protocol):
    """What a tokenizer makes of a text: `tokenizers.Encoding`, as far as it is read."""

    @property
    def ids(self) -> Sequence[int]: ...
    @property
    def tokens(self) -> Sequence[str]: ...
    @property
    def type_ids(self) -> Sequence[int]: ...
    @property
    def offsets(self) -> Sequence[tuple[int, int]]: ...
    @property
    def sequence_ids(self) -> Sequence[int | None]: ...
    @property
    def special_tokens_mask(self) -> Sequence[int]: ...


@contextmanager
def failing_as(what: str, way_out: str = "") -> Iterator[None]:
    """Within it, whatever the library raises is a CheckpointError: `what`, its reason, the way out.

    It raises bare Exceptions, TypeError for what is not Unicode, and where its own code panics a
    BaseException, which has no name to import.
    """
    # A check of the caller's own, which says more than this would.
    try:
        yield
    except (CheckpointError, InputError):
        raise
    except BaseException as error:
        # A panic of Rust code comes as a BaseException; others of that kind (Ctrl-C) go on.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise CheckpointError(f"{what}: {reason(error)}{way_out}") from error
        raise


def read_backend(file: Path) -> tokenizers.Tokenizer:
    """The tokenizer in a file."""
    try:
        text = plain_file(file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file} cannot be read as a tokenizer.json: {reason(error)}") from error
    return parse_backend(text, str(file))


def parse_backend(text: str, source: str) -> tokenizers.Tokenizer:
    """The tokenizer in the text of a file that `source` names."""
    _check_merges(text, source)
    way_out = "; fetch it again, or write it with the tokenizers library"
    with failing_as(f"{source} is not a usable tokenizer.json", way_out):
        return tokenizers.Tokenizer.from_str(text)


def _check_merges(text: str, source: str) -> None:
    """Refuse merges from which the library cannot cut the prefix of pieces inside a word.

    Where the cut falls inside a character it ends the whole process, which nothing can catch.
    """
    # The quick look spares nearly every file the parsing.
    if '"merges"' not in text or not _PREFIX.search(text):
        return
    try:
        model = json.loads(text)["model"]
        size = len(model["continuing_subword_prefix"].encode())
        # Older files write a merge as one text, newer ones as a list of two.
        merges = [each.split(" ") if isinstance(each, str) else each for each in model["merges"]]
        parts = [second for _, second in merges if not _can_be_cut(second.encode(), size)]
    # The file has another form: the library refuses it by itself.
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return
    if parts:
        raise CheckpointError(
            f"{source} is not a usable tokenizer.json: its merges have {parts[0]!r} inside a word, without "
            f"the continuing_subword_prefix {model['continuing_subword_prefix']!r}; fetch it again"
        )


def _can_be_cut(part: bytes, at: int) -> bool:
    # Bytes 10xxxxxx continue a character: no cut before one.
    return len(part) == at or (len(part) > at and part[at] & 0xC0 != 0x80)


@contextmanager
def failing_on(backend: Any, source: str, texts: Sequence[str | None]) -> Iterator[None]:
    """As `failing_as`, for texts; names a word without a token, where there is none for unknown words."""
    try:
        with failing_as(f"{source}: the tokenizer failed on the text"):
            yield
    except CheckpointError as error:
        # A vocabulary of whole words without an unknown token is the usual cause.
        if isinstance(getattr(backend, "model", None), models.WordLevel):
            for word in _words(backend, texts):
                if backend.token_to_id(word) is None:
                    raise CheckpointError(
                        f"{source}: the tokenizer failed on the text: it has no token for {word!r}, and none "
                        "for what it does not know; give another text, or a tokenizer with [UNK]"
                    ) from error
        raise


def _words(backend: Any, texts: Sequence[str | None]) -> Iterator[str]:
    for text in filter(None, texts):
        plain = text if backend.normalizer is None else backend.normalizer.normalize_str(text)
        if backend.pre_tokenizer is None:
            yield plain
        else:
            # The words as the model would get them: normalised, then cut.
            yield from (word for word, _ in backend.pre_tokenizer.pre_tokenize_str(plain))


def encode(backend: Any, source: str, *texts: str | None, add_special_tokens: bool) -> Row:
    """What a tokenizer makes of a text, or of a pair."""
    present = [text for text in texts if text is not None]
    # A pair must be cut into words on both sides, or on none.
    cut = [text for text in present if isinstance(text, Words)]
    if cut and len(cut) < len(present):
        raise InputError("pair must be cut into words where the text is, or neither: give both as Words.")
    chats = [text for text in present if isinstance(text, Chat)]
    if chats and len(present) > 1:
        raise InputError("pair must be None with a chat, which is read alone.")
    with failing_on(backend, source, present):
        row: Row
        if cut:
            row = _of_words(backend, cut, add_special_tokens)
        elif chats:
            row = _of_chat(backend, chats[0])
        else:
            row = backend.encode(*present, add_special_tokens=add_special_tokens)
    # A template whose ids and tokens differ in number would shift all that follows.
    if len(row.tokens) != len(row.ids):
        raise CheckpointError(
            f"{source}: the tokenizer gives {len(row.ids)} ids, but {len(row.tokens)} tokens; its template "
            "(post_processor) must name one token for each id"
        )
    return in_place(backend, row, *texts)


def in_place(backend: Any, row: Row, *texts: str | None) -> Row:
    """The row with offsets in the texts as they are.

    SentencePiece's normaliser drops control characters at the start of a text, and the library then counts
    from behind them: with and without them the offsets are the same.
    """
    lost = [0 if isinstance(text, Words) else _lost(backend, text or "") for text in texts]
    # The usual case: nothing was dropped at the start.
    if not any(lost):
        return row
    shifts = [0 if number is None else lost[number] for number in row.sequence_ids]
    return _moved(row, [(start + by, end + by) for (start, end), by in zip(row.offsets, shifts, strict=True)])


def _lost(backend: Any, text: str) -> int:
    """How many control characters at a text's start its offsets do not count."""
    bare = text.lstrip(_CONTROLS)
    if len(bare) == len(text):
        return 0
    # With and without the control characters: the same offsets mean that they are not counted.
    both = (backend.encode(each, add_special_tokens=False).offsets for each in (text, bare))
    return len(text) - len(bare) if next(both) == next(both) else 0


def _moved(row: Row, offsets: Sequence[tuple[int, int]]) -> Row:
    names = ("ids", "tokens", "type_ids", "sequence_ids", "special_tokens_mask")
    return SimpleNamespace(offsets=offsets, **{name: getattr(row, name) for name in names})


def _of_words(backend: Any, texts: Sequence[Words], add_special_tokens: bool) -> Row:
    """What it makes of texts that are cut into words, each read by itself; with offsets in the texts."""
    # GPT-2's kind writes the blank into the token: words get one in front.
    blank = " " if _runs_together(backend) else ""
    parts = [[blank + word for word in text.words] for text in texts]
    row = backend.encode(*parts, is_pretokenized=True, add_special_tokens=add_special_tokens)
    lost = [[_lost(backend, word) for word in text.words] for text in texts]
    # For words that are read each by itself, the library's offsets count from the word's own start.
    offsets = []
    for (start, end), sequence, word in zip(row.offsets, row.sequence_ids, row.word_ids, strict=True):
        if word is not None:
            # Where the word stands in the text, less the blank that was put before it.
            first, extra = texts[sequence].spans[word][0], lost[sequence][word] - len(blank)
            start, end = first + max(0, start + extra), first + max(0, end + extra)
        offsets.append((start, end))
    return _moved(row, offsets)


def _of_chat(backend: Any, chat: Chat) -> Row:
    """What it makes of a chat, whose special tokens stand in the text: from seam to seam by itself."""
    names = ("ids", "tokens", "type_ids", "sequence_ids", "special_tokens_mask", "offsets")
    joined: dict[str, list[Any]] = {name: [] for name in names}
    # SentencePiece puts a blank before what begins a text: a line end is put there first.
    line = backend.encode("\n", add_special_tokens=False)
    for start, end in itertools.pairwise((0, *chat.seams, len(chat))):
        skip, back = (len(line.ids), start - 1) if start else (0, 0)
        # A text in the middle must not be read as one that begins.
        row = backend.encode("\n" * (start > 0) + chat[start:end], add_special_tokens=False)
        # What the line end gives must come out the same, to be cut off again.
        if skip and (row.ids[:skip], row.offsets[:skip]) != (line.ids, line.offsets):
            raise InputError("messages must not spell special tokens: this tokenizer takes none apart.")
        for name in names[:-1]:
            joined[name] += getattr(row, name)[skip:]
        joined["offsets"] += [(back + one, back + two) for one, two in row.offsets[skip:]]
    return SimpleNamespace(**joined)


def _runs_together(backend: Any) -> bool:
    """Whether words that are read each by itself lose what parts them, as those of GPT-2 the blank."""
    try:
        # Two words with a blank, and the same two handed over apart.
        apart = backend.encode("a a", add_special_tokens=False)
        cut = backend.encode(["a", "a"], is_pretokenized=True, add_special_tokens=False)
    # A vocabulary without "a" and without an unknown token.
    except Exception:
        return False
    return list(apart.ids) != list(cut.ids)


def keep_blanks(processor: object) -> None:
    """Has a byte-level post-processor report the blanks at a token's ends.

    It cuts them off by itself, but leaves a token of blanks with an empty span, sometimes in the wrong place.
    """
    if isinstance(processor, processors.ByteLevel | processors.RobertaProcessing):
        processor.trim_offsets = False
    elif isinstance(processor, processors.Sequence):
        # It has an index, but neither a length nor an iterator.
        for index in itertools.count():
            try:
                part = processor[index]
            except IndexError:
                break
            keep_blanks(part)


def check_rows(piece_of: Callable[[int], str | None], ids: Sequence[int], rows: int | None) -> None:
    """Raise InputError where a text has an added token beyond the model's table; None for no end of it."""
    beyond = None if rows is None else next((id for id in ids if id >= rows), None)
    if beyond is not None:
        raise InputError(
            f"the text has {shown(str(piece_of(beyond)))}, an added token with id {beyond}, but the "
            f"model's table has {rows} rows: leave it out, or give the model that was trained with it"
        )


def checked(argument: str, text: str) -> str:
    """The text, if it is one that a model can read; InputError says what is wrong."""
    if not isinstance(text, str):
        raise InputError(f"{argument} must be a string; got {type(text).__name__}")
    if not text.strip():
        but = " but for white space" if text else ""
        raise InputError(f"{argument} is empty{but}: give at least one character that is not white space")
    half = surrogate(text)
    if half is not None:
        raise InputError(
            f"{argument} is not valid Unicode: position {half} holds half of a surrogate pair "
            f"(U+{ord(text[half]):04X}); decode the bytes anew, or remove it"
        )
    return text


def surrogate(text: str) -> int | None:
    """The position of the first lone surrogate; UTF-8, and so the library, has no form for it."""
    try:
        text.encode("utf-8")
    # Where encoding stops is the first half of a pair.
    except UnicodeEncodeError as error:
        return error.start
    return None


def row_limit(backend: Any, rows: int, source: str) -> int | None:
    """So many rows where a table has none for an added token; None where every token has one.

    A piece of the vocabulary itself without a row is a CheckpointError.
    """
    ids = backend.get_vocab(with_added_tokens=True).values()
    highest = max(ids, default=-1)
    if highest < rows:
        return None
    # Only added tokens may lie beyond the table.
    added = backend.get_added_tokens_decoder()
    if any(id >= rows and id not in added for id in ids):
        raise CheckpointError(
            f"{source} has tokens up to id {highest}, but the model's table of embeddings has {rows} rows: "
            "the two do not belong together. Take the tokenizer that was saved with the weights, or, if it "
            "has grown since, the weights that were trained with it."
        )
    return rows


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


def word_pieces(
    vocabulary: dict[str, int],
    unknown: str,
    *,
    lowercases: bool,
    strips: bool | None,
    spaces_chinese: bool = True,
) -> tokenizers.Tokenizer:
    """BERT's: normalised, cut at blanks and punctuation, then the longest pieces; without special tokens."""
    backend = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=unknown))
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=spaces_chinese, strip_accents=strips, lowercase=lowercases
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    return backend


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
            vocabulary = models.WordPiece.read_file(str(plain_file(path)))
        _require(vocabulary, path, roles)
        strip = settings.fields.get("strip_accents")
        backend = word_pieces(
            vocabulary,
            roles["unk"].content,
            lowercases=settings.flag("do_lower_case", True),
            # Where it is not stated, accents go when upper case goes.
            strips=None if strip is None else settings.flag("strip_accents", True),
            spaces_chinese=settings.flag("tokenize_chinese_chars", True),
        )
        add_special(backend, settings, roles)
        backend.post_processor = _around(backend, settings, roles, fairseq=self.fairseq)
        return backend, roles


@dataclass(frozen=True, slots=True, kw_only=True)
class BytePairs:
    """A family that reads `vocab.json` and `merges.txt`: pairs of bytes, merged in the order of the file.

    Attributes:
        defaults: The token of each role where nothing is stated.
        fairseq: Its texts stand in `<s> A </s>`; else nothing is added that is not asked for.
        cut: How a text is cut before the merges, as in `CUTS`.
    """

    defaults: Mapping[str, str]
    fairseq: bool = False
    cut: str = "gpt-2"

    def build(self, path: Path, settings: Settings) -> tuple[tokenizers.Tokenizer, Roles]:
        """The tokenizer, and its tokens with a role; `merges.txt` stands beside `path`."""
        roles = roles_of(settings, self.defaults, lstrip=("mask",) if self.fairseq else ())
        with failing_as(f"{path} with merges.txt is not a usable vocabulary", "; fetch it again"):
            files = (str(plain_file(each)) for each in (path, path.with_name("merges.txt")))
            vocabulary, merges = models.BPE.read_file(*files)
            model = models.BPE(vocab=vocabulary, merges=merges)
        # GPT-2's kind puts nothing around texts that could be missing.
        if self.fairseq:
            _require(vocabulary, path, roles)
        backend = CUTS[self.cut].around(model, prefix_space=settings.flag("add_prefix_space", False))
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
    # A role that is not there is not put around, whatever the settings say.
    head = [roles["bos"].content] if "bos" in roles and settings.flag("add_bos_token", begins) else []
    tail = [roles["eos"].content] if "eos" in roles and settings.flag("add_eos_token", False) else []
    return template(backend, *around(head, tail, apart=True), settings)


def _around(
    backend: tokenizers.Tokenizer, settings: Settings, roles: Roles, *, fairseq: bool
) -> processors.TemplateProcessing:
    """BERT's template, which tells the model the second text by its type, or fairseq's, which does not."""
    cls, sep = roles["cls"].content, roles["sep"].content
    # BERT gives the second text type 1; fairseq has two separators and one type.
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
        cut="qwen2",
    ),
}
"""By the class of transformers that reads the same files."""
