"""Which uses of a word there are, by conditions on the word, its text, its date and what else is known."""

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

import numpy as np
import regex  # type: ignore[import-untyped, unused-ignore]
from numpy.typing import NDArray

from regard.concordance._store import Store, numbers
from regard.core.errors import InputError
from regard.text import fold, split_words

JOINED: Final = "use u JOIN form f ON f.id = u.form JOIN text t ON t.id = u.text JOIN doc d ON d.id = t.doc"
"""What the conditions are about."""

_CONDITION: Final = re.compile(r"\s*([^=!<>~@]+?)\s*(!=|>=|<=|!~|=|>|<|~)\s*(.*)", re.DOTALL)
OF_USE: Final = {"form": "f.form", "lemma": "f.lemma", "pos": "f.pos", "text": "t.body"}
"""What is not the same for all of a document."""

_OWN: Final = OF_USE | {"date": "d.date", "source": "d.source"}
_DATED: Final = "CASE WHEN d.date GLOB '[0-9][0-9][0-9][0-9]*' THEN substr(d.date, 1, {}) END"
_OF_DATE: Final = {
    "month": _DATED.format(7),
    "year": _DATED.format(4),
    "decade": f"{_DATED.format(3)} || '0s'",
}
MOST_WORDS: Final = 8
"""The most words that a phrase may have."""


def plain(store: Store, where: Sequence[str]) -> list[str]:
    """Conditions with those of saved subcorpora in the place of their names."""
    found = list[str]()
    for each in where:
        if not each.startswith("@"):
            found.append(each)
            continue
        saved = store.one("SELECT conditions FROM subcorpus WHERE name = ?", [each[1:]])
        if saved is None:
            names = [f"@{name}" for (name,) in store.rows("SELECT name FROM subcorpus ORDER BY name")]
            known = f"one of {', '.join(names)}" if names else "saved before"
            raise InputError(f"where must name a subcorpus that is {known}; got {each!r}.")
        found += json.loads(saved)
    return found


def conditions(store: Store, where: Sequence[str], *, of_documents: bool = False) -> tuple[str, list[Any]]:
    """The SQL of conditions that must all hold, and its values; `of_documents` skips those on single uses."""
    parts, values = ["1"], list[Any]()
    for each in plain(store, where):
        found = _CONDITION.fullmatch(each)
        if found is None:
            raise InputError(f"where must be NAME=VALUE, with = != < <= > >= ~ or !~; got {each!r}.")
        name, sign, value = found.groups()
        column = column_of(store, name, "where")
        if not (of_documents and name in OF_USE):
            parts.append(_compared(column, sign, value, values))
    return " AND ".join(parts), values


def save_subcorpus(store: Store, name: str, where: Sequence[str]) -> None:
    """Keep conditions under a name, for `@NAME` among others; a subcorpus of that name is replaced."""
    if not where or not re.fullmatch(r"[\w-]+", name):
        raise InputError(f"name must be of letters, digits, _ and -, with conditions; got {name!r}, {where}.")
    conditions(store, where)
    with store.writing():
        values = [name, json.dumps(plain(store, where))]
        store.db.execute("INSERT OR REPLACE INTO subcorpus VALUES (?, ?)", values)


def column_of(store: Store, name: str, argument: str) -> str:
    """The SQL of what a name stands for: a field of the corpus, or what every use has."""
    fields = store.manifest.get("fields", [])
    field = name.removeprefix("meta.")
    if field in fields and name not in _OWN:
        path = field.replace("'", "''")
        return f"json_extract(d.meta, '$.\"{path}\"')"
    found = None if (argument, name) == ("by", "text") else (_OWN | _OF_DATE).get(name)
    if found is None:
        known = ", ".join([*_OWN, *_OF_DATE, *fields])
        raise InputError(f"{argument} must name a field that the corpus has: {known}; got {name!r}.")
    return found


