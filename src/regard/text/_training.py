"""Tokenizers that are made: learned from texts through the `tokenizers` library, and written to files."""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

from regard.core.arguments import one_of, path_of, whole
from regard.core.errors import InputError
from regard.core.tokenizer_files import SETTINGS, TOKENIZER
from regard.text._library import surrogate
from regard.text._special import MARKS, Marks, special_ids
from regard.text._tokenizer import Tokenizer

TokenizerKind = Literal["bpe", "wordpiece", "unigram", "characters"]
"""How a tokenizer cuts texts."""

_LARGEST = 10_000_000
"""Tokens: the library takes memory for all of them at once, and ends the process where it gets none."""

_OWN_MARKS = {"bpe": "gpt2", "wordpiece": "bert", "unigram": "t5", "characters": "none"}
_LEAST = 2  # how often a pair of pieces must come to be merged
_TOLD = 1000  # texts between two calls of `on_texts`


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """What is learned, and the marks that go with it."""

    size: int
    lowercase: bool
    marks: Marks
    special: tuple[str, ...]

    @property
    def tokens(self) -> list[str]:
        """The marks and what was asked for beside them: the first ids."""
        # dict.fromkeys: each once, in order.
        return list(dict.fromkeys((*self.marks.roles.values(), *self.special)))

    @property
    def unknown(self) -> str | None:
        """The token for what is in no text that was learned from."""
        return self.marks.roles.get("unk") or next(
            (token for token in self.special if token in ("[UNK]", "<unk>")), None
        )

    def check(self, alphabet: int) -> None:
        # Every character of the alphabet needs a token, so that nothing is lost.
        least = alphabet + len(self.tokens)
        if self.size < least:
            raise InputError(
                f"size must be at least {least:,}, for {alphabet:,} characters or bytes and the special "
                f"tokens; got {self.size:,}."
            )


def train_tokenizer(
    texts: Iterable[str],
    *,
    kind: TokenizerKind = "bpe",
    size: int = 8000,
    lowercase: bool = False,
    marks: str | None = None,
    special: Sequence[str] = (),
    on_texts: Callable[[int], object] | None = None,
) -> Tokenizer:
    """Learns a tokenizer from texts, which are read once; memory grows with the different words in them.

    | kind | what it is | marks |
    |---|---|---|
    | bpe | pairs of bytes, merged by frequency, as GPT-2's; any text comes back as it was | gpt2 |
    | wordpiece | the longest pieces of words, without control characters, as BERT's | bert |
    | unigram | the likeliest pieces, after NFKC, as T5's | t5 |
    | characters | each code point is a token, the line end always; a text comes back as it was | none |

    | marks | special tokens | around a text |
    |---|---|---|
    | gpt2 | `<\\|endoftext\\|>` | |
    | bert | `[PAD] [UNK] [CLS] [SEP] [MASK]` | `[CLS] A [SEP]` |
    | bart | `<s> <pad> </s> <unk> <mask>` | `<s> A </s>` |
    | t5 | `<pad> </s> <unk>` | `A </s>` |
    | none | | |

    The same texts, in any order, give the same tokenizer. Not so unigram, whose library adds numbers up in an
    order of its own: its scores differ in the fourth digit, and now and then a piece.

    Args:
        texts: what is learned from.
        kind: one of "bpe", "wordpiece", "unigram" and "characters".
        size: tokens at most, special ones included, up to ten million. Few texts give fewer.
        lowercase: whether capitals are lost; wordpiece then loses accents too.
        marks: which special tokens; None for the kind's own. Wordpiece and unigram need some with one for
            unknown text. Characters without one refuse texts with others than they were learned from.
        special: more special tokens; "[UNK]" or "<unk>" stands for unknown text.
        on_texts: is called now and then with how many texts have been read.

    Returns:
        The tokenizer; `write_tokenizer` writes it.

    Raises:
        InputError: an argument is none of the above; there is no text; `size` is below the alphabet.

    Source:
        Sennrich et al. 2016 (arXiv:1508.07909); Schuster and Nakajima 2012; Kudo 2018 (arXiv:1804.10959).

    Example:
        >>> from regard.text import train_tokenizer
        >>> texts = ["the river bank", "the bank of the river"] * 2
        >>> tokenizer = train_tokenizer(texts, kind="wordpiece", size=60)
        >>> [token.text for token in tokenizer.encode("the bank").tokens]
        ['[CLS]', 'the', 'bank', '[SEP]']
    """
    one_of("kind", kind, get_args(TokenizerKind))
    named = _OWN_MARKS[kind] if marks is None else one_of("marks", marks, MARKS)
    if isinstance(special, str) or not all(isinstance(each, str) and each.strip() for each in special):
        raise InputError(f"special must be a list of tokens, none of them blank; got {special!r}.")
    plan = _Plan(
        size=whole("size", size, least=1, most=_LARGEST),
        lowercase=lowercase,
        marks=MARKS[named],
        special=tuple(special),
    )
    if plan.unknown is None and kind in ("wordpiece", "unigram"):
        raise InputError(
            f"marks must have a token for unknown text, for {kind}: bert, bart or t5; got {named!r}."
        )
    backend = _LEARNERS[kind](plan, _read(texts, on_texts))
    # Special tokens have the first ids.
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in plan.tokens])
    if (around := plan.marks.around(backend.token_to_id)) is not None:
        backend.post_processor = around
    roles = dict(plan.marks.roles)
    if plan.unknown is not None:
        roles["unk"] = plan.unknown
    return Tokenizer(backend, source=f"the tokenizer of {kind}", special_ids=special_ids(backend, roles))


