"""Conditions on the uses of a word, on its text, its date and what else is known."""

import json
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, Final

import numpy as np
import regex  # type: ignore[import-untyped, unused-ignore]

from regard.concordance._store import Store, numbers
from regard.concordance._tokens import Mask, Numbers
from regard.concordance._values import iso_date, number
from regard.core.arguments import plain, several
from regard.core.errors import InputError
from regard.core.wording import excerpt

_SIGNS: Final = "!=|>=|<=|!~|=|>|<|~"
_CONDITION: Final = regex.compile(rf"\s*([^=!<>~@]+?)\s*({_SIGNS})\s*(.*)", regex.DOTALL)
# "a=1 AND b=2" was meant as two conditions.
_SEVERAL: Final = regex.compile(rf"\s(AND|OR|&&|\|\|)\s+[\w. ]+?\s*({_SIGNS})", regex.IGNORECASE)

_SHOWN: Final = 8  # values that a message names

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
    "lemma": ("SELECT 1 FROM form WHERE lemma != '' LIMIT 1", "lemmas", ""),
    "pos": ("SELECT 1 FROM form WHERE pos != '' LIMIT 1", "parts of speech", ""),
    **dict.fromkeys(
        _DATED.values(),
        (
            _HAS_DATES := "SELECT 1 FROM doc WHERE date IS NOT NULL LIMIT 1",
            "dates",
            " Make it anew with the column that has them (--date-column).",
        ),
    ),
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
        what = "be of letters, digits, _ and -" if where else "come with conditions (where)"
        raise InputError(f"name must {what}; got {name!r}.")
    _read(store, where)
    with store.writing():
        values = [name, json.dumps(resolved(store, where))]
        store.db.execute("INSERT OR REPLACE INTO subcorpus VALUES (?, ?)", values)


def _read(store: Store, where: Sequence[str]) -> list[tuple[str, str, str, bool]]:
    """Conditions as name, sign and value, each of which means something; and whether they are about dates."""
    read = []
    for clause in resolved(store, where):
        parts = _CONDITION.fullmatch(clause)
        if parts is None:
            raise InputError(f"where must be NAME=VALUE, with = != < <= > >= ~ or !~; got {clause!r}.")
        name, sign, value = parts.groups()
        column = column_of(store, name, "where")
        lacking, dated = _LACKING.get(column), column in _DATED.values()
        # A condition on what the index does not have at all would fit nothing in silence.
        if lacking is not None and not store.one(lacking[0]):
            raise InputError(
                f"where must not ask for {name}: the index has no {lacking[1]}; got {clause!r}.{lacking[2]}"
            )
        if sign in ("~", "!~"):
            check_expression("where", value)
        elif value.startswith("="):
            raise InputError(f"where must have one = between NAME and VALUE; got {clause!r}.")
        elif joined := _SEVERAL.search(value):
            # OR has a way to be said; AND is the same condition given again.
            either = joined[1].upper() in ("OR", "||")
            way = "one of several values is NAME~^(A|B)$" if either else "all that are given hold"
            raise InputError(f"where must be one condition, and may be given again: {way}; got {clause!r}.")
        elif dated:
            value = _begins(name, name, value, clause)
        elif (path := _path(store, name)) and (sign not in ("=", "!=") or iso_date(value)):
            each = f"json_each(doc.meta, {path}) WHERE type IN ('integer', 'real', 'text')"
            values = [own for (own,) in store.rows(f"SELECT DISTINCT value FROM doc, {each}")]
            are = [number(own) is not None for own in values]
            # Dates, of which some may be a year alone.
            dates = [iso_date(str(own)) is not None for own in values]
            lists = f"SELECT 1 FROM doc WHERE json_type(doc.meta, {path}) = 'array' LIMIT 1"
            if 2 * sum(dates) > len(dates) and sum(dates) > sum(are) and not store.one(lists):
                value, dated = _begins("date", name, value, clause), True
            # Numbers are compared with numbers: "10" would be before "9" as a word. Among words may be
            # numbers, as the title "1984", and among numbers words: "n/a".
            elif sign in ("=", "!="):
                pass
            elif 2 * sum(are) > len(are) if number(value) is None else not any(are):
                what = "a number, as its values are" if any(are) else "a word: it has no numbers"
                raise InputError(f"where must compare {name} with {what}; got {clause!r}.")
        read.append((name, sign, value, dated and sign not in ("~", "!~")))
    return read


def _begins(kind: str, name: str, value: str, condition: str) -> str:
    """What the dates begin with that a condition is about."""
    if kind == "decade":
        # "1990s" or "1990": the first three digits.
        decade = regex.fullmatch(r"(\d{2,3})0s?", value.strip())
        begin = decade and decade[1].zfill(3)
    else:
        begin = iso_date(value)
    # A year is not compared with a day.
    if begin is None or (kind, len(begin)) in (("year", 7), ("year", 10), ("month", 10)):
        wanted = {"decade": "1990", "year": "1999", "month": "1999-12"}.get(
            kind, "1999, 1999-12 or 1999-12-31"
        )
        raise InputError(f"where must compare {name} with one such as {wanted}; got {condition!r}.")
    return str(begin)


