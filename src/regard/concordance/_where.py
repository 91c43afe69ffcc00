"""Conditions on the uses of a word, on its text, its date and what else is known."""

import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import regex  # type: ignore[import-untyped, unused-ignore]

from regard.concordance._store import Store, numbers
from regard.concordance._tokens import Mask, Numbers
from regard.concordance._values import iso_date, number
from regard.core.arguments import plain, several
from regard.core.errors import InputError

_SIGNS: Final = "!=|>=|<=|!~|=|>|<|~"
_CONDITION: Final = regex.compile(rf"\s*([^=!<>~@]+?)\s*({_SIGNS})\s*(.*)", regex.DOTALL)
# "a=1 AND b=2" was meant as two conditions.
_SEVERAL: Final = regex.compile(rf"\s(AND|OR|&&|\|\|)\s+[\w. ]+?\s*({_SIGNS})", regex.IGNORECASE)

OF_USE: Final = {"form": "form", "lemma": "lemma", "pos": "pos", "text": "body"}
"""What is not the same for all of a document."""

_DATED: Final = {
    "date": "d.date",
    # NULL where the date is a year alone: it has no month.
    "month": "substr(d.date, 1, nullif(7, 7 * (length(d.date) < 7)))",
    "year": "substr(d.date, 1, 4)",
    "decade": "substr(d.date, 1, 3) || '0s'",
}
_OWN: Final = {"source": "d.source"}
_LACKING: Final = {
    "lemma": ("SELECT 1 FROM form WHERE lemma != '' LIMIT 1", "lemmas"),
    "pos": ("SELECT 1 FROM form WHERE pos != '' LIMIT 1", "parts of speech"),
    **dict.fromkeys(_DATED.values(), ("SELECT 1 FROM doc WHERE date IS NOT NULL LIMIT 1", "dates")),
}
"""How it is found out whether an index has some of these at all, and what they are called."""


def resolved(store: Store, where: Sequence[str]) -> list[str]:
    """Conditions with those of saved subcorpora in the place of their names."""
    conditions = list[str]()
    for condition in several("where", where, "conditions"):
        if not condition.startswith("@"):
            conditions.append(condition)
            continue
        saved = store.one("SELECT conditions FROM subcorpus WHERE name = ?", [condition[1:]])
        if saved is None:
            names = [f"@{name}" for (name,) in store.rows("SELECT name FROM subcorpus ORDER BY name")]
            known = f"one of {', '.join(names)}" if names else "saved before"
            raise InputError(f"where must name a subcorpus that is {known}; got {condition!r}.")
        conditions += json.loads(saved)
    return conditions


def save_subcorpus(store: Store, name: str, where: Sequence[str]) -> None:
    """Keep conditions under a name, for `@NAME` among others; a subcorpus of that name is replaced."""
    if not where or not regex.fullmatch(r"[\w-]+", name):
        raise InputError(f"name must be of letters, digits, _ and -, with conditions; got {name!r}, {where}.")
    _read(store, where)
    with store.writing():
        values = [name, json.dumps(resolved(store, where))]
        store.db.execute("INSERT OR REPLACE INTO subcorpus VALUES (?, ?)", values)


def _read(store: Store, where: Sequence[str]) -> list[tuple[str, str, str]]:
    """Conditions as name, sign and value, each of which means something."""
    read = []
    for clause in resolved(store, where):
        parts = _CONDITION.fullmatch(clause)
        if parts is None:
            raise InputError(f"where must be NAME=VALUE, with = != < <= > >= ~ or !~; got {clause!r}.")
        name, sign, value = parts.groups()
        column = column_of(store, name, "where")
        lacking = _LACKING.get(column)
        # A condition on what the index does not have at all would fit nothing in silence.
        if lacking is not None and not store.one(lacking[0]):
            raise InputError(f"where must not ask for {name}: the index has no {lacking[1]}; got {clause!r}.")
        if sign in ("~", "!~"):
            check_expression("where", value)
        elif value.startswith("="):
            raise InputError(f"where must have one = between NAME and VALUE; got {clause!r}.")
        elif joined := _SEVERAL.search(value):
            # OR has a way to be said; AND is the same condition given again.
            either = joined[1].upper() in ("OR", "||")
            way = "one of several values is NAME~^(A|B)$" if either else "all that are given hold"
            raise InputError(f"where must be one condition, and may be given again: {way}; got {clause!r}.")
        elif name in _DATED and column == _DATED[name]:
            value = _begins(name, value, clause)
        elif sign not in ("=", "!=") and name not in OF_USE:
            # Numbers are compared with numbers: "10" would be before "9" as a word.
            each = f"json_each(doc.meta, {_path(name)}) WHERE type IN ('integer', 'real', 'text')"
            rows = store.rows(f"SELECT DISTINCT value FROM doc, {each}")
            are = [number(own) is not None for (own,) in rows]
            # Among words may be numbers, as the title "1984", and among numbers words: "n/a".
            if 2 * sum(are) > len(are) if number(value) is None else not any(are):
                what = "a number, as its values are" if any(are) else "a word: it has no numbers"
                raise InputError(f"where must compare {name} with {what}; got {clause!r}.")
        read.append((name, sign, value))
    return read


