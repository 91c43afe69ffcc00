"""What a tokenizer takes each code point for, asked of the libraries that decide it.

No two libraries know the same Unicode: the newest letters of one are nothing to the other. So a page that is
to give the same tokens as Python carries what Python's libraries say of each of the 1,114,112 code points.
"""

import itertools
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import regex  # type: ignore[import-untyped, unused-ignore]
from tokenizers import normalizers, pre_tokenizers

from regard.text._words import INVISIBLE, SIGNS

Bools = npt.NDArray[np.bool_]

# All code points of Unicode: 0 to 0x10FFFF.
_COUNT: Final = 0x110000
# Surrogates, which are no characters by themselves.
_HALVES: Final = range(0xD800, 0xE000)
# Syllables, which are taken apart by arithmetic.
_HANGUL: Final = range(0xAC00, 0xD7A4)

# Above plane 3 all code points of a plane are alike but for its last two, and some tags: the first is asked.
_ALIKE: Final = [
    range(0xE1000 if plane == 0xE else plane << 16, (plane << 16) + 0xFFFE) for plane in range(4, 0x11)
]

_OFF: Final = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
"""A normaliser of BERT's that changes nothing."""


@cache
def _every() -> str:
    """All code points, each at its own place."""
    return "".join(map(chr, range(_COUNT)))


@cache
def _asked() -> npt.NDArray[np.int64]:
    """The code points that `tokenizers` is asked about."""
    # Surrogates cannot be handed over; of the code points that are alike, the first is enough.
    asked = np.ones(_COUNT, np.bool_)
    for left_out in (_HALVES, *(alike[1:] for alike in _ALIKE)):
        asked[left_out.start : left_out.stop] = False
    return np.flatnonzero(asked)


@cache
def _text() -> str:
    """These as one text."""
    return "".join(map(chr, _asked()))


class Table:
    """Properties of every code point, and what becomes of some of them; `facts` gives it in short."""

    def __init__(self) -> None:
        self._columns: dict[str, npt.NDArray[np.int64]] = {}
        self._maps: dict[str, list[list[int]]] = {}

    def number(self, name: str, values: npt.NDArray[Any]) -> None:
        """Adds a number of each code point."""
        self._columns[name] = values.astype(np.int64)

    def flags(self, found: Mapping[str, Bools]) -> None:
        """Adds yes-or-no properties of code points."""
        self._columns.update((name, each.astype(np.int64)) for name, each in found.items())

    def map(self, name: str, becomes: Mapping[str, str]) -> None:
        """Adds what some code points become."""
        self._maps[name] = [[ord(one), *map(ord, many)] for one, many in becomes.items()]

    def facts(self) -> dict[str, Any]:
        """`classes`, the sets of properties that there are; `runs`, in turn how many code points and of which
        class; and each map as lists of a code point and those that it becomes."""
        key = np.zeros(_COUNT, np.int64)
        # All properties of a code point as one number, in a mixed base: equal numbers, equal properties.
        for column in self._columns.values():
            key = key * (int(column.max()) + 1) + column
        # Where the class changes: runs are few, since neighbours resemble each other, and quickly sorted.
        starts = np.flatnonzero(np.diff(key, prepend=-1))
        # first: the run that is the first of each class; of: the class of each run.
        _, first, class_of = np.unique(key[starts], return_index=True, return_inverse=True)
        # Properties that are 0 are left out.
        classes = [
            {name: int(column[at]) for name, column in self._columns.items() if column[at]}
            for at in starts[first]
        ]
        return {
            "classes": classes,
            "runs": np.stack((np.diff(starts, append=_COUNT), class_of), axis=1).ravel().tolist(),
            **self._maps,
        }


@cache
def of_words() -> Mapping[str, npt.NDArray[Any]]:
    """What `split_words` and `align_spans` ask: `sign`, an index into SIGNS, and flags."""
    sign = np.full(_COUNT, len(SIGNS) - 1)
    # The first that fits counts, so it is written last.
    for index, pattern in reversed(list(enumerate(SIGNS.values()))[:-1]):
        sign[_matches(pattern)] = index
    return {
        "sign": sign,
        "unseen": _matches(INVISIBLE),
        "mark": _matches(r"\p{M}"),
        "space": _matches(r"\p{White_Space}"),
        "strip": members(filter(str.isspace, _every())),
    }


def folds(texts: Iterable[str]) -> dict[str, str]:
    """The characters that may turn into parts of these texts when case is folded."""
    known = {character for text in texts for character in text.casefold()}
    return {one: many for one, many in _folded().items() if known.issuperset(many)}


@cache
def _folded() -> dict[str, str]:
    return {one: many for one in _every() if (many := one.casefold()) != one}


def left_out(cutting: pre_tokenizers.PreTokenizer) -> Bools:
    """The characters that a pre-tokenizer drops, whatever stands beside them."""
    return _gaps(cutting.pre_tokenize_str(_text()))


@cache
def digits() -> Bools:
    """What stands alone where digits do."""
    # In a long text the neighbours are others: what stands alone is asked again between letters.
    cutting = pre_tokenizers.Digits(individual_digits=True)
    alone = {piece for piece, _ in cutting.pre_tokenize_str(_text()) if len(piece) == 1}
    within = cutting.pre_tokenize_str("aa" + "aa".join(sorted(alone)) + "aa")
    return members(piece for piece, _ in within if len(piece) == 1)