def _compared(column: str, sign: str, value: str, values: list[Any]) -> str:
    if sign in ("~", "!~"):
        _check_expression("where", value)
        values.append(value)
        return f"{'NOT ' * (sign == '!~')}regexp(?, {column})"
    if sign in ("=", "!="):  # what has no such field is not equal
        values.append(value)
        return f"CAST({column} AS TEXT) IS {'NOT ' * (sign == '!=')}?"
    with suppress(ValueError):
        values.append(float(value))
        return f"({column} GLOB '[-+.0-9]*' AND CAST({column} AS REAL) {sign} ?)"
    values.append(value)
    # All days of a month are within it, as all of a year are within the year.
    begins = f"substr({column}, 1, {len(value)})" if column == _OWN["date"] else column
    return f"CAST({begins} AS TEXT) {sign} ?"


def listed(ids: Iterable[int]) -> str:
    """Numbers as SQL lists them; where there are none, -1, which is no number of anything."""
    return ",".join(map(str, ids)) or "-1"


def forms_of(store: Store, word: str) -> list[tuple[int, ...]]:
    """The forms that each word of a phrase may have: by its spelling, its lemma or a /PATTERN/."""
    if len(word) > 2 and word[0] == word[-1] == "/":
        _check_expression("word", word[1:-1])
        rows = store.rows("SELECT id FROM form WHERE regexp(?, form)", [rf"(?i)\A(?:{word[1:-1]})\Z"])
        if not rows:
            raise InputError(f"word must fit a form of the corpus; {word!r} fits none.")
        return [tuple(id for (id,) in rows)]
    parts = [word] if _ids(store, word) else []
    for each in [] if parts else word.split():
        parts += [each] if _ids(store, each) else [each[start:stop] for start, stop in split_words(each)]
    if not 1 <= len(parts) <= MOST_WORDS:
        raise InputError(f"word must be a word, or up to {MOST_WORDS} in a row; got {word!r}.")
    found = [_ids(store, part) for part in parts]
    if not all(found):
        odd = parts[found.index(())]
        raise InputError(f"word must be in the corpus; {odd!r} is not.{_nearest(store, fold(odd))}")
    return found


def _ids(store: Store, word: str) -> tuple[int, ...]:
    key = fold(word)
    rows = store.rows("SELECT id FROM form WHERE key = ?1 OR lemma = ?1", [key]) if key else []
    return tuple(id for (id,) in rows)


def _check_expression(argument: str, value: str) -> None:
    try:
        regex.compile(value)
    except regex.error as error:
        raise InputError(f"{argument} must be a regular expression; {value!r} is not ({error}).") from error


def _nearest(store: Store, key: str) -> str:
    rows = store.rows(
        "SELECT key, sum(n) FROM form WHERE is_word AND abs(length(key) - ?) <= 2 GROUP BY key", [len(key)]
    )
    counts = dict(rows)
    near = sorted(get_close_matches(key, counts, n=5, cutoff=0.7), key=lambda each: -counts[each])[:3]
    return f" Did you mean {', '.join(map(repr, near))}?" if near else ""


Uses = NDArray[np.int64]  # their numbers, in the order of the corpus

_PUNCTUATION: Final = 12  # marks that may stand between a word and its farthest neighbour


@dataclass(frozen=True)
class Found:
    """The uses of a word, or of a phrase of `size` words: the number of its first word in each."""

    uses: Uses
    size: int = 1

    def at(self, rows: NDArray[Any]) -> "Found":
        """Some of them, by their places or by a mask."""
        return Found(self.uses[rows], self.size)


def select(
    store: Store, word: str, where: Sequence[str] = (), *, sample: int | None = None, seed: int = 0
) -> Found:
    """The uses of a word or phrase under conditions: all, or a sample in the order of the corpus."""
    forms = forms_of(store, word)
    condition, values = conditions(store, where)
    joins = "".join(
        f" JOIN use u{i} ON u{i}.id = u.id + {i} AND u{i}.text = u.text AND u{i}.form IN ({listed(of)})"
        for i, of in enumerate(forms[1:], 1)
    )
    tables = JOINED if where else "use u"
    word_is = f"u.form IN ({listed(forms[0])}) AND {condition}"
    rows = store.rows(f"SELECT u.id FROM {tables}{joins} WHERE {word_is} ORDER BY u.id", values)
    if not rows:
        what = f"{word!r} with {', '.join(where)}" if where else f"{word!r}: its words never stand in a row"
        raise InputError(f"the corpus has no use of {what}.")
    uses = np.array(rows, np.int64)[:, 0]
    if sample is not None and sample < len(uses):
        uses = np.sort(np.random.default_rng(seed).choice(uses, sample, replace=False))
    return Found(uses, len(forms))