def _read(texts: Iterable[str], on_texts: Callable[[int], object] | None) -> Iterator[str]:
    if isinstance(texts, str):
        raise InputError("texts must be several texts, such as a list; got one string.")
    # Whether any text has something but white space: asked of the first only.
    number, has_words = 0, False
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise InputError(f"texts[{number - 1}] must be a string; got {type(text).__name__}.")
        half = surrogate(text)
        if half is not None:
            raise InputError(
                f"texts[{number - 1}] is not valid Unicode: position {half} holds half of a surrogate pair."
            )
        # Every thousand texts: a bar need not move more often.
        if on_texts is not None and number % _TOLD == 0:
            on_texts(number)
        has_words = has_words or not (not text or text.isspace())
        yield text
    if not has_words:
        raise InputError("texts must hold at least one word; there is none.")
    if on_texts is not None:
        on_texts(number)


def _bpe(plan: _Plan, texts: Iterator[str]) -> tokenizers.Tokenizer:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    # Bytes: all 256 letters have a token, also those in no text.
    plan.check(len(alphabet))
    backend = tokenizers.Tokenizer(models.BPE())
    if plan.lowercase:
        backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    # Blanks belong to tokens: see `keep_blanks`.
    backend.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=plan.size,
        min_frequency=_LEAST,
        special_tokens=plan.tokens,
        initial_alphabet=sorted(alphabet),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    return backend


def _wordpiece(plan: _Plan, texts: Iterator[str]) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.WordPiece(unk_token=plan.unknown))
    backend.normalizer = normalizers.BertNormalizer(lowercase=plan.lowercase)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    # Words are counted here, since the trainer's own order of letters is one of chance.
    counts = Counter[str]()
    for text in texts:
        words = backend.pre_tokenizer.pre_tokenize_str(backend.normalizer.normalize_str(text))
        counts.update(word for word, _ in words)
    # The library gives the letters inside words their ids in an order of chance, and between two merges that
    # are as frequent it decides by ids (huggingface/tokenizers, issue 1794). Given first, they have an order.
    inside = sorted({f"##{letter}" for word in counts for letter in word[1:]})
    plan.check(len(set[str]().union(*counts)) + len(inside))
    trainer = trainers.WordPieceTrainer(
        vocab_size=plan.size,
        min_frequency=_LEAST,
        special_tokens=[*plan.tokens, *inside],
        show_progress=False,
    )
    # Each word as often as it came: the counts are all that the trainer uses.
    backend.train_from_iterator((f"{word} " * count for word, count in counts.items()), trainer)
    # A fresh model without what training left in it.
    learned = tokenizers.Tokenizer(models.WordPiece(backend.get_vocab(), unk_token=plan.unknown))
    learned.normalizer, learned.pre_tokenizer = backend.normalizer, backend.pre_tokenizer
    learned.decoder = decoders.WordPiece(prefix="##")
    return learned