@cache
def of_bert() -> dict[str, Bools]:
    """What BERT's normaliser drops, takes for a blank or sets apart, and where its pre-tokenizer cuts."""
    cleaned = normalizers.BertNormalizer(**_OFF | {"clean_text": True})
    # What is dropped or made a blank is missing in the result.
    gone = set(_text()) - set(cleaned.normalize_str(_text()))
    into = _one_by_one(cleaned.normalize_str, gone)
    spaced = normalizers.BertNormalizer(**_OFF | {"handle_chinese_chars": True})
    # A Chinese character gets blanks around it.
    chinese = [one for one, many in _changed(spaced.normalize_str).items() if many == f" {one} "]
    cutting = pre_tokenizers.BertPreTokenizer()
    pieces = cutting.pre_tokenize_str(_text())
    alone = {piece for piece, _ in pieces if len(piece) == 1}
    # One that stands alone here may be a letter between two signs; not so between other letters.
    within = cutting.pre_tokenize_str("aa" + "aa".join(sorted(alone)) + "aa")
    return {
        "dropped": members(one for one, many in into.items() if not many),
        "blank": members(one for one, many in into.items() if many == " "),
        "chinese": members(chinese),
        "separator": _gaps(pieces),
        "punctuation": members(piece for piece, _ in within if len(piece) == 1),
    }


@cache
def decomposed() -> dict[str, str]:
    """What NFD makes of single code points; Hangul syllables only where it is not what arithmetic makes."""
    changes = _changed(normalizers.NFD().normalize_str)
    return {
        one: changes.get(one, one)
        for one in dict.fromkeys((*changes, *map(chr, _HANGUL)))
        if ord(one) not in _HANGUL or changes.get(one) != unicodedata.normalize("NFD", one)
        # Hangul is left to arithmetic, unless the library makes something else of it.
    }


@cache
def composed() -> dict[str, str]:
    """The two characters of which NFC makes one; Hangul is left to arithmetic."""
    nfc = normalizers.NFC().normalize_str
    # Those that NFC makes whole again, and no Hangul.
    whole = {one: many for one, many in decomposed().items() if ord(one) not in _HANGUL and nfc(many) == one}
    # The last mark and what is before it: composition is by pairs.
    return {one: rest + many[-1] for one, many in whole.items() if len(rest := nfc(many[:-1])) == 1}


@cache
def ranks() -> npt.NDArray[np.int64]:
    """The order into which NFD brings marks that follow each other: 0 of what is no such mark."""
    nfd = normalizers.NFD().normalize_str
    # Whatever moves before the last of all marks has a class of its own; and so has that.
    last = "\u0345"
    own = [one for one in _text() if one not in decomposed() and ord(one) not in _HANGUL and one != "-"]
    # A mark that moves before U+0345 has a class of its own, below it.
    swapped = nfd("-".join(last + one for one in own)).split("-")
    marks = "".join(one for one, pair in zip(own, swapped, strict=True) if pair != last + one) + last
    # Equals stay as they came: they come out the other way round when they are put in so.
    # NFD sorts by class and keeps the order of equals.
    forward, backward = nfd("a" + marks)[1:], nfd("a" + marks[::-1])[1:]
    place = {one: at for at, one in enumerate(backward)}
    rank_of = np.zeros(_COUNT, np.int64)
    rank = 1
    for before, one in itertools.pairwise(("", *forward)):
        # Equal marks come out in reverse when they went in so: where they do not, a new class begins.
        if before and place[before] < place[one]:
            rank += 1
        rank_of[ord(one)] = rank
    return rank_of


@cache
def nonspacing() -> Bools:
    """The marks that BERT strips after NFD."""
    stripped = _one_by_one(
        normalizers.BertNormalizer(**_OFF | {"strip_accents": True}).normalize_str,
        (one for one in _text() if one not in decomposed() and ord(one) not in _HANGUL),
    )
    return members(one for one, many in stripped.items() if not many)


@cache
def lowered() -> dict[str, str]:
    """What characters become in lower case, each by itself."""
    return _changed(normalizers.BertNormalizer(**_OFF | {"lowercase": True}).normalize_str)


def _changed(function: Callable[[str], str]) -> dict[str, str]:
    """The characters that a function changes, with the results; a hyphen is taken to be kept."""
    # One call for all: a call a character would take minutes.
    asked = _text().replace("-", "")
    results = function("-".join(asked)).split("-")
    return {one: many for one, many in zip(asked, results, strict=True) if one != many}


def _one_by_one(function: Callable[[str], str], characters: Iterable[str]) -> dict[str, str]:
    """What a function makes of each character by itself, in one call; a hyphen is taken to be kept."""
    some = [one for one in dict.fromkeys(characters) if one != "-"]
    return dict(zip(some, function("-".join(some)).split("-"), strict=True))


def _matches(pattern: str) -> Bools:
    found = np.zeros(_COUNT, np.bool_)
    # Runs of the pattern, in one pass over all of Unicode.
    for each in regex.finditer(rf"(?V1)(?:{pattern})+", _every()):
        found[each.start() : each.end()] = True
    return found


def _gaps(pieces: Iterable[tuple[str, tuple[int, int]]]) -> Bools:
    """The characters that a pre-tokenizer leaves out."""
    found = np.ones(_COUNT, np.bool_)
    for _, (start, end) in pieces:
        found[_asked()[start:end]] = False
    return _spread(found)


def members(characters: Iterable[str]) -> Bools:
    """These characters, and those that are like the first of their kind."""
    found = np.zeros(_COUNT, np.bool_)
    found[[ord(one) for one in characters]] = True
    return _spread(found)


def _spread(found: Bools) -> Bools:
    """Copies the facts of the first code point to those like it."""
    for alike in _ALIKE:
        found[alike.start : alike.stop] = found[alike.start]
    return found
