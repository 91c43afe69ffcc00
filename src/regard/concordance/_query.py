"""What is typed for a word: words, wildcards, patterns, and the part of CQL that corpus tools share."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import reduce
from operator import and_, or_
from typing import Any, Final, Union

import numpy as np
import regex  # type: ignore[import-untyped, unused-ignore]

from regard.concordance._store import Store
from regard.concordance._tokens import Mask, Numbers, Tokens
from regard.concordance._values import bare
from regard.concordance._where import check_expression
from regard.core.arguments import one_of
from regard.core.errors import InputError
from regard.core.extras import optional
from regard.core.wording import excerpt
from regard.text import fold, split_words

MOST: Final = 20
"""The most words that a repetition of CQL may stand for."""


@dataclass(frozen=True)
class Spelling:
    """How spellings are compared: with regard to case, and to diacritics."""

    case: bool = False
    diacritics: bool = True


@dataclass(frozen=True, eq=False)
class One:
    """One use, of these forms; None is any."""

    forms: Mask | None


@dataclass(frozen=True, eq=False)
class Row:
    """One after the other."""

    parts: tuple["Pattern", ...]


@dataclass(frozen=True, eq=False)
class Either:
    """One of several ways."""

    ways: tuple["Pattern", ...]


@dataclass(frozen=True, eq=False)
class Repeat:
    """The same, so many times."""

    what: "Pattern"
    least: int
    most: int


Pattern = Union[One, Row, Either, Repeat]  # noqa: UP007 - it names itself

Ways = tuple[Numbers, Numbers, Numbers]
"""Where a pattern began, where it goes on, and where its document ends."""


def matches(tokens: Tokens, pattern: Pattern) -> tuple[Numbers, Numbers]:
    """Where a pattern begins, and how many uses it has there: the fewest that fit."""
    # What a pattern may begin with narrows the places to try.
    forms, empty = _begins(pattern)
    if empty:
        raise InputError("word must have a part that must be there; all of this may be left out.")
    # All uses, or those whose form can begin the pattern; 0 is no use.
    starts = np.arange(1, len(tokens.forms)) if forms is None else np.flatnonzero(forms[tokens.forms])
    begun, ends, _ = _follow(tokens, pattern, (starts, starts, tokens.doc_first[tokens.doc_of(starts)]))
    # By beginning, and then by end: the first of each beginning is the shortest.
    order = np.lexsort((ends, begun))
    first, at = np.unique(begun[order], return_index=True)
    return first, ends[order][at] - first


def _begins(pattern: Pattern) -> tuple[Mask | None, bool]:
    """The forms that a pattern may begin with, None for any, and whether it may be empty."""
    if isinstance(pattern, One):
        return pattern.forms, False
    if isinstance(pattern, Repeat):
        forms, empty = _begins(pattern.what)
        return forms, empty or pattern.least == 0
    # A row begins with its first part, and with the next as long as parts may be empty.
    all, row = list[Mask | None](), isinstance(pattern, Row)
    empty = row
    for part in pattern.parts if isinstance(pattern, Row) else pattern.ways:
        forms, may = _begins(part)
        all.append(forms)
        if row and not may:
            empty = False
            break
        empty = empty if row else empty or may
    known = [each for each in all if each is not None]
    # Any part that may be anything makes the whole so.
    return (reduce(or_, known) if len(known) == len(all) else None), empty


def _follow(tokens: Tokens, pattern: Pattern, ways: Ways) -> Ways:
    if isinstance(pattern, One):
        begun, at, ends = ways
        # A pattern does not reach beyond its document.
        fits = at < ends
        if pattern.forms is not None:
            fits[fits] = pattern.forms[tokens.forms[at[fits]]]
        return begun[fits], at[fits] + 1, ends[fits]
    if isinstance(pattern, Row):
        return reduce(lambda before, each: _follow(tokens, each, before), pattern.parts, ways)
    if isinstance(pattern, Either):
        return _joined([_follow(tokens, each, ways) for each in pattern.ways])
    # Zero times is a way, where it is allowed.
    reached = [ways] if pattern.least == 0 else []
    # Each round is one more repetition; those from `least` on count.
    for count in range(1, pattern.most + 1):
        ways = _follow(tokens, pattern.what, ways)
        reached += [ways] if count >= pattern.least else []
    return _joined(reached)


def _joined(ways: Sequence[Ways]) -> Ways:
    # Ways that began and stand at the same places are one.
    begun, at, ends = np.unique(np.concatenate(list(map(np.array, ways)), axis=1), axis=1)
    return begun, at, ends


_TYPED: Final = regex.compile(r"/((?:[^/\\]|\\.)+)/(?=\s|$)|(\S+)")
_WILD: Final = regex.compile(r"(?<!\\)[*?|]")
_ALONE: Final = 24  # characters of a form that a message names


def read_query(store: Store, typed: str, spelling: Spelling | None = None) -> Pattern:
    """What a word stands for.

    A word is a form in any case, or a lemma; `*` stands for any characters, `?` for one, `a|b` for either,
    and /a regular expression/ for a whole form. Several in a row are a phrase. What has [ ] or begins with a
    quotation mark is CQL.

    Raises:
        InputError: it is none of these, or no form fits.
    """
    spelling = spelling or Spelling()
    # First as it stands: "*" or "a|b" may be a form of the corpus.
    if (known := ids(store, typed, spelling)) is not None:
        return One(known)
    # Brackets, or quotation marks at the beginning: CQL.
    matches = [*_TYPED.finditer(typed)]
    outside = any("[" in match[0] for match in matches if not match[1])  # /[bc]at/ has its own
    if outside or ('"' in typed and typed.strip()[0] in '"('):
        return _Cql(store, typed, spelling).read()
    parts = list[Pattern]()
    for match in matches:
        expression, word = match.groups()
        if expression:
            # A slash within an expression is written \/.
            parts.append(One(_fitting(store, match[0], expression.replace(r"\/", "/"), spelling)))
        # In a row any word, whether or not the corpus has this mark.
        elif word == "*" and len(matches) > 1:
            parts.append(One(None))
        # Escaped marks stand for themselves.
        elif (known := ids(store, regex.sub(r"\\([*?|])", r"\1", word), spelling)) is not None:
            parts.append(One(known))
        elif _WILD.search(word):
            ways = _ways(word)
            # One of several need not be there: variants of a spelling are asked for so.
            there = [each for each in ways if _WILD.search(each) or ids(store, each, spelling) is not None]
            parts.append(One(reduce(or_, (_way(store, each, spelling) for each in there or ways))))
        else:
            cut = [word[start:stop] for start, stop in split_words(word)]
            parts += (One(_known(store, each, spelling)) for each in cut)
    if not parts:
        raise InputError(f"word must be a word, several in a row, or a pattern; got {typed!r}.")
    return parts[0] if len(parts) == 1 else Row(tuple(parts))


def _ways(word: str) -> list[str]:
    found = [each for each in regex.split(r"(?<!\\)\|", word) if each]
    if not found:
        raise InputError(f"word must have words beside |; got {word!r}.")
    return found


def _way(store: Store, word: str, spelling: Spelling) -> Mask:
    if not _WILD.search(word):
        return _known(store, word, spelling)
    # Marks become expressions, everything else itself.
    inner = regex.sub(r"\\([*?|])|(\*)|(\?)|(.)", _of_wildcard, fold(word) if not spelling.case else word)
    return _fitting(store, word, inner, spelling)


def _of_wildcard(found: Any) -> str:
    return ".*" if found[2] else "." if found[3] else str(regex.escape(found[1] or found[4]))


def _known(store: Store, word: str, spelling: Spelling) -> Mask:
    found = ids(store, word, spelling)
    if found is None:
        raise InputError(f"word must be in the corpus; {word!r} is not.{_nearest(store, fold(word))}")
    return found


def ids(store: Store, word: str, spelling: Spelling) -> Mask | None:
    """The forms that a word is, by its spelling, its lemma, or a word within; None where there are none."""
    key = fold(word)
    tables = (("form", "id", "form"), ("part", "form", "word"))
    # With or without diacritics; the lemma counts as the spelling does.
    same = "bare({0}) = bare(:key)" if not spelling.diacritics else "{0} = :key"
    test = f"{same.format('key')} OR {same.format('lemma')}"
    query = " UNION ALL ".join(f"SELECT {id}, {form} FROM {table} WHERE {test}" for table, id, form in tables)
    rows = store.rows(query, {"key": key}) if key else []
    # Folded keys have no case: it is compared in the forms themselves.
    if spelling.case:
        rows = [(id, own) for id, own in rows if _spelt(own, spelling) == _spelt(word, spelling)]
    return store.tokens.mask(id for id, _ in rows) if rows else None


def _spelt(text: str, spelling: Spelling) -> str:
    """A form or an expression as they are compared: apostrophes straight, letters with marks in one way."""
    text = fold(text, case=True)
    return text if spelling.diacritics else bare(text)


def _fitting(store: Store, typed: str, expression: str, spelling: Spelling) -> Mask:
    check_expression("word", expression)
    # Over all distinct forms, which are far fewer than uses.
    found = _forms(store, _readings(store, "word", expression, spelling))
    if not found.any():
        hint = r" A mark itself is \?, \* or \|." if _WILD.search(typed) and typed[0] != "/" else ""
        raise InputError(f"word must fit a form of the corpus; {typed!r} fits none.{hint}")
    return found


def _readings(store: Store, name: str, expression: str, spelling: Spelling) -> Mask:
    """Which forms, and then which words within forms, an expression fits as a whole."""
    # What is compared: the key without case, or the form; other columns as they are.
    column = "key" if name == "word" and not spelling.case else {"word": "fold({}, 1)"}.get(name, name)
    column = column if spelling.diacritics else f"bare({column})"
    test = f"regexp(:expression, {column})"
    # The key of Straße has ss: a mark for one letter fits the form. (?f): so is ß in an expression.
    test += " OR length(key) != length({0}) AND regexp(:expression, {0})" if column == "key" else ""
    flags = "" if spelling.case else "(?fi)"
    value = {"expression": rf"{flags}\A(?:{_spelt(expression, spelling)})\Z"}
    sizes, masks = _sizes(store), []
    # Forms first, then the words within forms: one mask for both.
    for (table, size), form in zip(sizes.items(), ("form", "word"), strict=True):
        own = np.zeros(size, np.bool_)
        rows = store.rows(f"SELECT id FROM {table} WHERE {test.format(form)}", value)
        own[[id - 1 for (id,) in rows]] = True
        masks.append(own)
    return np.concatenate(masks)


def _sizes(store: Store) -> dict[str, int]:
    return {table: store.one(f"SELECT coalesce(max(id), 0) FROM {table}") for table in ("form", "part")}


def _forms(store: Store, readings: Mask) -> Mask:
    """The forms of which they or a word within are among these."""
    count = _sizes(store)["form"]
    within = np.array(store.rows("SELECT form FROM part ORDER BY id"), np.int64).reshape(-1)
    # Number 0 is no form.
    forms = np.append(False, readings[:count])
    # A form fits where a word within it does.
    forms[within[readings[count:]]] = True
    return forms


def with_apostrophe(store: Store, word: str) -> str:
    """The words that are this one with an apostrophe before or after it, with their numbers; "" of none."""
    rows = store.rows(
        # '''' is one apostrophe in SQL.
        "SELECT key, sum(n) FROM form WHERE substr(key, 1, length(:word) + 1) = :word || '''' "
        "OR substr(key, -length(:word) - 1) = '''' || :word GROUP BY key ORDER BY 2 DESC LIMIT 3",
        {"word": fold(word)},
    )
    return ", ".join(f"{form} ({n:,})" for form, n in rows)


def _nearest(store: Store, key: str) -> str:
    if stands := with_apostrophe(store, key):
        return f" It stands in {stands}, which `regard index --split-apostrophes` parts."
    # Near in length first: likeness is only computed for those.
    rows = store.rows(
        "SELECT key, sum(n) FROM form WHERE is_word AND abs(length(key) - ?) <= 2 GROUP BY key", [len(key)]
    )
    counts = dict(rows)
    # The three most frequent of the near ones.
    near = sorted(get_close_matches(key, counts, n=5, cutoff=0.7), key=lambda each: -counts[each])[:3]
    return f" Did you mean {', '.join(map(repr, near))}?" if near else ""


_GRAMMAR: Final = r"""
    start: either
    either: row ("|" row)*
    row: (atom | repeated)+
    repeated: atom BOUNDS
    ?atom: use | "(" either ")"
    use: "[" some? "]" | quoted
    some: every ("|" every)*
    every: each ("&" each)*
    ?each: test | opposite | "(" some ")"
    opposite: "!" each
    test: NAME SIGN STRING FLAGS?
    quoted: STRING FLAGS?
    BOUNDS: /[?*+]|\{\s*\d*\s*(,\s*\d*\s*)?\}/
    NAME: /[a-z]+/
    SIGN: "!=" | "="
    STRING: /"(?:[^"\\]|\\.)*"/
    FLAGS: /%[cd]+/
    %ignore /\s+/
