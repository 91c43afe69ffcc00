"""A family's weight map: which tensor on disk is which of the network's. Data, and it works both ways."""

import functools
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass

from regard.core.errors import CheckpointError, InputError

_PLACEHOLDERS = {"layer": "0|[1-9][0-9]*", "part": "weight|bias"}
_SAMPLES = ({"layer": "0", "part": "weight"}, {"layer": "10", "part": "bias"})


@dataclass(frozen=True, slots=True)
class Rename:
    """One rule of a `KeyMap`: a name on disk and the name of the same tensor in the network.

    Both are templates in which `{layer}` stands for a whole number and `{part}` for `weight` or `bias`.

    Attributes:
        hf: the name on disk.
        ours: the name in the network's `state_dict`.

    Raises:
        InputError: an unknown or repeated placeholder, or one that only one of the two has.

    >>> Rename("encoder.layer.{layer}.output.dense.{part}", "layers.{number}.ffn.{part}")
    Traceback (most recent call last):
    regard.core.errors.InputError: Rename: 'layers.{number}.ffn.{part}' may hold {layer} and {part}, once each
    """

    hf: str
    ours: str

    def __post_init__(self) -> None:
        in_hf, in_ours = _placeholders(self.hf), _placeholders(self.ours)
        if set(in_hf) != set(in_ours):
            raise InputError(f"Rename: {self.hf!r} and {self.ours!r} must hold the same placeholders")


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyMap:
    """How the tensors of a family are called on disk.

    Attributes:
        rules: the names, each pair in both directions.
        prefixes: what some checkpoints of the family put before every name, such as `bert.`.
        aliases: older spellings of the end of a name on disk, and the spelling that the rules use.
        left_out: beginnings of names on disk that a network may lack, such as the heads of other tasks. A
            tensor that a rule maps to one of the network's is loaded all the same; the others are reported.
        buffers: constants that some checkpoints store, such as position numbers. They are not loaded.

    Raises:
        CheckpointError: the rules contradict each other.

    >>> keymap = KeyMap(
    ...     rules=(Rename("layer.{layer}.attention.self.query.{part}", "layers.{layer}.attention.q.{part}"),),
    ...     prefixes=("bert.",),
    ...     left_out=("cls.",),
    ... )
    >>> keymap.to_ours("bert.layer.3.attention.self.query.weight")
    'layers.3.attention.q.weight'
    >>> keymap.to_hf("layers.3.attention.q.weight")
    'layer.3.attention.self.query.weight'
    >>> keymap.to_ours("cls.predictions.bias") is None, keymap.leaves_out("cls.predictions.bias")
    (True, True)
    """

    rules: tuple[Rename, ...]
    prefixes: tuple[str, ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()
    left_out: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # one name of every rule goes there and back, which finds rules that are in each other's way
        for rule in self.rules:
            for sample in _SAMPLES:
                hf, ours = rule.hf.format(**sample), rule.ours.format(**sample)
                if self.to_ours(hf) != ours or self.to_hf(ours) != hf:
                    raise CheckpointError(f"the key map does not bring {hf!r} to {ours!r} and back")

    def to_ours(self, name: str) -> str | None:
        """The network's name of a tensor on disk, or None where no rule has it.

        Raises:
            CheckpointError: the map gives more than one.
        """
        matches = {(number, ours) for _, number, ours in self._matches(name)}
        if len(matches) > 1:
            raise CheckpointError(f"the key map is ambiguous: {name!r} on disk fits {_rules(self, matches)}")
        return next((ours for _, ours in matches), None)

    def to_hf(self, name: str) -> str:
        """The name on disk, in the rules' own spelling, of a tensor of the network.

        Raises:
            CheckpointError: the map gives none, or more than one.
        """
        matches = {
            (number, hf)
            for number, rule in enumerate(self.rules)
            if (hf := _translated(name, rule.ours, rule.hf)) is not None
        }
        if not matches:
            raise CheckpointError(f"the key map has no name on disk for the network's {name!r}")
        if len(matches) > 1:
            raise CheckpointError(
                f"the key map is ambiguous: the network's {name!r} fits {_rules(self, matches)}"
            )
        return next(hf for _, hf in matches)

    def leaves_out(self, name: str) -> bool:
        """Whether a network of the family may lack this tensor of the disk."""
        return any(name.removeprefix(prefix).startswith(self.left_out) for prefix in self._prefixes_of(name))

    def is_buffer(self, name: str) -> bool:
        """Whether this tensor of the disk is a stored constant."""
        return any(name.removeprefix(prefix) in self.buffers for prefix in self._prefixes_of(name))

    def prefix_of(self, name: str) -> str:
        """The optional prefix that stands before a mapped name on disk, or an empty string."""
        return next((prefix for prefix, _, _ in self._matches(name)), "")

    def _matches(self, name: str) -> Iterator[tuple[str, int, str]]:
        """Every way to bring a name on disk to the network: the prefix taken off, the rule, the result."""
        for prefix in self._prefixes_of(name):
            for spelling in self._spellings(name.removeprefix(prefix)):
                for number, rule in enumerate(self.rules):
                    if (ours := _translated(spelling, rule.hf, rule.ours)) is not None:
                        yield prefix, number, ours

    def _prefixes_of(self, name: str) -> Iterator[str]:
        yield ""
        yield from (prefix for prefix in self.prefixes if name.startswith(prefix))

    def _spellings(self, bare: str) -> Iterator[str]:
        yield bare
        yield from (bare.removesuffix(old) + new for old, new in self.aliases if bare.endswith(old))


def _rules(keymap: KeyMap, matches: set[tuple[int, str]]) -> str:
    return " and ".join(f"{keymap.rules[number].hf!r} -> {result!r}" for number, result in sorted(matches))


def _placeholders(template: str) -> list[str]:
    try:
        pieces = list(string.Formatter().parse(template))
    except ValueError as error:
        raise InputError(f"Rename: {template!r} is not a template ({error})") from error
    found = [name for _, name, _, _ in pieces if name is not None]
    is_plain = not any(form or conversion for _, _, form, conversion in pieces)
    if not is_plain or len(set(found)) < len(found) or set(found) - _PLACEHOLDERS.keys():
        raise InputError(f"Rename: {template!r} may hold {{layer}} and {{part}}, once each")
    return found


@functools.lru_cache(maxsize=1024)
def _pattern(template: str) -> re.Pattern[str]:
    pieces = string.Formatter().parse(template)
    return re.compile(
        "".join(
            re.escape(text) + (f"(?P<{name}>{_PLACEHOLDERS[name]})" if name is not None else "")
            for text, name, _, _ in pieces
        )
    )


def _translated(name: str, source: str, target: str) -> str | None:
    match = _pattern(source).fullmatch(name)
    return None if match is None else target.format(**match.groupdict())
