"""Conditions on uses: on the word, its text, its date and what else the corpus knows."""

import re
from collections.abc import Sequence
from typing import Any, Final

import regex  # type: ignore[import-untyped, unused-ignore]

from regard.concordance._store import Store
from regard.core.errors import InputError
from regard.text import fold, split_words

JOINED: Final = "use u JOIN form f ON f.id = u.form JOIN text t ON t.id = u.text JOIN doc d ON d.id = t.doc"
"""What the conditions are about."""

_CONDITION: Final = re.compile(r"\s*([\w.:-]+)\s*(!=|>=|<=|!~|=|>|<|~)\s*(.*)", re.DOTALL)
_OWN: Final = {
    "form": "f.form",
    "lemma": "f.lemma",
    "pos": "f.pos",
    "date": "d.date",
    "source": "d.source",
    "text": "t.body",
}
MOST_WORDS: Final = 8
"""Of a phrase."""


def conditions(store: Store, where: Sequence[str]) -> tuple[str, list[Any]]:
    """The SQL of conditions that must all hold, and its values; "1" without any.

    Args:
        store: the index.
        where: each `NAME OP VALUE`, or `@NAME` for a subcorpus that was saved. A name is form, lemma, pos,
            date, source, text, or a field of the corpus. OP is = != < <= > >=, or ~ !~ for an expression.

    Raises:
        InputError: what is no condition, or a name that the corpus does not have.
    """
    parts, values = ["1"], list[Any]()
    for each in where:
        if each.startswith("@"):
            saved = store.one("SELECT conditions FROM subcorpus WHERE name = ?", [each[1:]])
            if saved is None:
                names = [name for (name,) in store.rows("SELECT name FROM subcorpus ORDER BY name")]
                raise InputError(
                    f"where must name a saved subcorpus; {each!r} is none of {', '.join(names) or 'none'}."
                )
            inner, more = conditions(store, saved.split("\n"))
            parts.append(inner)
            values += more
            continue
        found = _CONDITION.fullmatch(each)
        if found is None:
            raise InputError(f"where must be NAME=VALUE, with = != < <= > >= ~ or !~; got {each!r}.")
        name, sign, value = found.groups()
        column = _OWN.get(name)
        if column is None:
            fields = store.manifest.get("fields", [])
            if name not in fields:
                known = ", ".join([*_OWN, *fields])
                raise InputError(f"where must name a field that the corpus has: {known}; got {name!r}.")
            column = f"json_extract(d.meta, '$.\"{name}\"')"
        parts.append(_compared(column, sign, value, values))
    return " AND ".join(parts), values


def _compared(column: str, sign: str, value: str, values: list[Any]) -> str:
    if sign in ("~", "!~"):
        try:
            regex.compile(value)
        except regex.error as error:
            raise InputError(
                f"where must have a regular expression behind {sign}; {value!r} is none ({error})."
            ) from error
        values.append(value)
        return f"{'NOT ' * (sign == '!~')}regexp(?, {column})"
    values.append(_number(value) if sign[0] in "<>" else value)
    kind = "REAL" if isinstance(values[-1], float) else "TEXT"
    return f"CAST({column} AS {kind}) {sign} ?"


def _number(value: str) -> float | str:
    try:
        return float(value)
    except ValueError:
        return value


def forms_of(store: Store, word: str) -> list[tuple[int, ...]]:
    """The forms that each word of a phrase may have; one, where it is a word.

    Args:
        store: the index.
        word: a word, as it is written or as a lemma, without regard to case; `/PATTERN/` is a regular
            expression for a form; several words are a phrase.

    Raises:
        InputError: a word that the corpus does not have; the nearest ones are named.
    """
    if len(word) > 2 and word[0] == word[-1] == "/":
        pattern = regex.compile(word[1:-1], regex.IGNORECASE)
        fitting = tuple(id for id, form in store.rows("SELECT id, form FROM form") if pattern.fullmatch(form))
        if not fitting:
            raise InputError(f"word must fit a form of the corpus; {word!r} fits none.")
        return [fitting]
    parts = [word[start:stop] for start, stop in split_words(word)]
    if not 1 <= len(parts) <= MOST_WORDS:
        raise InputError(f"word must be a word, or up to {MOST_WORDS} in a row; got {word!r}.")
    found = []
    for part in parts:
        key = fold(part)
        ids = store.rows("SELECT id FROM form WHERE key = ?1 OR lemma = ?1", [key])
        if not ids:
            raise InputError(f"word must be one of the corpus; {part!r} is none.{_nearest(store, key)}")
        found.append(tuple(id for (id,) in ids))
    return found


def _nearest(store: Store, key: str) -> str:
    from difflib import get_close_matches

    size = len(key)
    rows = store.rows(
        "SELECT key, sum(n) FROM form WHERE is_word AND length(key) BETWEEN ? AND ? GROUP BY key",
        [size - 2, size + 2],
    )
    counts = dict(rows)
    near = sorted(get_close_matches(key, list(counts), n=5, cutoff=0.7), key=lambda each: -counts[each])[:3]
    return f" Did you mean {', '.join(repr(each) for each in near)}?" if near else ""