"""
_NAMES: Final = {"word": "word", "lemma": "lemma", "pos": "pos", "tag": "pos", "upos": "pos"}


class _Cql:
    """The pattern that CQL says: a tree of lark in, a `Pattern` out."""

    def __init__(self, store: Store, typed: str, spelling: Spelling) -> None:
        self._store, self._typed, self._spelling = store, typed, spelling

    def read(self) -> Pattern:
        lark = optional("queries in CQL need", "lark", "lark")[0]
        try:
            tree = lark.Lark(_GRAMMAR, parser="lalr", propagate_positions=True).parse(self._typed)
        except lark.UnexpectedInput as error:
            rest = self._typed[max(error.pos_in_stream or 0, 0) :]
            ended = isinstance(error, lark.UnexpectedToken) and error.token.type == "$END"
            at = "at its end" if ended else f"from {excerpt(rest, _ALONE)!r} on"
            raise InputError(
                'word must be CQL such as [lemma="go" & pos="VERB"] []{0,3} "bank", with | ( ) ! and bounds; '
                f"{excerpt(self._typed, 60)} is not understood {at}."
            ) from error
        return self.pattern(tree.children[0])

    def pattern(self, tree: Any) -> Pattern:
        if tree.data == "use":
            if not tree.children:
                return One(None)
            # What an expression says is of readings (forms and words within); a use has forms.
            forms = _forms(self._store, self.readings(tree.children[0]))
            if not forms.any():
                own = self._typed[tree.meta.start_pos : tree.meta.end_pos]
                hint = " In CQL each quoted part is one word." if " " in own and own[0] == '"' else ""
                raise InputError(f"word must fit a form of the corpus; {own} fits none.{hint}")
            return One(forms)
        if tree.data == "repeated":
            return Repeat(self.pattern(tree.children[0]), *self.bounds(str(tree.children[1])))
        parts = tuple(map(self.pattern, tree.children))
        return parts[0] if len(parts) == 1 else Row(parts) if tree.data == "row" else Either(parts)

    def bounds(self, typed: str) -> tuple[int, int]:
        least, comma, most = "".join(typed.strip("{}*+").split()).partition(",")
        found = (0, 1) if typed == "?" else (int(least or 0), int((most if comma else least) or -1))
        if not 0 <= found[0] <= found[1] <= MOST:
            raise InputError(f"word must have bounds of 0 to {MOST}, such as {{0,3}}; got {typed!r}.")
        return found

    def readings(self, tree: Any) -> Mask:
        if tree.data not in ("test", "quoted"):
            parts = list(map(self.readings, tree.children))
            # ! is not, | is or, & is and, over masks.
            return (
                ~parts[0] if tree.data == "opposite" else reduce(or_ if tree.data == "some" else and_, parts)
            )
        said = {each.type: str(each) for each in tree.children}
        name, flags = said.get("NAME", "word"), said.get("FLAGS", "")
        column, text = _NAMES[one_of("word: what CQL asks for", name, _NAMES)], said["STRING"][1:-1]
        # A column that is empty everywhere would fit nothing in silence.
        if column != "word" and not self._store.one(f"SELECT 1 FROM form WHERE {column} != '' LIMIT 1"):
            raise InputError(f"word must not ask for {name}: the index has none.")
        case = self._spelling.case and "c" not in flags
        diacritics = self._spelling.diacritics and "d" not in flags
        check_expression("word", text)
        mask = _readings(self._store, column, text, Spelling(case, diacritics))
        return ~mask if said.get("SIGN") == "!=" else mask
