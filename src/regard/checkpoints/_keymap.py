"""A family's weight map: which tensor on disk is which of the network's. Data, and it works both ways."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from regard.checkpoints._rules import Holds, Rename, Shared, pattern
from regard.core.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class Match:
    """What a map says of a name on disk: its rule, the network's names in disk order, the prefix before."""

    prefix: str
    rule: Rename
    ours: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyMap:
    """How the tensors of a family are called on disk.

    Attributes:
        rules: the names, in both directions: `Rename` for one tensor, or one that is several of the
            network's, `Shared` for one that stands for several which the network may tie.
        prefixes: what some checkpoints of the family put before every name, such as `bert.`; a model with a
            head is written with the first of them.
        aliases: older spellings of the end of a name on disk, and the spelling that the rules use.
        heads: beginnings of the names on disk of what stands beside the prefixed model, such as `lm_head.`.
            A network may lack them, as what is left out.
        left_out: beginnings of other names on disk that a network may lack. A tensor that a rule maps to
            one of the network's is loaded all the same; the others are reported.
        buffers: constants that some checkpoints store, such as position numbers, and whether what is stored
            is what the network has. They are not loaded.

    `heads`, `left_out` and `buffers` may hold `{layer}`. No two rules may have the same name, on
    disk or in the network: the first would count.

    >>> keymap = KeyMap(
    ...     rules=(
    ...         Rename("layer.{layer}.attention.self.query.{part}", "layers.{layer}.attention.q.{part}"),
    ...         Rename("layer.{layer}.Wi.{part}", ("layers.{layer}.up.{part}", "layers.{layer}.gate.{part}")),
    ...     ),
    ...     prefixes=("bert.",),
    ...     heads=("cls.",),
    ... )
    >>> keymap.to_ours("bert.layer.3.attention.self.query.weight")
    ('layers.3.attention.q.weight',)
    >>> keymap.to_ours("layer.3.Wi.weight")
    ('layers.3.up.weight', 'layers.3.gate.weight')
    >>> keymap.to_hf("layers.3.attention.q.weight"), keymap.to_hf("layers.3.gate.weight")
    ('layer.3.attention.self.query.weight', 'layer.3.Wi.weight')
    >>> keymap.to_ours("cls.predictions.bias"), keymap.leaves_out("cls.predictions.bias")
    ((), True)
    """

    rules: tuple[Rename | Shared, ...]
    prefixes: tuple[str, ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()
    heads: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    buffers: Mapping[str, Holds] = field(default_factory=dict)

    @property
    def shared(self) -> tuple[Shared, ...]:
        """The rules for tensors that stand for several."""
        return tuple(rule for rule in self.rules if isinstance(rule, Shared))

    @property
    def _own(self) -> tuple[Rename, ...]:
        return tuple(rule for rule in self.rules if not isinstance(rule, Shared))

    def match(self, name: str) -> Match | None:
        """The `Rename` that has a name on disk, or None."""
        # As it stands, then behind a prefix; each also in today's spelling. The first rule that fits counts.
        for prefix in self._prefixes_of(name):
            for spelling in self._spellings(name.removeprefix(prefix)):
                for rule in self._own:
                    if (match := pattern(rule.hf).fullmatch(spelling)) is not None:
                        values = match.groupdict()
                        return Match(prefix, rule, tuple(piece.format(**values) for piece in rule.pieces))
        return None

    def to_ours(self, name: str) -> tuple[str, ...]:
        """The network's names of a tensor on disk: none, one, or the pieces that it holds, in their order."""
        match = self.match(name)
        return () if match is None else match.ours

    def to_hf(self, name: str) -> str:
        """The name on disk, in the rules' own spelling, of a tensor of the network.

        Raises:
            CheckpointError: the map gives none.
        """
        found = self.rule_of(name)
        if found is None:
            raise CheckpointError(f"the key map has no name on disk for the network's {name!r}")
        return found[0]

    def rule_of(self, name: str) -> tuple[str, Rename] | None:
        """The name on disk of a tensor of the network and the rule that has it, or None."""
        for rule in self._own:
            for piece in rule.pieces:
                if (match := pattern(piece).fullmatch(name)) is not None:
                    return rule.hf.format(**match.groupdict()), rule
        return None

    def shared_by(self, name: str) -> Shared | None:
        """The rule of a tensor on disk that stands for several, or None."""
        bare = {name.removeprefix(prefix) for prefix in self._prefixes_of(name)}
        return next((rule for rule in self.shared if rule.hf in bare), None)

    def is_head(self, name: str) -> bool:
        """Whether a tensor of the disk stands beside the prefixed model."""
        return any(pattern(head).match(bare) for head in self.heads for bare in self._bare(name))

    def leaves_out(self, name: str) -> bool:
        """Whether a network of the family may lack this tensor of the disk."""
        return self.is_head(name) or any(
            pattern(start).match(bare) for start in self.left_out for bare in self._bare(name)
        )

    def buffer(self, name: str) -> Holds | None:
        """What a tensor on disk that is a stored constant has to be; None for any other tensor."""
        bare = list(self._bare(name))
        return next((it for hf, it in self.buffers.items() if any(map(pattern(hf).fullmatch, bare))), None)

    def with_prefix(self, name: str, prefix: str) -> str:
        """A name on disk behind a prefix, if it is of those that stand behind one."""
        return name if self.is_head(name) else prefix + name

    def _bare(self, name: str) -> Iterator[str]:
        return (name.removeprefix(prefix) for prefix in self._prefixes_of(name))

    def _prefixes_of(self, name: str) -> Iterator[str]:
        yield ""
        yield from (prefix for prefix in self.prefixes if name.startswith(prefix))

    def _spellings(self, bare: str) -> Iterator[str]:
        yield bare
        yield from (bare.removesuffix(old) + new for old, new in self.aliases if bare.endswith(old))
