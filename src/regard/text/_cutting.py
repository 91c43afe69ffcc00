"""Expressions that cut a text, for JavaScript: over signs in the place of characters.

No two engines know the same Unicode. So whatever an expression says of one character is asked of the library
that runs it, for every code point; code points of which all expressions say the same share a sign; and the
expression is written anew over these.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import regex  # type: ignore[import-untyped, unused-ignore]
from tokenizers import Regex, pre_tokenizers

from regard.core.errors import InputError
from regard.text._code_points import Bools, digits, folds, left_out, members

# Signs begin above ASCII and Latin-1: expressions keep their own characters free.
FIRST_SIGN: Final = 0x100

_Json = Mapping[str, Any]

_PART: Final = regex.compile(
    r"(?P<open>\((?:\?(?:i:|[:!=]))?)|(?P<close>\))|(?P<how>\||(?:[?*+]|\{\d+(?:,\d*)?\})\??(?![?*+{]))"
    r"|(?P<set>\[(?:\\.|[^\[\]\\&])+\]|\\[pP]\{\w+\}|\\x\{[0-9A-Fa-f]+\}|\\[srnS/\\.+*?|(){}\[\]^$-]|[^\\^$.\[\]{}?*+])"
)
"""What an expression is made of, as far as both libraries read it alike."""


def cuts(steps: Sequence[_Json]) -> tuple[npt.NDArray[np.int64], list[str]]:
    """The cuts of pre-tokenizers that split or set digits apart: the signs of all code points, from 0 on, and
    expressions over characters from `FIRST_SIGN` on.

    Raises:
        InputError: A step is another, or an expression has what is not written anew; the message names it.
    """
    read = [_parts(step) for step in steps]
    # Every different thing that is said of one character, once.
    atoms = {part for parts in read for part in parts if isinstance(part, _Atom)}
    signs = np.zeros(0x110000, np.int64)
    for atom in sorted(atoms):
        # Two code points share a sign as long as no atom tells them apart.
        signs = 2 * signs + atom.members()
        # Numbered anew without gaps, by counting: to sort a million code points takes ten times as long.
        signs = (np.cumsum(np.bincount(signs) > 0) - 1)[signs]
    # Where each sign stands first: among the places where it changes, which are few and quickly sorted.
    changes = np.flatnonzero(np.diff(signs, prepend=-1))
    first = changes[np.unique(signs[changes], return_index=True)[1]]
    # A set of characters becomes the set of signs that are in it.
    spelled = {
        atom: "".join(chr(FIRST_SIGN + sign) for sign in np.flatnonzero(atom.members()[first]))
        for atom in atoms
    }
    return signs, [
        "".join(f"[{spelled[part]}]" if isinstance(part, _Atom) else part for part in parts) for parts in read
    ]


class _Atom(NamedTuple):
    """What an expression says of one character; "" for a digit that stands alone."""

    said: str
    folds: bool = False

    def members(self) -> Bools:
        return _members(self.said, self.folds) if self.said else digits()


@cache
def _members(said: str, is_folding: bool) -> Bools:
    # Asked by cutting: what the expression matches is removed, and so shows as a gap.
    cutting = pre_tokenizers.Split(Regex(f"(?i:{said})" if is_folding else said), "removed")
    # A class such as \p{L}: all code points are asked.
    if len(said) > 1:
        return left_out(cutting)
    # The library need not be asked about any other character.
    return members(one for one in {said, *folds([said])} if not cutting.pre_tokenize_str(one))


def _parts(step: _Json) -> list[str | _Atom]:
    kind = step["type"]
    if kind == "Digits" and step["individual_digits"]:
        return [_Atom("")]
    # Other kinds of steps have no expression to write anew.
    pattern = step["pattern"].get("Regex") if kind == "Split" else None
    if pattern is None or step["behavior"] != "Isolated" or step["invert"]:
        raise InputError(f"its pre-tokenizer has {dict(step)}")
    parts: list[str | _Atom] = []
    # Whether case is folded in each open group, innermost last.
    folding = [False]
    at = 0
    while at < len(pattern):
        part = _PART.match(pattern, at)
        if part is None:
            raise InputError(f"its pre-tokenizer cuts by {pattern!r}, of which {pattern[at:]!r} is not known")
        at = part.end()
        # A set, a class or a character: an atom.
        if part["set"]:
            parts.append(_Atom(part["set"], folding[-1]))
        elif part["open"]:
            # A group inherits folding; (?i: turns it on, and its i is not written, since signs are
            # folded already.
            folding.append(folding[-1] or "i" in part["open"])
            parts.append(part["open"].replace("i", ""))
        else:
            # A closing bracket ends its group's folding.
            folding = folding[: -1 if part["close"] else None]
            parts.append(part[0])
    return parts