def of_documents(store: Store, where: Sequence[str]) -> tuple[str, list[Any]]:
    """The SQL of the conditions on documents (`doc d`), and its values; those on single uses are left out."""
    parts, values = ["1"], list[Any]()
    for name, sign, value, dated in _read(store, where):
        if name in OF_USE:
            continue
        column, path = column_of(store, name, "where"), _path(store, name)
        # Dates are compared by their beginning (`holds`), those of a field in the one form.
        kind = "'date'" if dated else f"json_type(d.meta, {path})" if path else "NULL"
        column = f"iso({column})" if dated and path else column
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
    for name, sign, value, _ in read:
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


def unmet(store: Store, where: Sequence[str]) -> str:
    """Which condition no text meets by itself, and what the texts have; "" where each is met by some."""
    for clause in resolved(store, where):
        [(name, sign, value, _)] = _read(store, [clause])
        condition, values = of_documents(store, [clause])
        if name in OF_USE or store.one(f"SELECT 1 FROM doc d WHERE {condition} LIMIT 1", values):
            continue
        own, table = each_of(store, name)
        query = f"SELECT DISTINCT {own} FROM doc d{table} WHERE {own} IS NOT NULL LIMIT 10000"
        there = [str(each) for (each,) in store.rows(query)]
        # The nearest first; of many the others are not told.
        near = dict.fromkeys([*get_close_matches(value, there, 3), *there])
        shown = ", ".join(excerpt(each, 30) for each in [*near][:_SHOWN])
        shown += " and others" * (len(near) > _SHOWN)
        way = f" One of several values is {name}~^({value})$." if sign == "=" and "|" in value else ""
        return f" No text has {clause}: {name} is {shown or 'nowhere'}.{way}"
    return ""


def fields_of(store: Store) -> list[str]:
    """The fields of the corpus, by the names that conditions have."""
    # A field goes before the names that regard has, but for a few.
    own = {*_OWN, *OF_USE, *(["date"] if store.one(_HAS_DATES) else [])}
    return [f"meta.{name}" if name in own else name for name in store.manifest.get("fields", [])]


def column_of(store: Store, name: str, argument: str) -> str:
    """The SQL of what a name stands for: a field of the corpus, or what every use has."""
    path = _path(store, plain(argument, name, str))
    if path is not None:
        return (
            # SQLite has 1 and 0 for true and false: they are put back into words.
            f"CASE json_type(d.meta, {path}) WHEN 'true' THEN 'true' WHEN 'false' THEN 'false' "
            f"ELSE json_extract(d.meta, {path}) END"
        )
    if argument == "where" and name in OF_USE:
        return OF_USE[name]
    column = (_OWN | _DATED).get(name)
    if column is None:
        known = ", ".join([*_names(argument), *fields_of(store)])
        # Older indexes kept no column that was not named.
        chosen = store.manifest["reading"]["meta"] is not None
        way = " An index that is made anew without --meta has all columns of a table." if chosen else ""
        raise InputError(f"{argument} must name a field that the corpus has: {known}; got {name!r}.{way}")
    return column


def values_of(store: Store, docs: Numbers, by: str) -> list[Any]:
    """What documents have of a field, or as a date, a year, ..."""
    every = "json_each(?) w CROSS JOIN doc d ON d.id = w.value ORDER BY w.key"
    rows = store.rows(f"SELECT {column_of(store, by, 'by')} FROM {every}", [numbers(docs)])
    return [value for (value,) in rows]


def each_of(store: Store, by: str) -> tuple[str, str]:
    """The SQL of the single values that `doc d` has of a field, and of the table of them.

    A list has several, and one of a kind may be there twice.
    """
    column, path = column_of(store, by, "by"), _path(store, by)
    if path is None:
        return column, ""
    many = f"json_type(d.meta, {path}) = 'array' AND json_array_length(d.meta, {path}) > 0"
    one = f"json_array(nullif({column}, '[]'))"
    return "v.value", f", json_each(CASE WHEN {many} THEN json_extract(d.meta, {path}) ELSE {one} END) v"


def _names(argument: str) -> list[str]:
    return [*(OF_USE if argument == "where" else ()), *_OWN, *_DATED]


def _path(store: Store, name: str) -> str | None:
    """The JSON path of a field, whose name may stand behind `meta.`; None of what is no field."""
    fields, known = store.manifest.get("fields", []), fields_of(store)
    field = next(
        (own for own, typed in zip(fields, known, strict=True) if name in (typed, f"meta.{own}")), None
    )
    return None if field is None else "'$.\"{}\"'".format(field.replace("'", "''"))


def check_expression(argument: str, value: str) -> None:
    """Raise InputError for what is no regular expression."""
    try:
        regex.compile(value)
    except regex.error as error:
        raise InputError(f"{argument} must be a regular expression; {value!r} is not ({error}).") from error