def _begins(name: str, value: str, condition: str) -> str:
    """What the dates begin with that a condition is about."""
    if name == "decade":
        # "1990s" or "1990": the first three digits.
        decade = regex.fullmatch(r"(\d{2,3})0s?", value.strip())
        begin = decade and decade[1].zfill(3)
    else:
        begin = iso_date(value)
    # A year is not compared with a day.
    if begin is None or (name, len(begin)) in (("year", 7), ("year", 10), ("month", 10)):
        wanted = {"decade": "1990", "year": "1999", "month": "1999-12"}.get(
            name, "1999, 1999-12 or 1999-12-31"
        )
        raise InputError(f"where must compare {name} with one such as {wanted}; got {condition!r}.")
    return str(begin)


def of_documents(store: Store, where: Sequence[str]) -> tuple[str, list[Any]]:
    """The SQL of the conditions on documents (`doc d`), and its values; those on single uses are left out."""
    parts, values = ["1"], list[Any]()
    for name, sign, value in _read(store, where):
        if name in OF_USE:
            continue
        column = column_of(store, name, "where")
        # Dates are compared by their beginning (`holds`).
        kind = "'date'" if column in _DATED.values() else "NULL"
        if column.startswith("CASE"):
            kind = f"json_type(d.meta, {_path(name)})"
        parts.append(f"holds({column}, {kind}, ?, ?)")
        values += sign, value
    return " AND ".join(parts), values


def limits(store: Store, where: Sequence[str], *, of_use: bool = True) -> tuple[Mask | None, Mask | None]:
    """Which texts and which forms conditions allow, by their numbers; None is all.

    Without `of_use`, conditions on single uses are left out.
    """
    tokens, read = store.tokens, [each for each in _read(store, where) if of_use or each[0] not in OF_USE]
    texts: Mask | None = None
    forms: Mask | None = None
    # Conditions on documents in SQL, spread over their texts.
    if any(name not in OF_USE for name, *_ in read):
        condition, values = of_documents(store, where)
        docs = np.zeros(len(tokens.doc_text), np.bool_)
        docs[[id for (id,) in store.rows(f"SELECT id FROM doc d WHERE {condition}", values)]] = True
        texts = np.append(False, np.repeat(docs[1:], np.diff(tokens.doc_text)))
    for name, sign, value in read:
        # Conditions on the text itself.
        if name == "text":
            own = np.zeros(len(tokens.text_first), np.bool_)
            rows = store.rows("SELECT id FROM text WHERE says(body, NULL, ?, ?)", [sign, value])
            own[[id for (id,) in rows]] = True
            texts = own if texts is None else texts & own
        elif name in OF_USE:
            # Negations are taken of the whole mask: a form fits "!=" where neither it nor a word within
            # fits "=".
            positive = sign.replace("!=", "=").removeprefix("!")
            column = "word" if name == "form" else name
            query = (
                f"SELECT id FROM form WHERE holds({name}, NULL, :sign, :value) "
                f"UNION SELECT form FROM part WHERE holds({column}, NULL, :sign, :value)"
            )
            own = tokens.mask(id for (id,) in store.rows(query, {"sign": positive, "value": value}))
            own = own if sign == positive else ~own
            forms = own if forms is None else forms & own
    return texts, forms


def column_of(store: Store, name: str, argument: str) -> str:
    """The SQL of what a name stands for: a field of the corpus, or what every use has."""
    field = plain(argument, name, str).removeprefix("meta.")
    # A field of the corpus goes before the names that regard has, but for a few.
    if field in store.manifest.get("fields", []) and name not in (*_OWN, *OF_USE, "date"):
        path = _path(name)
        return (
            # SQLite has 1 and 0 for true and false: they are put back into words.
            f"CASE json_type(d.meta, {path}) WHEN 'true' THEN 'true' WHEN 'false' THEN 'false' "
            f"ELSE json_extract(d.meta, {path}) END"
        )
    if argument == "where" and name in OF_USE:
        return OF_USE[name]
    column = (_OWN | _DATED).get(name)
    if column is None:
        known = ", ".join([*_names(argument), *store.manifest.get("fields", [])])
        raise InputError(f"{argument} must name a field that the corpus has: {known}; got {name!r}.")
    return column


def values_of(store: Store, docs: Numbers, by: str) -> list[Any]:
    """What documents have of a field, or as a date, a year, ..."""
    every = "json_each(?) w CROSS JOIN doc d ON d.id = w.value ORDER BY w.key"
    rows = store.rows(f"SELECT {column_of(store, by, 'by')} FROM {every}", [numbers(docs)])
    return [value for (value,) in rows]


def _names(argument: str) -> list[str]:
    return [*(OF_USE if argument == "where" else ()), *_OWN, *_DATED]


def _path(name: str) -> str:
    field = name.removeprefix("meta.").replace("'", "''")
    return f"'$.\"{field}\"'"


def check_expression(argument: str, value: str) -> None:
    """Raise InputError for what is no regular expression."""
    try:
        regex.compile(value)
    except regex.error as error:
        raise InputError(f"{argument} must be a regular expression; {value!r} is not ({error}).") from error