@dataclass(frozen=True, eq=False)
class Place:
    """Where a use stands: its numbers, the text with its own place in it, and what is known of its document.

    `start` and `stop` are code points of `body`, which begins at `offset` of the document.
    """

    use: int
    text: int
    doc: int
    body: str
    start: int
    stop: int
    offset: int
    source: str
    where: str
    date: str | None
    meta: str

    @property
    def node(self) -> str:
        """The word."""
        return self.body[self.start : self.stop]


def places(store: Store, found: Found) -> list[Place]:
    """Where uses stand, in their order."""
    rows = store.rows(
        "SELECT u.id, t.id, t.doc, t.body, u.start, v.stop, t.start, d.source, d.place, d.date, d.meta "
        "FROM json_each(?) w CROSS JOIN use u ON u.id = w.value JOIN use v ON v.id = u.id + ? "
        "JOIN text t ON t.id = u.text JOIN doc d ON d.id = t.doc ORDER BY w.key",
        [numbers(found.uses), found.size - 1],
    )
    return [Place(*row) for row in rows]


class Neighbours(NamedTuple):
    """Words around uses: the row of the use; -1 just before it, 1 just after; the word's form and number."""

    row: NDArray[np.int64]
    distance: NDArray[np.int64]
    form: NDArray[np.int64]
    use: NDArray[np.int64]


def neighbours(store: Store, found: Found, left: int, right: int) -> Neighbours:
    """The words within `left` words before and `right` words after each use, in the same text."""
    reach = _PUNCTUATION + max(left, right)
    rows = store.rows(
        "SELECT * FROM (SELECT w.key, iif(v.id < u.id, -1, 1) * row_number() OVER "
        "(PARTITION BY w.key, v.id < u.id ORDER BY abs(v.id - u.id)) distance, v.form, v.id "
        "FROM json_each(?) w CROSS JOIN use u ON u.id = w.value CROSS JOIN use v "
        f"ON v.id BETWEEN u.id - {reach} AND u.id + {reach + found.size} AND +v.text = u.text "
        f"AND v.id NOT BETWEEN u.id AND u.id + {found.size - 1} "
        "CROSS JOIN form f ON f.id = v.form WHERE f.is_word) "
        "WHERE distance BETWEEN ? AND ? ORDER BY 1, 4",
        [numbers(found.uses), -left, right],
    )
    return Neighbours(*np.array(rows, np.int64).reshape(-1, 4).T)


def sort_order(store: Store, found: Found, keys: Sequence[str]) -> NDArray[np.int64]:
    """The order of uses by the words around them: L1 is the one before, R2 the second after; node."""
    keys = [key.upper() for key in keys]
    if odd := [key for key in keys if re.fullmatch("NODE|[LR][1-9]", key) is None]:
        raise InputError(f"sort must be of L1 to L9, node and R1 to R9; got {odd[0]!r}.")
    reach = max(int(key[1]) if key != "NODE" else 0 for key in keys)
    around = neighbours(store, found, reach, reach)
    names = dict(store.rows("SELECT id, key FROM form")) | {0: ""}
    columns = []
    for key in keys:
        forms = np.zeros(len(found.uses), np.int64)
        if key == "NODE":
            query = "SELECT u.form FROM json_each(?) w CROSS JOIN use u ON u.id = w.value ORDER BY w.key"
            forms[:] = [form for (form,) in store.rows(query, [numbers(found.uses)])]
        else:
            at = around.distance == int(key[1]) * (1 if key[0] == "R" else -1)
            forms[around.row[at]] = around.form[at]
        columns.append(np.array([names[form] for form in forms.tolist()]))
    return np.lexsort(columns[::-1])