def _unigram(plan: _Plan, texts: Iterator[str]) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.Unigram())
    lower = [normalizers.Lowercase()] if plan.lowercase else []
    plainly = normalizers.Sequence(
        [normalizers.NFKC(), *lower, normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    )
    backend.normalizer = plainly
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=plan.size, special_tokens=plan.tokens, unk_token=plan.unknown, show_progress=False
    )
    # The sign of a blank counts as a letter.
    letters = {"▁"}

    def read() -> Iterator[str]:
        for text in texts:
            # Not `backend.normalizer`: while the library reads, it answers nobody.
            letters.update(plainly.normalize_str(text).replace(" ", ""))
            yield text
        # Known only after the last text.
        plan.check(len(letters))

    backend.train_from_iterator(read(), trainer)
    # As the file will have it.
    model = json.loads(backend.to_str())["model"]
    # A score with all its digits would lose some when the file is read.
    backend.model = models.Unigram(
        [(piece, round(score, 6)) for piece, score in model["vocab"]], unk_id=model["unk_id"]
    )
    return backend


def _characters(plan: _Plan, texts: Iterator[str]) -> tokenizers.Tokenizer:
    lower = normalizers.Lowercase()
    # The line end always: what is written one line after another needs it.
    letters = {"\n"}.union(*(lower.normalize_str(text) if plan.lowercase else text for text in texts))
    plan.check(len(letters))
    tokens = list(dict.fromkeys((*plan.tokens, *sorted(letters))))
    # Without a token for unknown letters: the library refuses them if the one it is told is not there.
    backend = tokenizers.Tokenizer(
        models.WordLevel({token: id for id, token in enumerate(tokens)}, unk_token=plan.unknown or "")
    )
    if plan.lowercase:
        backend.normalizer = lower
    # Any character at all, one by one.
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    backend.decoder = decoders.Fuse()
    return backend


_LEARNERS: dict[str, Callable[[_Plan, Iterator[str]], tokenizers.Tokenizer]] = {
    "bpe": _bpe,
    "wordpiece": _wordpiece,
    "unigram": _unigram,
    "characters": _characters,
}


_NO_LIMIT = 10**30
"""What transformers has for it."""


def write_tokenizer(
    tokenizer: Tokenizer,
    folder: str | os.PathLike[str],
    *,
    max_length: int | None = None,
    has_types: bool = False,
) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json`, which regard and `transformers` read.

    transformers 5 has a tokenizer of its own for every model of type `qwen2`, whatever its files say; there
    `PreTrainedTokenizerFast.from_pretrained` reads them.

    Args:
        tokenizer: With the ids of the tokens that have a role.
        folder: One that exists.
        max_length: The most tokens that the model takes; None for no limit.
        has_types: Whether the model reads `token_type_ids`.

    Raises:
        InputError: As `Tokenizer.to_str`.

    Example:
        >>> from regard.text import Tokenizer, write_tokenizer
        >>> import tempfile
        >>> from tokenizers import Tokenizer as Backend, models
        >>> backend = Backend(models.WordLevel({"[PAD]": 0, "bank": 1}, unk_token="[PAD]"))
        >>> tokenizer = Tokenizer.from_str(backend.to_str(), roles={"pad": "[PAD]"})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_tokenizer(tokenizer, folder)
        ...     again = Tokenizer.from_folder(folder)
        >>> again.special_ids.pad, again.mark() == tokenizer.mark()
        (0, True)
    """
    text = tokenizer.to_str()
    ids = asdict(tokenizer.special_ids)
    settings: dict[str, Any] = {
        # The class that takes a file as it is, in all versions of transformers.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": _NO_LIMIT if max_length is None else max_length,
        "model_input_names": ["input_ids", *(["token_type_ids"] if has_types else []), "attention_mask"],
        **{f"{role}_token": tokenizer.token_of(id) for role, id in ids.items() if id is not None},
        **({} if tokenizer.chat_template is None else {"chat_template": tokenizer.chat_template}),
    }
    (path_of("folder", folder) / TOKENIZER).write_text(text, encoding="utf-8")
    listed = json.dumps(settings, indent=2, sort_keys=True, ensure_ascii=False)
    (Path(folder) / SETTINGS[0]).write_text(listed + "\n", encoding="utf-8")
